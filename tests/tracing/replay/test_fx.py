"""Symbolic tracing: the same nodes as a plain run, wherever it gets through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import opgraph
from opgraph import Profile


def facts(profile: Profile) -> Iterator[tuple[object, ...]]:
    """What must not depend on the tracer. (`x += y` is `x + y` to symbolic tracing: the kernels differ by
    name, and not in cost.)"""
    for n in profile.graph.nodes:
        yield n.name, n.op, n.scope, n.parameters, n.flops, n.other_flops, n.bytes, n.file, n.line


@pytest.mark.slow
def test_resnet18_is_the_same_node_by_node(resnet18: Profile) -> None:
    traced = opgraph.profile("resnet18", tracer="fx")
    assert len(traced.graph.nodes) == len(resnet18.graph.nodes) == 71
    assert list(facts(traced)) == list(facts(resnet18))
    for found, expected in zip(
        traced.by_module().values(), resnet18.by_module().values(), strict=True
    ):
        assert (found.name, found.class_name, found.count) == (
            expected.name,
            expected.class_name,
            expected.count,
        )
        assert found.cost == expected.cost


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


@pytest.mark.parametrize(
    ("args", "concrete", "op"),
    [
        ((torch.ones(2),), {}, "relu"),
        ((torch.ones(2), True), {}, "neg"),
        ((torch.ones(2),), {"negative": True}, "neg"),
        ((torch.ones(2), True), {"negative": False}, "relu"),
    ],
)
def test_what_holds_no_tensor_is_taken_as_it_is(
    args: tuple[object, ...], concrete: dict[str, object], op: str
) -> None:
    found = opgraph.profile(Switch(), args, tracer="fx", concrete_args=concrete)
    assert [n.op for n in found.graph.nodes] == ["input", op, "output"]


def test_a_concrete_argument_must_be_one_of_forward() -> None:
    with pytest.raises(opgraph.InputError, match="no argument 'positive'") as raised:
        opgraph.profile(Switch(), torch.ones(2), tracer="fx", concrete_args={"positive": 1})
    assert raised.value.hint == "it has x, negative"


class Decorated(nn.Module):
    @torch.no_grad()
    def forward(self, x: torch.Tensor, *more: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return torch.cat([x, *more]) * scale


def test_a_decorated_forward_of_any_number_of_arguments_is_followed() -> None:
    x = torch.ones(2)
    found = opgraph.profile(Decorated(), (x, x + 1, x + 2), {"scale": 3.0}, tracer="fx")
    assert list(facts(found)) == list(
        facts(opgraph.profile(Decorated(), (x, x + 1, x + 2), {"scale": 3.0}))
    )
    assert [n.op for n in found.graph.nodes if n.kind == "call"] == ["cat", "mul"]


def branches(x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > 0 else -x


def counts(x: torch.Tensor) -> torch.Tensor:
    return x[: len(x)]


def unpacks(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([*x])


def writes(x: torch.Tensor) -> torch.Tensor:
    x[0] = 1
    return x


def slices(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(2)[: x.shape[0]]


def raises(x: torch.Tensor) -> torch.Tensor:
    raise KeyError("mine")


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (branches, "the forward branches on a tensor or on its sizes"),
        (counts, "the forward asks for the length of a tensor or of its sizes"),
        (unpacks, "the forward goes through a tensor or its sizes one by one"),
        (writes, "the forward writes into a part of a tensor"),
        (slices, "the forward needs a size as a number"),
        (raises, "KeyError: 'mine'"),
    ],
)
def test_what_it_cannot_follow_it_says_in_one_line_with_the_place(
    forward: Callable[[torch.Tensor], torch.Tensor], words: str
) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return forward(x)

    place = f"{Path(__file__).name}:{forward.__code__.co_firstlineno + 1}"
    with pytest.raises(opgraph.TraceError) as raised:
        opgraph.profile(Model(), torch.ones(2), tracer="fx")
    assert words in str(raised.value)
    assert place in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "--tracer auto" in (raised.value.hint or "")


class Counting(nn.Module):
    """Writes into its buffers, by a method and by a new value, and reads them again."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        self.mean += x.mean(0)
        self.mean.mul_(0.9)
        return x + self.mean


def test_what_is_written_into_buffers_is_seen_and_taken_back() -> None:
    model, x = Counting(), torch.randn(2, 3)
    plain, traced = (opgraph.profile(model, x, tracer=t) for t in ("eager", "fx"))
    assert [n.op for n in traced.graph.nodes] == [n.op for n in plain.nodes]
    assert [n.kind for n in traced.graph.nodes] == [n.kind for n in plain.nodes]
    assert traced.totals.other_flops == plain.totals.other_flops
    assert model.seen.item() == 0
    assert type(model.mean) is torch.Tensor
    assert not model.mean.any()
