"""Who reads what: edges between nodes, also where only some of the nodes are listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from opgraph.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class Edge:
    """A listed node reads what `source` made: itself, or by way of nodes that are not listed."""

    source: int
    direct: bool = True


def sources(graph: Graph, node: Node) -> tuple[int, ...]:
    """The ids of the nodes whose results a node reads, in the order of its inputs."""
    producer = graph.producer
    return tuple(dict.fromkeys(producer[v].id for v in node.inputs if v in producer))


def edges(graph: Graph, listed: Iterable[int]) -> dict[int, tuple[Edge, ...]]:
    """The edges into each listed node, by its id, from listed nodes.

    Where nodes in between are not listed, what they pass on counts as read from the listed nodes
    behind them; such indirect edges are kept only where no longer way over listed nodes says the same
    (the transitive reduction), so that a residual stream is one line and not a hundred.
    """
    wanted = sorted(set(listed))
    if not wanted:
        return {}
    position = {node: bit for bit, node in enumerate(wanted)}
    behind: dict[int, int] = {}  # of listed nodes: all listed nodes before them, as bits
    passed: dict[int, int] = {}  # of hidden nodes: the listed nodes whose results they carry
    found: dict[int, tuple[Edge, ...]] = {}
    for node in graph.nodes[wanted[0] - 1 : wanted[-1]]:
        direct = indirect = 0
        for source in sources(graph, node):
            if source in position:
                direct |= 1 << position[source]
            else:
                indirect |= passed.get(source, 0)
        if node.id not in position:
            passed[node.id] = direct | indirect
            continue
        indirect = _reduced(indirect & ~direct, direct, wanted, behind)
        for bit in _bits(direct | indirect):
            behind[node.id] = behind.get(node.id, 0) | behind.get(wanted[bit], 0) | 1 << bit
        found[node.id] = tuple(
            Edge(wanted[bit], bool(direct >> bit & 1)) for bit in _bits(direct | indirect)
        )
    return found


def _reduced(candidates: int, direct: int, wanted: list[int], behind: dict[int, int]) -> int:
    """The candidates that are not behind another one, or behind a direct source."""
    covered = 0
    for bit in _bits(direct):
        covered |= behind.get(wanted[bit], 0)
    kept = 0
    for bit in reversed(list(_bits(candidates))):
        if not covered >> bit & 1:
            kept |= 1 << bit
            covered |= behind.get(wanted[bit], 0)
    return kept


def _bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low
