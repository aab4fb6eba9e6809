"""A sweep as text: points, crossings and formulas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from opgraph.analysis.quantities import Quantity, quantities
from opgraph.analysis.scaling.sweep import Size, SweepPoint, SweepRecord
from opgraph.analysis.tree import Item, ItemKind, Metric, build_tree
from opgraph.record import units
from opgraph.record.formulas import Formula, Formulas
from opgraph.record.kinds import Bound
from opgraph.record.profile import ProfileRecord
from opgraph.views.terminal import bound, draw, fit, fitting, ruled, safe

SHOWN = ("flops", "bytes", "peak_memory", "intensity", "latency", "throughput", "memory_share")
_LEFT_OUT = ("intensity", "bytes", "peak_memory", "flops", "throughput")
"""Columns that are left out where there is no room, the first of them first: none is cut."""
LABELS = {
    "flops": "FLOPs",
    "other_flops": "Other FLOPs",
    "bytes": "Bytes",
    "peak_memory": "Peak memory",
}
TOP_MODULES = 12

_HEADS = {
    "intensity": "FLOPs/byte", "memory_share": "used", "peak_memory": "peak", "bytes": "bytes",
    "batch_size": "batch", "seq_len": "tokens", "decoder_seq_len": "decoder", "image_size": "image",
    "context_len": "context",
}  # fmt: skip


def sweep_text(sweep: SweepRecord, *, color: bool = False, width: int = 120) -> str:
    """The sweep as text; `width` is in characters."""
    parts: list[RenderableType] = [Text(safe(sweep.title), style="bold"), ""]
    if sweep.points:
        tables = [_points(sweep, _LEFT_OUT[:left]) for left in range(len(_LEFT_OUT) + 1)]
        parts += [fitting(tables, width), "", *_crossings(sweep)]
    if sweep.profile is not None and sweep.profile.formulas is not None:
        parts += [""] if sweep.points else []
        parts += _formulas(sweep.profile, sweep.profile.formulas)
    return draw(parts, width, color)


def spelled(size: Size) -> str:
    """A size as a person writes it: 224, 480x640, bfloat16."""
    return units.shape(tuple(size)) if isinstance(size, tuple) else str(size)


def _points(sweep: SweepRecord, left_out: Sequence[str] = ()) -> Table:
    shown = [q for q in quantities(sweep.device) if q.name in SHOWN and q.name not in left_out]
    heads = [_HEADS.get(option, option) for option in sweep.axes]
    heads += [_HEADS.get(q.name, q.label) for q in shown]
    table = ruled([*heads, "compute", "bound"], ("bound",))
    for p in sweep.points:
        sizes = [spelled(p.sizes[option]) for option in sweep.axes]
        if p.error is not None:
            table.add_row(*sizes, Text("failed", style="red"))
            continue
        share = "—" if p.compute_share is None else units.percent(p.compute_share)
        values = [_figure(q, p.values.get(q.name)) for q in shown]
        table.add_row(*sizes, *values, share, bound(p.bottleneck))
    return table


def _figure(q: Quantity, value: float | None) -> str:
    """A figure under its head, which says the unit of FLOPs."""
    return units.count(value) if q.kind == "flops" and value is not None else q.format(value)


def _crossings(sweep: SweepRecord) -> Iterator[Text]:
    """Where the bottleneck moves, a sentence each."""
    said = [_crossing(*crossing) for crossing in sweep.crossings]
    if any(p.error is None for p in sweep.points):
        yield Text(
            "compute: the share of the predicted time that goes to compute-bound nodes"
            if sweep.device
            else "compute: the share of the bytes that compute-bound nodes move, at a ridge of "
            f"{', '.join(f'{r:.4g}' for r in sweep.ridges)} FLOPs/byte",
            style="dim",
        )
    yield from (Text(safe(text, 300)) for text in said)
    if sweep.device is not None:
        yield Text(safe(_fitting(sweep, sweep.device.name, sweep.device.capacity), 300))
    for p in sweep.points:
        if p.error is not None:
            at = ", ".join(f"{o.replace('_', ' ')} {spelled(s)}" for o, s in p.sizes.items())
            yield Text(f"At {at}: {safe(p.error, 200)}", style="red")


def _fitting(sweep: SweepRecord, name: str, capacity: float) -> str:
    """What fits, of the sizes that ran."""
    ran = [p for p in sweep.points if p.error is None]
    large = [p for p in ran if (p.values.get("memory_share") or 0.0) > 1]
    has = f"{units.size(capacity)} of the {name}"
    if not large:
        return f"All sizes fit in the {has}."
    return f"{len(large)} of {units.plural(len(ran), 'size')} do not fit in the {has} (used above 100 %)."


def _crossing(option: str, before: SweepPoint, after: SweepPoint) -> str:
    others = [f"{o.replace('_', ' ')} {spelled(s)}" for o, s in before.sizes.items() if o != option]
    where = f" (at {', '.join(others)})" if others else ""
    return (
        f"The bottleneck moves from {_named(before.bottleneck)} to {_named(after.bottleneck)} between "
        f"{option.replace('_', ' ')} {spelled(before.sizes[option])} and "
        f"{spelled(after.sizes[option])}{where}."
    )


def _named(bound: Bound | None) -> str:
    return "nothing" if bound is None else bound.label


def _formulas(profile: ProfileRecord, formulas: Formulas) -> Iterator[Text]:
    """The formulas of the whole and of the costliest modules."""
    meanings = ", ".join(f"{v.name} = {v.meaning}" for v in formulas.variables)
    yield Text(f"Formulas  ({meanings})", style="bold")
    for name, formula in formulas.totals.items():
        yield from _formula(LABELS.get(name, name), formula, formulas.names)
    modules = list(_listed(profile))
    room = min(56, max((len(label) for label, _ in modules), default=0) + 2)
    for quantity in ("flops", "bytes", "peak_memory") if modules else ():
        yield Text("")
        yield Text(f"{LABELS[quantity]} by module", style="bold")
        for label, path in modules:
            formula = formulas.modules.get(path, {}).get(quantity, Formula(()))
            yield from _formula(label, formula, formulas.names, room)
    yield Text("")
    at = ", ".join("(" + ", ".join(map(str, point)) + ")" for point in formulas.checked)
    yield Text(
        f"Exact, and checked against tracing at {units.plural(len(formulas.checked), 'point')} that "
        f"the formulas were not made from: ({', '.join(formulas.names)}) = {at}",
        style="dim",
    )
    yield from (Text(f"Note: {safe(note, 300)}", style="yellow") for note in formulas.notes)


def _listed(profile: ProfileRecord) -> Iterator[tuple[str, str]]:
    """The modules that compute something, level by level as far as they fit, each with its label; of
    repeated ones the first."""
    tree = build_tree(profile.graph)
    items: dict[str, Item] = {}
    for item in tree.root.shown():
        if item.path and item.kind is not ItemKind.FOLD and tree.each(Metric.FLOPS, item):
            items.setdefault(tree.title(item), item)
    listed: list[tuple[str, str, int]] = []
    for level in range(1, 12):
        deeper = [(t, i.path, i.times) for t, i in items.items() if 0 < i.level <= level]
        if len(deeper) > TOP_MODULES:
            break
        listed = deeper
    for path, first, count in listed:
        label = f"{path} (each of {count})" if count > 1 else path
        yield label, first


def _formula(label: str, formula: Formula, names: Sequence[str], room: int = 14) -> Iterator[Text]:
    if not formula.pieces:
        yield Text("  " + fit(label, room) + "no formula was found", style="yellow")
    for number, piece in enumerate(formula.pieces):
        line = Text(f"  {fit(label if number == 0 else '', room - 1)} ", no_wrap=False)
        line.append(piece.polynomial.text(names), style="cyan")
        spans = (span.text(name) for span, name in zip(piece.where, names, strict=True))
        where = ", ".join(text for text in spans if text)
        if where:
            line.append(f"    for {where}", style="dim")
        yield line
