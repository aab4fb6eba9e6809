"""What bounds a piece of work: its arithmetic intensity against a ridge point (FLOPs per byte at which a
machine's arithmetic and its memory take equally long)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from opgraph.analysis.cost.totals import Cost, cost_of
from opgraph.record.graph import Node

Bottleneck = Literal["compute-bound", "balanced", "memory-bound"]
BOTTLENECKS: tuple[Bottleneck, ...] = ("compute-bound", "balanced", "memory-bound")

GENERIC_RIDGE = 10.0
"""FLOPs per byte, where no device is named."""


def classify(intensity: float | None, ridge: float = GENERIC_RIDGE) -> Bottleneck | None:
    """Compute-bound above twice the ridge point, memory-bound below half of it, balanced between; None
    where nothing is moved."""
    if intensity is None:
        return None
    if intensity > 2 * ridge:
        return "compute-bound"
    return "memory-bound" if intensity < ridge / 2 else "balanced"


@dataclass(frozen=True, slots=True)
class BottleneckShare:
    """How many nodes are bound so, and what they cost together."""

    bottleneck: Bottleneck
    nodes: int
    cost: Cost

    @property
    def flops(self) -> int:
        """FLOPs of all kinds."""
        return self.cost.flops + self.cost.other_flops

    @property
    def bytes(self) -> int:
        return self.cost.bytes


def bottlenecks(
    nodes: Iterable[Node], ridge: float = GENERIC_RIDGE
) -> tuple[BottleneckShare, BottleneckShare, BottleneckShare]:
    """Nodes that move data, by what bounds them; nodes that only view are left out."""
    groups: dict[Bottleneck, list[Node]] = {b: [] for b in BOTTLENECKS}
    for node in nodes:
        bound = classify(node.arithmetic_intensity, ridge)
        if bound is not None:
            groups[bound].append(node)
    first, second, third = (BottleneckShare(b, len(g), cost_of(g)) for b, g in groups.items())
    return first, second, third
