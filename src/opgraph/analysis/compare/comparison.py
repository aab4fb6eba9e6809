"""Profiles beside each other: totals, and what changed.

By module, by operator or by node, from the first to each other one. Works on saved profiles; nothing
here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import TYPE_CHECKING, Any

from opgraph.analysis.compare.alignment import Change, align, folded
from opgraph.analysis.compare.gates import Verdict, judge, parse_gate
from opgraph.analysis.cost.totals import Cost, OperatorCost
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.quantities import MEASURED, Quantity, quantities
from opgraph.record import units
from opgraph.record.errors import InputError, RenderError

if TYPE_CHECKING:
    from opgraph.hardware import Device
    from opgraph.record.graph import Node

__all__ = ["ComparisonRecord", "NodeChange", "OperatorChange", "compared"]


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """An operator before and after; None where there was or is none."""

    op: str
    before: OperatorCost | None
    after: OperatorCost | None

    @property
    def difference(self) -> tuple[int, int, int]:
        """FLOPs, bytes and nodes that it takes more than before."""
        a, b = self.before, self.after
        zero = OperatorCost(self.op, 0, Cost())
        a, b = a or zero, b or zero
        return b.flops - a.flops, b.bytes - a.bytes, b.count - a.count

    @property
    def same(self) -> bool:
        return self.before is not None and self.after is not None and (
            self.before.cost == self.after.cost and self.before.count == self.after.count
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
            folded(align(first.graph, other.graph), first.tree, other.tree) for other in others
        )

    @property
    def broken(self) -> tuple[Verdict, ...]:
        """The gates that do not hold."""
        return tuple(v for v in self.verdicts if v.broken)

    def operators(self, other: int = 1) -> tuple[OperatorChange, ...]:
        """Operators of the first and of another profile, the largest difference first."""
        before, after = ({c.op: c for c in self.models[i].operators} for i in (0, other))
        changes = [
            OperatorChange(op, before.get(op), after.get(op))
            for op in dict.fromkeys((*before, *after))
        ]
        return tuple(sorted(changes, key=lambda c: [-abs(d) for d in c.difference]))

    def nodes(self, other: int = 1) -> tuple[NodeChange, ...]:
        """The nodes that differ, module by module; those of folded modules once."""
        return tuple(_node_changes(self.changes[other - 1]))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data: totals, changes by module, and gates."""
        return {
            "profiles": list(self.labels),
            "totals": {q.name: [q.of(m) for m in self.models] for q in self.quantities},
            "changes": [
                [_change_data(c) for c in change.walk() if c.status != "same"]
                for change in self.changes
            ],
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
        "mode": profile.mode,
        **{f"input {v.name}": f"{v.name} {units.shape(v.shape)} {v.dtype}" for v in inputs},
        "weights": ", ".join(dict.fromkeys(p.dtype for p in profile.graph.parameters)),
        "tracer": profile.tracing.tracer,
    }


def _change_data(change: Change) -> dict[str, Any]:
    def side(module: Any) -> dict[str, Any] | None:
        return None if module is None else {
            "path": module.path, "class": module.cls, "parameters": module.parameters,
            "flops": module.flops, "other_flops": module.cost.other_flops, "bytes": module.bytes,
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
    matcher = SequenceMatcher(None, [n.op for n in before], [n.op for n in after], autojunk=False)
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        if kind == "equal":
            pairs = zip(before[i1:i2], after[j1:j2], strict=True)
            yield from (NodeChange(path, a, b, times) for a, b in pairs if a.kernels != b.kernels)
        else:
            yield from (NodeChange(path, a, None, times) for a in before[i1:i2])
            yield from (NodeChange(path, None, b, times) for b in after[j1:j2])
    for child in change.children:
        yield from _node_changes(child, times)
