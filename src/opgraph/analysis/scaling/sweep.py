"""A model at many sizes: a point each, with its figures, and where the bottleneck moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opgraph.analysis.cost.totals import GENERIC_RIDGE
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.quantities import quantities
from opgraph.record import units
from opgraph.record.kinds import Bound

if TYPE_CHECKING:
    from opgraph.hardware import Device
    from opgraph.record.formulas import Formulas
    from opgraph.record.profile import ProfileRecord
from opgraph.record.remarks import Remark, idle

Size = int | str | tuple[int, int]
"""A size (height and width of an image that is not square), or the name of a dtype."""


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One choice of sizes (by option: `{"batch_size": 4, "seq_len": 512}`) and the figures there, by
    quantity; `error` says why there are none.

    `bounds` are the shares of what the run waits for, and `bottleneck` is what the whole waits for, as
    `CostedRecord.waits` and `bound` have them (None where nothing runs).
    """

    sizes: Mapping[str, Size]
    values: Mapping[str, float | None]
    bounds: Mapping[Bound, float] = field(default_factory=dict)
    bottleneck: Bound | None = None
    error: str | None = None
    ridge: float = GENERIC_RIDGE

    @property
    def compute_share(self) -> float | None:
        """The share that is bound by compute, of the time on a device, of the bytes without one; None where
        nothing runs."""
        return self.bounds.get(Bound.COMPUTE, 0.0) if self.bounds else None


@dataclass(frozen=True)
class SweepRecord:
    """A model swept over `axes` (values by option). `profile` is the model at its usual sizes, with
    formulas where they were asked for; `remarks` are those on any point, each once, and `costing` how it is
    run and what it is kept in, where that was asked."""

    model: str
    axes: Mapping[str, tuple[Size, ...]]
    points: tuple[SweepPoint, ...]
    profile: ProfileRecord | None = None
    device: Device | None = None
    remarks: tuple[Remark, ...] = ()
    costing: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The model, and what was asked of all points."""
        more = (f"{n.replace('_', ' ')} {v}" for n, v in self.costing.items())
        return ", ".join((self.model, *more))

    @property
    def ridges(self) -> tuple[float, ...]:
        """The ridge points in FLOPs/byte, a device's being those of its dtypes; in their order."""
        return tuple(sorted({p.ridge for p in self.points if p.error is None}))

    @property
    def formulas(self) -> Formulas | None:
        return None if self.profile is None else self.profile.formulas

    @property
    def crossings(self) -> tuple[tuple[str, SweepPoint, SweepPoint], ...]:
        """Where the bottleneck moves: an option, and two points that are neighbours along it, all other
        sizes equal, that wait for different things."""
        by_sizes = {tuple(p.sizes.items()): p for p in self.points}
        found = []
        for option, values in self.axes.items():
            for point in self.points:
                position = values.index(point.sizes[option])
                if position + 1 == len(values):
                    continue
                sizes = {**point.sizes, option: values[position + 1]}
                other = by_sizes.get(tuple(sizes.items()))
                if other and point.bottleneck and other.bottleneck not in (None, point.bottleneck):
                    found.append((option, point, other))
        return tuple(found)

    def records(self) -> list[dict[str, float | str | None]]:
        """One flat record a point, for tables and files."""
        return [
            {
                **{o: units.shape(s) if isinstance(s, tuple) else s for o, s in p.sizes.items()},
                **{q.name: p.values.get(q.name) for q in quantities(self.device)},
                "compute_share": p.compute_share,
                "bottleneck": p.bottleneck,
                "error": p.error,
            }
            for p in self.points
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "model": self.model,
            "axes": {option: list(values) for option, values in self.axes.items()},
            "ridges": list(self.ridges),
            "device": None if self.device is None else self.device.id,
            "notes": list(idle(self.remarks)),
            "remarks": [r.to_dict() for r in self.remarks],
            **({"costing": dict(self.costing)} if self.costing else {}),
            "points": self.records(),
            "formulas": None if self.formulas is None else self.formulas.to_dict(),
        }


def point_of(costed: CostedRecord, sizes: Mapping[str, Size]) -> SweepPoint:
    """The figures of a model as a point of a sweep, on a device its predicted time, too."""
    failed = costed.graph.failed
    if failed is not None:
        return SweepPoint(sizes, {}, error=f"node {failed.id} ({failed.name}): {failed.error}")
    values = {q.name: q.of(costed) for q in quantities(costed.device)}
    return SweepPoint(sizes, values, costed.waits, costed.bound, ridge=costed.ridge)
