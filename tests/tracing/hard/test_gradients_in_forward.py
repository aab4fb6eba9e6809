"""Forwards that compute gradients themselves, as those of force fields do, run as they are called: with
gradients on, unless these are off around the call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import opgraph

ERRORS = (RuntimeError,)
"""What a model catches that does without."""
Forward = Callable[["Field", Tensor], object]


class Field(nn.Module):
    """The energy of some positions, and a forward of one's own."""

    def __init__(self, run: Forward) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        self.run = run

    def energy(self, positions: Tensor) -> Tensor:
        return self.layers(positions.requires_grad_()).sum()

    def forward(self, positions: Tensor) -> object:
        return self.run(self, positions)


def by_grad(m: Field, x: Tensor) -> object:
    return torch.autograd.grad(m.energy(x), x, create_graph=True)


def by_backward(m: Field, x: Tensor) -> object:
    m.energy(x).backward()
    return x.grad


def by_engine(m: Field, x: Tensor) -> object:
    torch.autograd.backward([m.energy(x)])
    return x.grad


def by_hook(m: Field, x: Tensor) -> object:
    energy = m.energy(x)
    energy.register_hook(lambda g: g * 2)
    return energy


def by_history(m: Field, x: Tensor) -> object:
    energy = m.energy(x)
    return energy if energy.grad_fn.next_functions else None


def does_without(m: Field, x: Tensor) -> object:
    try:
        return by_grad(m, x)
    except ERRORS:
        return m.energy(x)


def asks_before(m: Field, x: Tensor) -> object:
    return by_grad(m, x) if m.layers(x).sum().item() < float("inf") else None


RUNS = [by_grad, by_backward, by_engine, by_hook, by_history, does_without, asks_before]


class Products(TorchDispatchMode):
    """Counts the FLOPs of matrix products, forward and backward: FlopCounterMode fails within `grad`."""

    flops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.name in ("aten::mm", "aten::addmm"):
            a, b = args[-2:]
            self.flops += 2 * a.shape[0] * a.shape[1] * b.shape[1]
        return func(*args, **(kwargs or {}))


@pytest.mark.live
@pytest.mark.parametrize("run", RUNS)
def test_a_forward_that_differentiates_runs_with_gradients(run: Forward) -> None:
    model, x = Field(run).eval(), torch.randn(5, 3)
    found = opgraph.profile(model, x)
    assert [p.grad for p in model.parameters()] == [None] * 4
    assert not x.requires_grad
    assert x.grad is None
    with Products() as counted:
        model(x)
    assert found.totals.flops == counted.flops > 0
    assert [r.code for r in found.remarks if r.code != "real-tensors"] == ["gradients"]
    assert found.tracing.attempts[-1].error is None
    assert found.tracing.attempts[-2].error is not None


@pytest.mark.live
@pytest.mark.parametrize("tracer", ["eager", "fx", "dynamo"])
def test_so_it_does_by_other_tracers(tracer: str) -> None:
    found = opgraph.profile(Field(by_grad), torch.randn(5, 3), tracer=tracer)
    assert found.totals.flops == opgraph.profile(Field(by_grad), torch.randn(5, 3)).totals.flops
    assert [r.code for r in found.remarks] == ["gradients"]


def test_lazy_layers_learn_their_sizes_with_gradients_too() -> None:
    model = Field(by_grad)
    model.layers[0] = nn.LazyLinear(8)
    assert opgraph.profile(model, torch.randn(5, 3)).totals.flops > 2 * 5 * 8 * (3 + 1)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_where_they_are_off_around_the_call_that_is_said(off: Callable[[], torch.no_grad]) -> None:
    with off(), pytest.raises(opgraph.TraceError, match="they are off around the call") as caught:
        opgraph.profile(Field(by_grad), torch.randn(5, 3))
    assert "gradients" in [r.code for r in caught.value.profile.remarks]


def test_a_step_of_training_needs_nothing_around_it() -> None:
    plain = opgraph.profile(Field(Field.energy), torch.randn(5, 3), mode="train")
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            found = opgraph.profile(Field(Field.energy), torch.randn(5, 3), mode="train")
        assert found.graph == plain.graph


def test_an_error_that_gradients_do_not_mend_stays() -> None:
    def wrong(m: Field, x: Tensor) -> object:
        return torch.autograd.grad(m.energy(x).detach(), x)

    with pytest.raises(opgraph.TraceError, match="does not require grad"):
        opgraph.profile(Field(wrong), torch.randn(5, 3))
