"""Fragments: one of them is a graph of its own, and together they are the whole."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import opgraph
from opgraph import Profile, RenderError
from opgraph.analysis.cost.fragments import dominant, fragments, outside, select_fragment


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Linear(8, 8)
        self.large = nn.Linear(8, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.small(x)
        torch._dynamo.graph_break()
        y = self.large(y).relu_()
        torch._dynamo.graph_break()
        return y.sum() + x.sum()


@pytest.fixture(scope="module")
def broken() -> Profile:
    return opgraph.profile(Broken(), torch.ones(2, 8), tracer="dynamo")


@pytest.mark.slow
def test_fragments_add_up(broken: Profile) -> None:
    pieces = (*fragments(broken.graph), outside(broken.graph))
    assert [p.number for p in pieces] == [1, 2, 3, 0]
    total = pieces[0].cost
    for piece in pieces[1:]:
        total += piece.cost
    assert total == broken.totals.cost
    assert [p.end for p in pieces] == [*broken.graph.breaks, None, None]
    assert (largest := dominant(broken.graph)) is not None
    assert largest.number == 2


@pytest.mark.slow
def test_one_fragment_is_a_graph_of_its_own(broken: Profile) -> None:
    graph = select_fragment(broken.graph, "largest")
    assert [n.op for n in graph.nodes] == ["input", "linear", "relu", "output"]
    assert [n.id for n in graph.nodes] == [1, 2, 3, 4]
    assert [graph.value[v].name for v in graph.inputs] == ["small"]
    assert graph.value[graph.outputs[0]].shape == (2, 64)
    assert [p.name for p in graph.parameters] == ["large.weight", "large.bias"]
    assert [s.path for s in graph.scopes] == ["", "large"]
    kernels = sum(len(n.kernels) for n in graph.nodes)
    assert all(s.born <= kernels and (s.died is None or s.died <= kernels) for s in graph.storages)


@pytest.mark.slow
def test_an_input_that_is_read_later_comes_in_later(broken: Profile) -> None:
    graph = select_fragment(broken.graph, 3)
    assert {graph.value[v].name for v in graph.inputs} == {"relu", "x"}


@pytest.mark.slow
def test_all_is_the_graph_and_one_piece_is_the_largest(broken: Profile, resnet18: Profile) -> None:
    assert select_fragment(broken.graph, "all") is broken.graph
    assert select_fragment(resnet18.graph, "largest") is resnet18.graph
    assert fragments(resnet18.graph) == ()
    assert dominant(resnet18.graph) is None


@pytest.mark.parametrize("which", ["9", 0, "first"])
def test_a_fragment_that_is_not_there_is_refused(broken: Profile, which: str | int) -> None:
    with pytest.raises(RenderError, match="fragment"):
        select_fragment(broken.graph, which)
