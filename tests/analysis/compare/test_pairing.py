"""Nodes of two graphs, paired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import opgraph
from opgraph import Profile
from opgraph.analysis.compare.pairing import change_of, pair_nodes, unite
from opgraph.record.graph import Graph, Kernel, Node, Value
from opgraph.record.kinds import ChangeKind


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


def test_the_union_has_what_is_gone_between_what_it_read_and_what_read_it(
    saved: Callable[[str], Profile],
) -> None:
    graph = saved("resnet18").graph
    # As if the third node, a batch norm, had been taken out.
    norm = graph.node(3)
    relu = graph.node(4)
    ids = {n.id: n.id - (n.id > 3) for n in graph.nodes}
    nodes = tuple(
        replace(n, id=ids[n.id], inputs=graph.node(2).outputs if n is relu else n.inputs)
        for n in graph.nodes
        if n is not norm
    )
    scopes = tuple(s for s in graph.scopes if s.path != "bn1")
    union = unite(graph, replace(graph, nodes=nodes, scopes=scopes, storages=()))
    assert [n.id for n in union.graph.nodes] == list(range(1, len(graph.nodes) + 1))
    assert union.changes == tuple(
        ChangeKind.REMOVED if i == 2 else ChangeKind.SAME for i in range(len(graph.nodes))
    )
    gone = union.graph.nodes[2]
    assert (gone.name, gone.kernels, union.own[2], union.before[2]) == (norm.name, (), 0, norm)
    assert gone.inputs == graph.node(2).outputs
    # The next node read it: that is its last input, and no longer one of its own.
    assert union.graph.nodes[3].inputs == (*graph.node(2).outputs, *gone.outputs)
    assert union.former == tuple(int(i == 3) for i in range(len(graph.nodes)))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"flops": 2}, ChangeKind.COSTLIER),
        ({"flops": 0, "read": 9}, ChangeKind.CHEAPER),
        ({"read": 5}, ChangeKind.COSTLIER),
        ({"other_flops": 1}, ChangeKind.COSTLIER),
        ({"op": "other"}, ChangeKind.SAME),
    ],
)
def test_a_node_is_costlier_by_flops_and_then_by_bytes(change: Any, kind: ChangeKind) -> None:
    before = Node(1, "call", "linear", "fc", kernels=(Kernel("aten.mm", flops=1, read=4),))
    after = replace(before, kernels=(replace(before.kernels[0], **change),))
    assert change_of(before, after, ({}, {})) is kind


def test_a_node_whose_result_has_another_shape_is_changed() -> None:
    node = Node(1, "call", "view", "view", outputs=(7,))
    values = [{7: Value(7, shape, "float32", 48)} for shape in ((3, 4), (4, 3))]
    assert change_of(node, node, (values[0], values[1])) is ChangeKind.CHANGED
