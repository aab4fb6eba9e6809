"""Symbolic tracing: the same nodes as a plain run, wherever it gets through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import opgraph
from opgraph import Profile


def facts(profile: Profile) -> Iterator[tuple[object, ...]]:
    """What must not depend on the tracer. (`x += y` is `x + y` to symbolic tracing: the kernels differ by
    name, and not in cost.)"""
    for n in profile.nodes:
        yield n.name, n.op, n.scope, n.parameters, n.flops, n.other_flops, n.bytes, n.file, n.line


def test_resnet18_is_the_same_node_by_node(resnet18: Profile) -> None:
    traced = opgraph.profile("resnet18", tracer="fx")
    assert len(traced.nodes) == len(resnet18.nodes) == 71
    assert list(facts(traced)) == list(facts(resnet18))
    for found, expected in zip(traced.by_module(), resnet18.by_module(), strict=True):
        assert (found.path, found.cls, found.calls) == (expected.path, expected.cls, expected.calls)
        assert (found.cost, found.output) == (expected.cost, expected.output)


def test_a_leaf_module_is_one_node() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    graph = opgraph.profile(nn.Sequential(layer), torch.zeros(1, 4, 16), tracer="fx").graph
    plain = opgraph.profile(nn.Sequential(layer), torch.zeros(1, 4, 16)).graph
    (node,) = (n for n in graph.nodes if n.kind == "call")
    assert (node.op, node.scope, node.name) == ("transformer_encoder_layer", "0", "0")
    assert node.flops == sum(n.flops for n in plain.nodes) > 0
    assert len(node.kernels) == sum(len(n.kernels) for n in plain.nodes)
    assert node.inputs[0] == graph.inputs[0]
    assert node.outputs == graph.outputs


class Switch(nn.Module):
    def forward(self, x: torch.Tensor, negative: bool = False) -> torch.Tensor:
        return -x if negative else x.relu()


def test_what_holds_no_tensor_is_taken_as_it_is() -> None:
    plain = opgraph.profile(Switch(), (torch.ones(2), True), tracer="fx")
    assert [n.op for n in plain.nodes if n.kind == "call"] == ["neg"]
    assert [n.op for n in plain.nodes if n.kind == "control"] == ["assert"]


def test_what_it_cannot_follow_it_says_in_one_line() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(
        opgraph.TraceError, match="cannot be traced: fx on fake tensors: TraceError"
    ):
        opgraph.profile(Branch(), torch.ones(2), tracer="fx")
