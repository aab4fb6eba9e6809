"""What a rank exchanges with others in a run, by kind, group and phase."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from opgraph.analysis.timing.collectives import ring
from opgraph.record.graph import Graph
from opgraph.record.kinds import CollectiveKind


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The collectives of one kind in one group and phase: how often, the bytes of their buffers, and those
    that a rank sends for them over a ring."""

    phase: str
    kind: CollectiveKind
    ranks: int
    group: str
    times: int
    bytes: int
    sent: int

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return asdict(self)


def exchanges(graph: Graph) -> tuple[Exchanged, ...]:
    """The collectives of a graph, in the order in which their kinds first occur."""
    times: Counter[tuple[str, CollectiveKind, int, str]] = Counter()
    size: Counter[tuple[str, CollectiveKind, int, str]] = Counter()
    sent: Counter[tuple[str, CollectiveKind, int, str]] = Counter()
    for node in graph.nodes:
        for kernel in node.kernels:
            each = kernel.collective
            if each is not None:
                key = (node.phase, each.kind, each.ranks, each.group)
                times[key] += 1
                size[key] += each.bytes
                sent[key] += ring(each)
    return tuple(Exchanged(*key, n, size[key], sent[key]) for key, n in times.items())
