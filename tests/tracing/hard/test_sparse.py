"""Sparse matrices as weights, buffers, inputs and what forward makes: by what they store."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import opgraph

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
