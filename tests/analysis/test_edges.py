"""Edges between listed nodes, also through nodes that are not."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from opgraph import Profile
from opgraph.analysis.selection import Edge, edges
from opgraph.record.graph import Graph, Node, Scope, Value

Saved = Callable[[str], Profile]


def test_the_residual_of_a_block_is_an_edge(saved: Saved) -> None:
    graph = saved("bert-base-uncased").graph
    found = edges(graph, range(10, 40))
    assert found[32] == (Edge(11), Edge(31))
    assert all(edge.direct for into in found.values() for edge in into)


def test_hidden_nodes_pass_on_what_they_carry(saved: Saved) -> None:
    graph = saved("bert-base-uncased").graph
    linear = [n.id for n in graph.nodes if n.op == "linear"]
    found = edges(graph, linear)
    assert found[30] == (Edge(15, False), Edge(18, False), Edge(21, False))
    assert found[40] == (Edge(36, False),), "what reaches 40 only by way of 36 is said once"


def dag(choices: list[list[int]]) -> Graph:
    """A graph in which node i reads the results of some nodes before it."""
    nodes = tuple(
        Node(i + 1, "call", "add", f"add_{i}", inputs=tuple(sorted({c % i for c in chosen} if i else ())),
             outputs=(i,))
        for i, chosen in enumerate(choices)
    )  # fmt: skip
    return Graph(
        nodes, tuple(Value(i, (1,), "float32", 4) for i in range(len(nodes))), (Scope("", "M"),)
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), max_size=3), max_size=14), st.data())
def test_listed_nodes_reach_each_other_as_in_the_whole_graph(
    choices: list[list[int]], data: st.DataObject
) -> None:
    graph = dag(choices)
    listed = [n.id for n in graph.nodes if data.draw(st.booleans())]
    found = edges(graph, listed)
    whole: dict[int, set[int]] = {}
    for node in graph.nodes:
        whole[node.id] = {s for d in graph.reads(node) for s in (d, *whole[d])}
    part: dict[int, set[int]] = {}
    for node in listed:
        part[node] = {s for e in found[node] for s in (e.source, *part[e.source])}
        assert part[node] == whole[node] & set(listed)
        direct = {e.source for e in found[node] if e.direct}
        assert direct == set(graph.reads(graph.node(node))) & set(listed)
