"""Nodes of two graphs, paired."""

from __future__ import annotations

from collections.abc import Callable

import opgraph
from opgraph import Profile
from opgraph.analysis.pairing import pair_nodes


def test_a_graph_is_paired_with_itself(saved: Callable[[str], Profile]) -> None:
    graph = saved("bert-base-uncased").graph
    pairing = pair_nodes(graph, graph)
    assert pairing.before == tuple(n.id for n in graph.nodes)
    assert pairing.removed == ()


def test_every_node_is_paired_added_or_removed(resnet18: Profile) -> None:
    larger = opgraph.profile("resnet34")
    for before, after in ((resnet18.graph, larger.graph), (larger.graph, resnet18.graph)):
        pairing = pair_nodes(before, after)
        paired = [number for number in pairing.before if number]
        gone = [number for number, _ in pairing.removed]
        assert sorted(paired + gone) == [n.id for n in before.nodes]
        assert all(path in after.scope for _, path in pairing.removed)
        for node, number in zip(after.nodes, pairing.before, strict=True):
            assert number == 0 or before.node(number).op == node.op
