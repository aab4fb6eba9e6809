"""Nodes of two graphs, paired."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import opgraph
from opgraph import Profile
from opgraph.analysis.compare.pairing import pair_nodes
from opgraph.record.graph import Graph


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
        gone = [r.id for r in pairing.removed]
        assert sorted(paired + gone) == [n.id for n in before.nodes]
        for node, number in zip(after.nodes, pairing.before, strict=True):
            assert number == 0 or before.node(number).op == node.op


def test_what_is_gone_has_a_place_in_its_module(resnet18: Profile) -> None:
    larger = opgraph.profile("resnet34").graph
    removed = pair_nodes(larger, resnet18.graph).removed
    nodes = resnet18.graph.nodes
    for r in removed:
        module = r.scope.partition(".")[0]
        # All of a layer's blocks that are gone stood behind those that are left.
        assert nodes[r.at - 2].scope.startswith(module)
        assert not nodes[r.at - 1].scope.startswith(module)
        assert larger.node(r.id).scope == r.scope


class Inner(nn.Module):
    def __init__(self, *, wide: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.wide = wide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        return x.tanh() if self.wide else x


class Outer(nn.Module):
    def __init__(self, *, wide: bool, last: bool, name: str) -> None:
        super().__init__()
        self.add_module(name, Inner(wide=wide))
        self.name, self.last = name, last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = getattr(self, self.name)(x)
        return x.relu() if self.last else x


def test_a_place_is_never_inside_of_a_module_that_is_not_around_it() -> None:
    def graph(*, wide: bool, last: bool, name: str = "inner") -> Graph:
        model = Outer(wide=wide, last=last, name=name)
        return opgraph.profile(model, inputs=(torch.zeros(1, 4),)).graph

    # The relu was right behind the linear; a tanh of the inner module now comes first.
    before, after = graph(wide=False, last=True), graph(wide=True, last=False)
    [relu] = pair_nodes(before, after).removed
    assert (before.node(relu.id).op, relu.scope) == ("relu", "")
    assert after.node(relu.at - 1).op == "tanh"
    # What is gone from a module with another name stands under that name.
    before, after = graph(wide=True, last=False, name="old"), graph(wide=False, last=False)
    [tanh] = pair_nodes(before, after).removed
    assert (before.node(tanh.id).scope, tanh.scope) == ("old", "inner")
    assert after.node(tanh.at - 1).op == "linear"


def test_a_place_is_at_the_call_that_it_was_at(saved: Callable[[str], Profile]) -> None:
    before, after = saved("resnet18").graph, saved("resnet18-changed").graph
    removed = pair_nodes(before, after).removed
    assert [before.node(r.id).op for r in removed] == ["relu", "relu"]
    assert [after.node(r.at).op for r in removed] == ["silu", "silu"]
    assert removed[0].at < removed[1].at
