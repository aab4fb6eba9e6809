"""Weights that something else of the model has, beside the module that they are registered with."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu
from torch.utils.flop_counter import FlopCounterMode

import opgraph


def _closure(weight: Tensor) -> Callable[[], Tensor]:
    return lambda: weight


def _default(weight: Tensor) -> Callable[..., Tensor]:
    def get(found: Tensor = weight) -> Tensor:
        return found

    return get


class Pair(NamedTuple):
    weight: Any
    bias: Any


class Attributed(Pair):
    """A class below one of names has attributes, too."""


def _twice(weight: Tensor) -> dict[str, Any]:
    """Two tuples, each in one that was made before or after the other."""
    one = {"in": (weight,)}
    one["around"] = (one["in"],)
    other = {"around": ((weight,),)}
    other["in"] = other["around"][0]
    return {"one": one, "other": other}


def _in_all(held: dict[str, Any], weight: Tensor) -> Tensor:
    each = [(h["in"][0], h["around"][0][0]) for h in held.values()]
    return weight if all(w is weight for both in each for w in both) else weight + 1


HOLDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Tensor], Tensor]]] = {
    "dictionary": (lambda w: {"w": w}, lambda held, _: held["w"]),
    "key": (lambda w: {w: "name"}, lambda held, w: w if held[w] == "name" else w + 1),
    "set": (lambda w: {w}, lambda held, w: w if w in held else w + 1),
    "pairs": (lambda w: [(("w", w), 1)], lambda held, _: held[0][0][1]),
    "function with arguments": (lambda w: partial(relu, input=w), lambda held, _: held.keywords["input"]),
    "function with positions": (lambda w: partial(relu, w), lambda held, _: held.args[0]),
    "named tuple": (lambda w: [Pair(Pair(w, None), None)], lambda held, _: held[0].weight.weight),
    "tuple with attributes": (lambda w: Attributed(w, None), lambda held, _: held.weight),
    "tuples in each other": (_twice, _in_all),
    "result with names": (lambda w: torch.return_types.max((w, w)), lambda held, _: held.values),
    "default": (_default, lambda held, _: held()),
    "namespace": (lambda w: SimpleNamespace(w=w), lambda held, _: held.w),
    "function": (_closure, lambda held, _: held()),
}  # fmt: skip


class Plain(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 8)
        held, self.get = HOLDERS[kind]
        self.held: Any = held(self.outer.weight)

    def of(self) -> Tensor:
        return self.outer.weight

    def forward(self, x: Tensor) -> Tensor:
        return linear(self.inner(x), self.of(), self.outer.bias)


class Elsewhere(Plain):
    def of(self) -> Tensor:
        return self.get(self.held, self.outer.weight)


class Read(Elsewhere):
    def forward(self, x: Tensor) -> Tensor:
        found = super().forward(x)
        return found if bool((self.outer.weight.sum() + found.sum()).isfinite()) else x


@pytest.mark.parametrize("kind", HOLDERS)
@pytest.mark.parametrize("model", [Elsewhere, Read])
def test_a_weight_is_trained_whoever_has_it(kind: str, model: type[Elsewhere]) -> None:
    def step(of: Plain) -> Any:
        return opgraph.profile(of, torch.ones(2, 8), mode="train", loss="sum", optimizer="adamw")

    made = model(kind)
    values = {name: value.clone() for name, value in made.state_dict().items()}
    plain, found = step(Plain(kind)), step(made)
    assert found.tracing.tensors == ("fake" if model is Elsewhere else "real")
    assert found.totals.flops == plain.totals.flops
    assert found.memory.peak == plain.memory.peak
    if model is Elsewhere:
        assert [n.target for n in found.graph.nodes] == [n.target for n in plain.graph.nodes]
    assert made.get(made.held, made.outer.weight) is made.outer.weight
    assert all(torch.equal(value, values[name]) for name, value in made.state_dict().items())
    assert made.outer.weight.grad is None


class Sets(nn.Module):
    """Sets what a function of its own is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.count = nn.Linear(4, 4), partial(max, 1, key=abs)

    def forward(self, x: Tensor) -> Tensor:
        self.count.__setstate__((min, (7,), {}, None))
        return self.layer(x)


def test_what_a_forward_lets_a_partial_call_is_as_before() -> None:
    model = Sets()
    before = model.count.func, model.count.args, model.count.keywords
    opgraph.profile(model, torch.ones(2, 4))
    assert (model.count.func, model.count.args, model.count.keywords) == before


class Adapting(nn.Module):
    """Adapts itself to what it is given, as TENT does."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
        self.optimizer = torch.optim.Adam(self.net[1].parameters(), lr=0.1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x)
        y.pow(2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return y


@pytest.mark.parametrize("tracer", ["eager", "dynamo"])
@pytest.mark.parametrize("called", [False, True])
def test_an_optimizer_that_a_model_has_makes_its_step(tracer: str, called: bool) -> None:
    model, x = Adapting(), torch.randn(2, 8)
    if called:
        model(x)
    before, state = str(model.state_dict()), str(model.optimizer.state_dict())
    found = opgraph.profile(model, x, tracer=tracer)
    kernels = [k.op for n in found.graph.nodes for k in n.kernels]
    assert found.tracing.tensors == "fake"
    assert any("addcdiv" in kernel for kernel in kernels), kernels
    assert not [r.text for r in found.remarks if "fake tensor" in r.text]
    assert str(model.state_dict()) == before
    assert str(model.optimizer.state_dict()) == state
    ends = [each.peek() for each in weakref.finalize._registry]  # type: ignore[attr-defined]
    assert not [end for end in ends if end is not None and end[0] is model.optimizer]


class Gathered(nn.Module):
    """Puts its weight into memory that it makes, and computes with views of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        self.layer.weight.data = torch.zeros(8, 8)
        return linear(x, self.layer.weight[:4])


def test_a_weight_that_is_given_memory_made_in_the_run_has_views() -> None:
    model = Gathered()
    before = model.layer.weight.detach().clone()
    found = opgraph.profile(model, torch.randn(2, 8))
    assert found.tracing.tensors == "fake"
    assert not found.remarks
    assert torch.equal(model.layer.weight, before)


class Keeps(nn.Module):
    def __init__(self, states: list[Tensor]) -> None:
        super().__init__()
        self.states, self.layer = states, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        self.states.append(x)
        return x


class Gathers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.states = [torch.zeros(1, 4)]
        self.first, self.second = Keeps(self.states), Keeps(self.states)

    def forward(self, x: Tensor) -> Tensor:
        self.second(self.first(x))
        return torch.cat(self.states) @ torch.ones(4, 4)


@pytest.mark.parametrize("tracer", ["eager", "dynamo"])
def test_modules_that_share_a_list_of_tensors_share_it_in_a_run(tracer: str) -> None:
    model, x = Gathers(), torch.randn(2, 4)
    found = opgraph.profile(model, x, tracer=tracer)
    assert len(model.states) == 1
    with FlopCounterMode(display=False) as counter:
        model(x)
    assert found.totals.flops == counter.get_total_flops()


class Sorts(nn.Module):
    """Has sets of weights, each of so many that they are put elsewhere where one is changed."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(9))
        self.decay = set(self.parameters())
        self.parts = {"all": self.decay}

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) if layer.weight in self.decay else x
        return x


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_sets_of_weights_are_gone_through_in_the_same_order(mode: str) -> None:
    model = Sorts()
    before, x = list(map(id, model.decay)), torch.randn(2, 4)
    found = opgraph.profile(model, x, mode=mode, **({"loss": "sum"} if mode == "train" else {}))
    assert found.tracing.tensors == "fake"
    assert found.totals.flops >= 9 * 2 * 2 * 4 * 4
    assert list(map(id, model.decay)) == before
    assert model.parts["all"] is model.decay


def _gathered(weight: Any) -> None:
    weight.data = weight.shard.view(weight.full).clone()
    weight.gathered = True


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("how", ["method", "of C", "partial"])
def test_a_method_of_a_weight_among_its_own_attributes(how: str, mode: str) -> None:
    """As where weights are kept in parts, and put together before they are used."""

    class Layer(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            for weight in self.parameters():
                held: Any = weight
                held.gather()
                assert held.gathered
                if how == "of C":
                    assert held.count() == weight.numel() > 0
            return super().forward(x)

    model = Layer(4, 4)
    for weight in model.parameters():
        each: Any = weight
        each.shard, each.full = weight.detach().clone().flatten(), weight.shape
        each.gather = (
            partial(_gathered, weight) if how == "partial" else MethodType(_gathered, weight)
        )
        each.count = weight.numel
        weight.data, each.gathered = torch.empty(0), False
    profile = opgraph.profile(model, torch.randn(3, 4), mode=mode)
    assert profile.totals.flops == (1 if mode == "infer" else 2) * 2 * 3 * 4 * 4
    assert [w.numel() for w in model.parameters()] == [0, 0]
