"""Two partitions of the same nodes against each other: how far do they put together the same?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb

from opgraph.analysis.fusion.grouping import role_of
from opgraph.analysis.fusion.partition import Subgraph
from opgraph.record.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class PartitionAgreement:
    """`nodes` that do work, in how many subgraphs of each partition they are, and the adjusted Rand index
    of the two. Of the `edges` between them (over views), how many are inside of a subgraph in `both`
    partitions, and in one of them only; all others are in neither."""

    nodes: int
    subgraphs: tuple[int, int]
    rand: float
    edges: int
    both: int
    first_only: int
    second_only: int

    @property
    def agreeing(self) -> float:
        """The share of edges that both partitions treat alike."""
        return 1 - (self.first_only + self.second_only) / self.edges if self.edges else 1.0


def partition_agreement(
    graph: Graph, first: Sequence[Subgraph], second: Sequence[Subgraph]
) -> PartitionAgreement:
    """Compare two partitions on the nodes that do work."""
    working = {n.id for n in graph.nodes if role_of(n) not in ("boundary", "view")}
    one, two = ({i: p.id for p in parts for i in p.nodes} for parts in (first, second))
    edges = [(a, b) for b in working for a in set(_sources(graph, graph.node(b))) & working]
    fused = Counter((one[a] == one[b], two[a] == two[b]) for a, b in edges)
    return PartitionAgreement(
        nodes=len(working),
        subgraphs=(len({one[i] for i in working}), len({two[i] for i in working})),
        rand=adjusted_rand([(one[i], two[i]) for i in sorted(working)]),
        edges=len(edges),
        both=fused[True, True],
        first_only=fused[True, False],
        second_only=fused[False, True],
    )


def adjusted_rand(labels: Sequence[tuple[int, int]]) -> float:
    """The adjusted Rand index of two labellings: 1 where they are the same, 0 where they agree as far as
    chance does (Hubert and Arabie: "Comparing partitions", Journal of Classification 2, 1985)."""
    together = sum(comb(n, 2) for n in Counter(labels).values())
    one, two = (
        sum(comb(n, 2) for n in Counter(label[i] for label in labels).values()) for i in (0, 1)
    )
    pairs = comb(len(labels), 2)
    expected = one * two / pairs if pairs else 0.0
    most = (one + two) / 2
    return (together - expected) / (most - expected) if most != expected else 1.0


def _sources(graph: Graph, node: Node) -> Iterator[int]:
    """The nodes that made what a node reads; behind a view, those that made what it shows."""
    for value in node.inputs:
        producer = graph.producer.get(value)
        if producer is not None and role_of(producer) == "view":
            yield from _sources(graph, producer)
        elif producer is not None:
            yield producer.id
