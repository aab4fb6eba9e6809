"""The JSON view: the profile as it is saved and loaded, and beside it what was worked out for a device."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.scaling.sweep import SweepRecord
from opgraph.record.files import dumps
from opgraph.record.kinds import Run
from opgraph.record.profile import FORMAT, SCHEMA_VERSION
from opgraph.record.schema import encode, encode_pipeline, encode_run
from opgraph.record.targets import Target


def to_json(costed: CostedRecord, *, memory: bool = False) -> str:
    """The profile as JSON text: the same profile gives the same bytes.

    On a device, over several devices, with a partition or with `memory`, what was asked stands under
    "costed", which a reader of profiles passes over.
    """
    data = profile_data(costed)
    long = {
        key: data.pop(key) for key in ("inductor", "formulas", "measured", "graph") if key in data
    }
    parts = f',\n "memory": {_compact(data.pop("memory"))}'
    if (more := costed_data(costed, memory=memory)) is not None:
        parts += f',\n "costed": {_compact(more)}'
    parts += "".join(f',\n "{key}": {_sections(part)}' for key, part in long.items())
    head = dumps(data, indent=1)
    return f"{head[:-2]}{parts}\n}}\n"


def profile_data(costed: CostedRecord, *, as_run: bool = False) -> dict[str, Any]:
    """The profile as JSON-ready data, with the graph that was traced, or `as_run`. `totals` and `memory`,
    the live bytes after each kernel, are for those who read the file by other means than opgraph."""
    profile, shown = costed.profile, costed if as_run else costed.plain
    world, pipeline = profile.world, profile.pipeline
    found = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "model": {
            n: v for n, v in asdict(profile.model).items() if n != "weights" or v is not None
        },
        "mode": profile.mode,
        "run": None if profile.run is Run.EAGER else profile.run.value,
        "convention": profile.convention,
        "versions": profile.versions,
        "remarks": [r.to_dict() for r in costed.remarks],
        "tracing": [asdict(a) for a in profile.tracing.attempts],
        "totals": shown.totals.to_dict(),
        "memory": shown.memory.to_dict(),
        "target": None if profile.target == Target() else asdict(profile.target),
        "kv_cache": profile.cache and profile.cache.to_dict(),
        "inductor": profile.compiled and asdict(profile.compiled),
        "world": world and asdict(world),
        "pipeline": world and pipeline and encode_pipeline(pipeline),
        "exchanged": None if world is None else [e.to_dict() for e in costed.exchanged],
        "formulas": profile.formulas and profile.formulas.to_dict(),
        "measured": profile.measured and encode_run(profile.measured),
        "graph": encode(shown.graph),
    }
    return {name: part for name, part in found.items() if part is not None}


def costed_data(costed: CostedRecord, *, memory: bool = False) -> dict[str, Any] | None:
    """What was asked beside the profile, as JSON-ready data; None where nothing was."""
    found: dict[str, Any] = {}
    if costed.device is not None:
        found |= {
            "device": costed.device.id,
            "ridge": costed.ridge,
            "dtype": costed.main_dtype,
            "prediction": costed.prediction.to_dict() if costed.prediction else None,
            "energy": costed.energy.to_dict() if costed.energy else None,
            "bounds": [b.to_dict() for b in costed.bounds],
            "waits": {bound.value: share for bound, share in costed.waits.items()},
            "fit": asdict(costed.fit) | {"needed": costed.fit.needed, "fits": costed.fit.fits}
            if costed.fit
            else None,
        }
        if costed.speed_up is not None:
            found["compiled"] = costed.speed_up.to_dict()
        if costed.price is not None:
            found["price"] = costed.price.to_dict()
        if costed.steps:
            found["steps"] = [s.to_dict() for s in costed.steps]
    if costed.graph is not costed.profile.graph:  # `totals` beside this are those of the trace
        found["totals"] = costed.totals.to_dict()
    if costed.ran is not None:
        found["measured"] = costed.ran.to_dict()
    if costed.plan is not None:
        found["plan"] = costed.plan.to_dict()
    if "partition" in costed.asked:
        found["partition"] = costed.partition.value
        found["subgraphs"] = [part.to_dict() for part in costed.parts]
    if memory:
        found["peak_memory"] = costed.peak_memory
        if costed.host_memory:
            found["host_memory"] = costed.host_memory
    return found or None


def plain(record: Any) -> str:
    """What a result says of itself, as JSON text."""
    return dumps(record.to_dict(), indent=1) + "\n"


_END = "\n}"


def sweep_json(sweep: SweepRecord) -> str:
    """The points; where formulas were looked for, the profile that has them, and the points under "sweep",
    which a reader of profiles passes over."""
    if sweep.profile is None:
        return plain(sweep)
    text = to_json(CostedRecord(sweep.profile))
    more = {k: v for k, v in sweep.to_dict().items() if k != "formulas"}
    return f'{text[: text.rindex(_END)]},\n "sweep": {_compact(more)}{_END}\n'


def _sections(part: dict[str, Any]) -> str:
    """An object of lists and objects, with one of their records a line, so that files can be read and
    compared by line."""
    sections = ",\n".join(f'  "{key}": {_lines(rows)}' for key, rows in part.items())
    return f"{{\n{sections}\n }}"


def _lines(rows: Any) -> str:
    if not isinstance(rows, (list, dict)):
        return _compact(rows)
    if isinstance(rows, dict):
        return "{" + ",\n   ".join(f"{_compact(k)}:{_compact(v)}" for k, v in rows.items()) + "}"
    return "[" + ",\n   ".join(map(_compact, rows)) + "]"


def _compact(record: Any) -> str:
    return dumps(record, separators=(",", ":"))
