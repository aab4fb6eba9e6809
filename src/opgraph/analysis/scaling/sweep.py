"""A model at many sizes: a point each, with its figures, and where the bottleneck moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opgraph.analysis.cost.bottleneck import GENERIC_RIDGE
from opgraph.analysis.quantities import quantities
from opgraph.record import units

if TYPE_CHECKING:
    from opgraph.hardware import Device
    from opgraph.record.formulas import Formulas
    from opgraph.record.profile import Profile

Size = int | str | tuple[int, int]
"""A size (height and width of an image that is not square), or the name of a dtype."""


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One choice of sizes (by option: `{"batch_size": 4, "seq_len": 512}`) and the figures there, by
    quantity; `error` says why there are none.

    `compute_share` is the part of a roofline's time that goes to compute-bound nodes: at a ridge of r
    FLOPs/byte a node takes max(FLOPs / r, bytes).
    """

    sizes: Mapping[str, Size]
    values: Mapping[str, float | None]
    compute_share: float | None = None
    error: str | None = None

    @property
    def bottleneck(self) -> str | None:
        """What most of the time goes to: "compute-bound" or "memory-bound"."""
        if self.compute_share is None:
            return None
        return "compute-bound" if self.compute_share > 0.5 else "memory-bound"


@dataclass(frozen=True)
class Sweep:
    """A model swept over `axes` (values by option). `profile` is the model at its usual sizes, with
    formulas where they were asked for."""

    model: str
    axes: Mapping[str, tuple[Size, ...]]
    points: tuple[SweepPoint, ...]
    ridge: float = GENERIC_RIDGE
    profile: Profile | None = None
    device: Device | None = None

    @property
    def formulas(self) -> Formulas | None:
        return None if self.profile is None else self.profile.formulas

    @property
    def crossings(self) -> tuple[tuple[str, SweepPoint, SweepPoint], ...]:
        """Where the bottleneck moves: an option, and two points that are neighbours along it, all other
        sizes equal, of which one is bound by memory and the other by compute."""
        by_sizes = {tuple(p.sizes.items()): p for p in self.points}
        found = []
        for option, values in self.axes.items():
            for point in self.points:
                position = values.index(point.sizes[option])
                if position + 1 == len(values):
                    continue
                sizes = {**point.sizes, option: values[position + 1]}
                other = by_sizes.get(tuple(sizes.items()))
                if other and {point.bottleneck, other.bottleneck} == {
                    "compute-bound",
                    "memory-bound",
                }:
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
            "ridge": self.ridge,
            "device": None if self.device is None else self.device.id,
            "points": self.records(),
            "formulas": None if self.formulas is None else self.formulas.to_dict(),
        }

    def __str__(self) -> str:
        from opgraph.views.text.sweep import sweep_text

        return sweep_text(self)


def point_of(
    profile: Profile,
    sizes: Mapping[str, Size],
    ridge: float = GENERIC_RIDGE,
    device: Device | None = None,
) -> SweepPoint:
    """The figures of a profile as a point of a sweep, with a device its predicted time, too."""
    failed = profile.graph.failed
    if failed is not None:
        return SweepPoint(sizes, {}, error=f"node {failed.id} ({failed.name}): {failed.error}")
    return SweepPoint(
        sizes, {q.name: q.of(profile) for q in quantities(device)}, compute_share(profile, ridge)
    )


def compute_share(profile: Profile, ridge: float) -> float | None:
    """The part of a roofline's time that goes to nodes above the ridge point; None where nothing runs."""
    bound = total = 0.0
    for node in profile.nodes:
        flops = node.flops + node.other_flops
        time = max(flops / ridge, node.bytes)
        total += time
        if flops > ridge * node.bytes:
            bound += time
    return bound / total if total else None
