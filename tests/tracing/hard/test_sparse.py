"""Sparse matrices as weights, buffers, inputs and what forward makes: by what they store."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import opgraph
from opgraph import TraceError
from opgraph.analysis.cost.training import training
from opgraph.costs.formulas.linalg import stored

pytestmark = [pytest.mark.live, pytest.mark.filterwarnings("ignore:Sparse")]

DENSE = torch.zeros(100, 4)
DENSE[0, 1] = DENSE[5, 2] = 1
PRODUCT = 2 * 2 * 5


class Holds(nn.Module):
    """A sparse matrix that is kept in one way or the other."""

    def __init__(self, matrix: Tensor, kind: str) -> None:
        super().__init__()
        if kind == "parameter":
            self.matrix = nn.Parameter(matrix, requires_grad=False)
        elif kind == "buffer":
            self.register_buffer("matrix", matrix)
        elif kind == "attribute":
            self.matrix = matrix
        self.kind = kind

    def forward(self, x: Tensor, given: Tensor) -> Tensor:
        made = DENSE.to_sparse() if self.kind == "made" else given
        return getattr(self, "matrix", made) @ x


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
@pytest.mark.parametrize("kind", ["parameter", "buffer", "attribute", "given", "made"])
def test_a_product_meets_what_is_stored(layout: str, kind: str) -> None:
    matrix = getattr(DENSE, layout)()
    profile = opgraph.profile(Holds(matrix, kind), (torch.ones(4, 5), matrix))
    assert profile.tracing.tensors == "fake"
    assert profile.totals.flops == PRODUCT
    assert profile.totals.coverage == 1.0


def test_a_sparse_weight_takes_the_bytes_of_what_it_stores() -> None:
    coo = opgraph.profile(Holds(DENSE.to_sparse(), "parameter"), (torch.ones(4, 5), DENSE))
    assert coo.totals.weight_bytes == 2 * 4 + 2 * 2 * 8
    csr = opgraph.profile(Holds(DENSE.to_sparse_csr(), "buffer"), (torch.ones(4, 5), DENSE))
    assert csr.totals.buffer_bytes == 2 * 4 + 2 * 8 + 101 * 8


def test_what_the_forward_makes_sparse_is_known_from_a_run_with_values() -> None:
    class Thinned(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.where(x > 0, x, 0.0).to_sparse_csr() @ y

    profile = opgraph.profile(Thinned(), (DENSE, torch.ones(4, 5)))
    assert profile.tracing.tensors == "fake weights"
    assert profile.totals.flops == PRODUCT


def test_a_product_of_what_a_weight_decides_is_known_on_real_tensors() -> None:
    class Thinned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(DENSE)

        def forward(self, x: Tensor) -> Tensor:
            return self.weight.to_sparse() @ x

    model, x = Thinned(), torch.ones(4, 5)
    assert opgraph.profile(model, x).tracing.tensors == "real"
    assert opgraph.profile(model, x).totals.flops == PRODUCT
    alone = opgraph.profile(model, x, tracer="eager")
    assert alone.totals.unknown == (("aten.mm", 1),)
    assert "stores as much as its values say" in alone.model.notes[0]


X = torch.ones(8, 8)
LAYOUTS = pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
TIMES = pytest.mark.parametrize("times", [torch.sparse.mm, torch.matmul])


class Learned(nn.Module):
    """A sparse weight of 8 values, and a layer behind it."""

    def __init__(self, layout: str, times: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(getattr(torch.eye(8), layout)())
        self.linear = nn.Linear(8, 4)
        self.times = times

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(self.times(self.weight, x))
        return y


def looks(weight: Tensor) -> object:
    """All that there is to be seen of a sparse weight, and which memory it has."""
    parts = stored(weight.detach())
    return (
        id(weight), type(weight), weight._version, id(weight.grad), weight.requires_grad,
        [(p.data_ptr(), p.tolist()) for p in parts],
        None if weight.grad is None else weight.grad.to_dense().tolist(),
    )  # fmt: skip


@LAYOUTS
@TIMES
@pytest.mark.parametrize("tracer", ["eager", "fx", "dynamo", "export", "hybrid"])
def test_a_weight_that_is_learned_is_what_it_was_after_each_tracer(
    layout: str, times: Callable[[Tensor, Tensor], Tensor], tracer: str
) -> None:
    model = Learned(layout, times)
    before = looks(model.weight)
    profile = opgraph.profile(model, X, tracer=tracer)
    assert profile.totals.flops == 2 * 8 * 8 + 2 * 8 * 8 * 4
    assert looks(model.weight) == before


@pytest.mark.parametrize(("layout", "backward"), [
    ("to_sparse", 2 * 8 * 8 * 8),  # torch computes the dense gradient, and takes 8 values of it
    ("to_sparse_csr", 2 * 8 * 8),
])  # fmt: skip
def test_a_step_of_training_has_sparse_gradients_and_state(layout: str, backward: int) -> None:
    model = Learned(layout, torch.sparse.mm)
    if layout == "to_sparse":
        model.weight.grad = torch.eye(8).to_sparse()
    before = looks(model.weight)
    profile = opgraph.profile(model, X, mode="train", loss="sum", optimizer="sgd")
    product, linear = 2 * 8 * 8, 2 * 8 * 8 * 4
    assert profile.totals.flops == product + linear + backward + 2 * linear
    assert profile.totals.coverage == 1.0
    kept = sum(p.nbytes for p in (*stored(model.weight), *model.linear.parameters()))
    step = training(profile.graph)
    assert step.gradients == step.optimizer_state == kept
    assert looks(model.weight) == before


def test_an_optimizer_that_torch_has_for_dense_weights_alone_is_refused() -> None:
    model = Learned("to_sparse", torch.sparse.mm)
    before = looks(model.weight)
    why = "the step of the optimizer of Learned failed: adamw: .*does not support sparse gradients"
    with pytest.raises(TraceError, match=why):
        opgraph.profile(model, X, mode="train", loss="sum", optimizer="adamw")
    assert looks(model.weight) == before


def test_what_is_sparse_takes_memory_while_it_is_there() -> None:
    class Thinned(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.to_sparse().sin().to_dense()

    x = torch.eye(100)
    peak = opgraph.profile(Thinned(), x).memory.peak
    assert peak >= 2 * x.nbytes + 100 * (2 * 8 + 4)
    values = opgraph.profile(OfValues(torch.eye(100).to_sparse()), torch.ones(1)).memory.peak
    assert values < 100 * (2 * 8 + 4)


class OfValues(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.weight._values()[:1] + self.weight._indices()[0, :1] + x


@LAYOUTS
def test_a_mode_around_may_have_a_sparse_tensor(layout: str) -> None:
    class Holding(TorchFunctionMode):
        mask = getattr(torch.eye(8), layout)()

        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            return func(*args, **(kwargs or {}))

    with Holding() as mode:
        mode.own = Holding.mask  # type: ignore[attr-defined]
        assert opgraph.profile(nn.Linear(8, 4), X).totals.flops == 2 * 8 * 8 * 4
