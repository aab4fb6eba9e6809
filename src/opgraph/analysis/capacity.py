"""Does it fit? Weights and the peak of live memory against a device's capacity."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from opgraph.analysis.memory import memory
from opgraph.graph import Graph
from opgraph.hardware import Device


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes that a run needs, and the bytes there are. The runtime's own needs (context, libraries,
    fragmentation) come on top."""

    weights: int
    peak: int
    capacity: float

    @property
    def needed(self) -> int:
        return self.weights + self.peak

    @property
    def fits(self) -> bool:
        return self.needed <= self.capacity

    @property
    def devices(self) -> int:
        """The fewest such devices that hold the weights, evenly split, and the whole peak each; 0 where
        the peak alone does not fit."""
        room = self.capacity - self.peak
        return ceil(self.weights / room) if room > 0 and self.weights else int(room > 0)


def fit(graph: Graph, device: Device) -> Fit:
    """Weights and buffers, each once however many names it has, plus the peak of live memory."""
    return Fit(sum(p.bytes for p in graph.parameters), memory(graph).peak, device.capacity)
