"""Profiles beside each other: totals, and what changed.

By module, by operator or by node, from the first to each other one. Works on saved profiles; nothing
here imports torch.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import hypot
from typing import TYPE_CHECKING, Any

from opgraph.analysis.compare.alignment import Change, align, by_operator, folded
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.nodes import Row
from opgraph.analysis.quantities import MEASURED, TIMED, Quantity, quantities
from opgraph.hardware import Device
from opgraph.record import units
from opgraph.record.errors import InputError, RenderError, did_you_mean
from opgraph.record.quantization import kept_in

if TYPE_CHECKING:
    from opgraph.hardware import Device
    from opgraph.record.graph import Node


__all__ = ["ComparisonRecord", "NodeChange", "OperatorChange", "compared"]


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """An operator before and after; None where there was or is none."""

    op: str
    before: Row | None
    after: Row | None

    @property
    def difference(self) -> tuple[float, int, int, int]:
        """Seconds (none without a device), FLOPs, bytes and nodes that it takes more than before."""
        was, now = (
            (0.0, 0, 0, 0) if row is None else (row.seconds or 0.0, row.flops, row.bytes, row.count)
            for row in (self.before, self.after)
        )
        return now[0] - was[0], now[1] - was[1], now[2] - was[2], now[3] - was[3]

    @property
    def same(self) -> bool:
        a, b = self.before, self.after
        return a is not None and b is not None and (
            (a.cost, a.count, a.seconds) == (b.cost, b.count, b.seconds)
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node that was added, was removed or costs differently.

    One of the two is None where there is or was none; its module occurs `count` times.
    """

    module: str
    before: Node | None
    after: Node | None
    count: int = 1


@dataclass(frozen=True)
class ComparisonRecord:
    """Models, the first of which the others are compared with.

    All are on devices, or none; `labels` tell them apart.
    """

    models: tuple[CostedRecord, ...]
    labels: tuple[str, ...]
    verdicts: tuple[Verdict, ...] = ()

    @property
    def device(self) -> Device | None:
        """The device of the first; where others differ, the labels name all."""
        return self.models[0].device

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What the totals are of."""
        ran = any(m.profile.measured is not None for m in self.models)
        return (*quantities(self.device), *([MEASURED] if ran else []))

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The module tree of the first laid over each other's."""
        first, *others = self.models
        return tuple(
            folded(align(first.graph, other.graph, (first.module_tree, other.module_tree)),
                   first.tree, other.tree)
            for other in others
        )  # fmt: skip

    @property
    def broken(self) -> tuple[Verdict, ...]:
        """The gates that do not hold."""
        return tuple(v for v in self.verdicts if v.broken)

    def operators(self, other: int = 1) -> tuple[OperatorChange, ...]:
        """Operators of the first and of another profile, the largest difference first."""
        before, after = ({c.name: c for c in self.models[i].operators} for i in (0, other))
        changes = [
            OperatorChange(op, before.get(op), after.get(op))
            for op in dict.fromkeys((*before, *after))
        ]
        return tuple(sorted(changes, key=lambda c: [-abs(d) for d in c.difference]))

    def measured(self, other: int = 1) -> tuple[tuple[str, float, float], ...]:
        """Operators with the seconds that were measured of the first and of another profile, the largest
        difference first; empty where one of them was not run."""
        both = [self.models[i].measurement for i in (0, other)]
        seconds: dict[str, list[float]] = {}
        for at, found in enumerate(both):
            if found is None:
                return ()
            for node, taken in found.by_node.items():
                row = seconds.setdefault(found.costed.graph.node(node).op, [0.0, 0.0])
                row[at] += taken
        rows = ((op, before, after) for op, (before, after) in seconds.items())
        return tuple(sorted(rows, key=lambda r: -abs(r[2] - r[1])))

    def nodes(self, other: int = 1) -> tuple[NodeChange, ...]:
        """The nodes that differ, module by module; those of folded modules once."""
        return tuple(_node_changes(self.changes[other - 1]))

    def records(self) -> list[dict[str, Any]]:
        """The totals, one flat record a quantity, with a column for each model."""
        labels = [f"{label} ({i})" if self.labels.count(label) > 1 else label
                  for i, label in enumerate(self.labels, start=1)]  # fmt: skip
        return [
            {"quantity": q.name, **dict(zip(labels, map(q.of, self.models), strict=True))}
            for q in self.quantities
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data: totals, changes by module, and gates."""
        others = range(1, len(self.models))
        return {
            "profiles": list(self.labels),
            "remarks": [[r.to_dict() for r in m.remarks] for m in self.models],
            "totals": {q.name: [q.of(m) for m in self.models] for q in self.quantities},
            "changes": [
                [_change_data(c) for c in change.walk() if c.differs]
                for change in self.changes
            ],
            **({"measured": [self.measured(i) for i in others]} if any(map(self.measured, others)) else {}),
            "gates": [
                {"gate": v.gate.text, "profile": self.labels[v.position], "before": v.before,
                 "after": v.after, "broken": v.broken}
                for v in self.verdicts
            ],
        }  # fmt: skip


def compared(
    models: Sequence[CostedRecord],
    labels: Sequence[str] | None = None,
    fail_if: str | Sequence[str] = (),
) -> ComparisonRecord:
    """Compare the first of some models with each of the others, and judge the gates `fail_if`; on a device
    also by predicted time.

    Raises `RenderError` for fewer than two profiles, or for a gate that cannot be read, and `InputError`
    where one is on a device and another is not.
    """
    if len(models) < 2:
        raise RenderError(
            "there is nothing to compare with", hint="a comparison takes two profiles"
        )
    if len({m.device is None for m in models}) > 1:
        raise InputError("one of these is on a device, and another is not",
                         hint="compare all of them on devices, or none")  # fmt: skip
    texts = [fail_if] if isinstance(fail_if, str) else fail_if
    gates = [parse_gate(text, models[0].device) for text in texts]
    names = tuple(labels or _labels(models))
    return ComparisonRecord(tuple(models), names, judge(gates, models))


def _labels(models: Sequence[CostedRecord]) -> list[str]:
    """The models' names, followed by what tells those of one name apart: the device, how they are counted,
    the mode, the inputs, the dtype of the weights, the tracer."""
    profiles = [m.profile for m in models]
    told = [_traits(m) for m in models]
    labels = []
    for profile, traits in zip(profiles, told, strict=True):
        namesakes = [
            t for p, t in zip(profiles, told, strict=True) if p.model.name == profile.model.name
        ]
        telling = [
            text
            for key, text in traits.items()
            if text and any(t.get(key) != text for t in namesakes)
        ]
        labels.append("  ".join([profile.model.name, *telling[:2]]))
    return labels


def _traits(costed: CostedRecord) -> dict[str, str]:
    profile = costed.profile
    value = profile.graph.value
    inputs = (value[v] for v in profile.graph.inputs)
    lower = profile.convention.get("autocast")
    return {
        "device": "" if costed.device is None else costed.device.name,
        "precision": f"autocast {lower}" if lower else "",
        "run": profile.run.value,
        "mode": profile.mode,
        **{f"input {v.name}": f"{v.name} {units.shape(v.shape)} {v.dtype}" for v in inputs},
        "weights": kept_in(profile.convention)
        or ", ".join(dict.fromkeys(p.dtype for p in profile.graph.parameters)),
        "tracer": profile.tracing.tracer,
    }


def _change_data(change: Change) -> dict[str, Any]:
    def side(module: Any) -> dict[str, Any] | None:
        return None if module is None else {
            "path": module.path, "class": module.cls, "parameters": module.parameters,
            "flops": module.flops, "other_flops": module.cost.other_flops, "bytes": module.bytes,
            **({} if module.seconds is None else {"seconds": module.seconds}),
        }  # fmt: skip

    return {
        "status": change.status,
        "renamed": change.renamed,
        "count": change.count,
        "details": list(change.details),
        "before": side(change.before),
        "after": side(change.after),
    }


def _node_changes(change: Change, times: int = 1) -> Iterator[NodeChange]:
    times *= change.count
    before = change.before.nodes if change.before else ()
    after = change.after.nodes if change.after else ()
    path = change.either.path
    for a, b in by_operator(before, after):
        if a is None or b is None or a.kernels != b.kernels:
            yield NodeChange(path, a, b, times)
    for child in change.children:
        yield from _node_changes(child, times)


# Gates: conditions under which a comparison fails, such as `flops > +2%`.


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_COUNTS = {"k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
_UNITS = {
    "bytes": {
        "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
        "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
    },
    "seconds": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6},
    "share": {},
}  # fmt: skip
"""The units of the kinds of quantities, beside none and %; all other kinds are counts."""
_GATE = re.compile(
    r"\s*(\w+)\s*(>=|<=|==|!=|>|<)\s*([+-]?)\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(%|[^\W\d]*)\s*",
    re.IGNORECASE,
)


class GateError(RenderError):
    """A gate that cannot be read."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition: a quantity, a comparison, and a limit on its value or its change, which is absolute
    or in shares of the first profile's value."""

    text: str
    quantity: Quantity
    sign: str
    limit: float
    change: bool
    relative: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a gate says of one profile (by its position) against the first: the two values, and whether
    it is broken. A value that a profile does not have breaks the gate: it must not pass because nobody
    looked. Of what was measured, `noise` is how far off it may be: a difference within that breaks no
    gate."""

    gate: Gate
    position: int
    before: float | None
    after: float | None
    broken: bool
    noise: float | None = None


def parse_gate(text: str, device: Device | None = None) -> Gate:
    """A gate from its text; on a device it may be on the latency, too. Raises `GateError` saying what is
    wrong with it."""
    found = _GATE.fullmatch(text)
    if found is None:
        raise GateError(f"{text!r} is not a gate: write it like 'flops > +2%'")
    name, sign, direction, number, unit = found.groups()
    known = {q.name: q for q in (*quantities(device), MEASURED)}
    what = known.get(name.lower())
    if what is None:
        hint = did_you_mean(name.lower(), known, 1)
        if name.lower() in {q.name for q in TIMED}:
            hint = "--hardware DEVICE predicts it"
        elif name.lower() in ("time", "seconds"):
            hint = "it is called latency, and --hardware DEVICE predicts it"
        raise GateError(f"{name!r} is no quantity: one of {', '.join(known)}", hint=hint)
    value = float(number) * (-1 if direction == "-" else 1)
    if unit == "%":
        if not direction and what.kind != "share":
            raise GateError(f"{text!r}: percent of what? Write +{number}% for a change")
        share = bool(direction)
        return Gate(text.strip(), what, sign, value / 100, change=share, relative=share)
    limit = value * _factor(unit, what, text)
    return Gate(text.strip(), what, sign, limit, change=bool(direction), relative=False)


def _factor(unit: str, what: Quantity, text: str) -> float:
    """What a unit, in any case, makes of a number. Raises `GateError` for one that the quantity has not."""
    units = _UNITS.get(what.kind, _COUNTS)
    factors = {"": 1.0, **{name.lower(): factor for name, factor in units.items()}}
    if unit.lower() not in factors:
        raise GateError(f"{text!r}: {unit!r} is no unit of {what.name}",
                        hint=f"{what.name} takes {', '.join([*units, '%'])}, or none")  # fmt: skip
    return factors[unit.lower()]


def judge(gates: Sequence[Gate], models: Sequence[CostedRecord]) -> tuple[Verdict, ...]:
    """The verdict of every gate on every profile after the first, against the first."""
    first = models[0]
    return tuple(
        _verdict(gate, position, first, model)
        for gate in gates
        for position, model in enumerate(models[1:], start=1)
    )


def _noise(gate: Gate, first: CostedRecord, model: CostedRecord) -> float | None:
    """How far off what a gate looks at may be, in seconds; None where that is no measurement."""
    if gate.quantity is not MEASURED:
        return None
    runs = [m.profile.measured for m in (first, model)[0 if gate.change else 1 :]]
    return hypot(*(run.uncertainty * run.seconds for run in runs if run is not None))


def _verdict(gate: Gate, position: int, first: CostedRecord, model: CostedRecord) -> Verdict:
    before, after = gate.quantity.of(first), gate.quantity.of(model)
    if after is None or (gate.change and before is None):
        return Verdict(gate, position, before, after, broken=True)
    measured = after - (before or 0.0) if gate.change else after
    # Against the limit times the first value, not a quotient: it may be zero, and integers stay exact.
    limit = gate.limit * (before or 0.0) if gate.relative else gate.limit
    broken, noise = _COMPARE[gate.sign](measured, limit), _noise(gate, first, model)
    if broken and noise:
        broken = abs(measured if gate.change else measured - limit) > noise
    return Verdict(gate, position, before, after, broken, noise)
