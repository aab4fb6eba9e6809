"""What bounds a piece of work without a device: its arithmetic intensity against a ridge point (FLOPs per
byte at which a machine's arithmetic and its memory take equally long)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opgraph.analysis.cost.totals import Cost, WithCost
from opgraph.record.kinds import Bound

GENERIC_RIDGE = 10.0
"""FLOPs per byte, where no device is named."""
BALANCED = 0.5, 2.0
"""The parts of a ridge point between which arithmetic and memory take about equally long."""


def classify(intensity: float | None, ridge: float = GENERIC_RIDGE) -> Bound | None:
    """What bounds work of this intensity: compute above twice the ridge point, memory below half of it.

    Balanced between; None where nothing is moved.
    """
    if intensity is None:
        return None
    low, high = BALANCED
    if intensity > high * ridge:
        return Bound.COMPUTE
    return Bound.MEMORY if intensity < low * ridge else Bound.BALANCED


@dataclass(frozen=True, slots=True)
class BoundShare(WithCost):
    """How many nodes are bound so, what they cost together, and on a device the seconds they take; `share`
    is that of the predicted time there, and of the bytes moved without a device."""

    bound: Bound
    nodes: int
    cost: Cost
    seconds: float | None
    share: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "bound": self.bound.value, "nodes": self.nodes, "flops": self.flops,
            "other_flops": self.cost.other_flops, "bytes": self.bytes,
            "seconds": self.seconds, "share": self.share,
        }  # fmt: skip
