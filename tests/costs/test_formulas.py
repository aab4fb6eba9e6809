"""Formulas against figures worked out by hand, one call each."""

from __future__ import annotations

import pytest
import torch
from tests.costs.hand import Calls, kernels
from torch.nn import functional
from torch.utils.flop_counter import register_flop_formula

import opgraph
from opgraph.costs.registry import contraction, each, first_input, formula


def only(function, *tensors):
    found = [k for k in kernels(function, *tensors) if k.cost != "zero"]
    assert len(found) == 1, found
    return found[0]


X = torch.ones(4, 6)


@pytest.mark.parametrize(
    ("function", "tensors", "flops", "other", "read", "written"),
    [
        # Contractions: 2 FLOPs a product and sum.
        (torch.mm, (torch.ones(2, 3), torch.ones(3, 5)), 2 * 2 * 3 * 5, 0, 4 * (6 + 15), 4 * 10),
        (torch.mv, (torch.ones(2, 3), torch.ones(3)), 12, 0, 4 * 9, 4 * 2),
        (torch.dot, (torch.ones(7), torch.ones(7)), 14, 0, 4 * 14, 4),
        (torch.bmm, (torch.ones(2, 3, 4), torch.ones(2, 4, 5)), 2 * 2 * 3 * 4 * 5, 0,
         4 * (24 + 40), 4 * 30),
        (lambda x, w: functional.conv2d(x, w, padding=1), (torch.ones(1, 2, 4, 4), torch.ones(3, 2, 3, 3)),
         2 * 16 * 3 * 2 * 9, 0, 4 * (32 + 54), 4 * 48),
        (lambda q: functional.scaled_dot_product_attention(q, q, q), (torch.ones(1, 2, 8, 4),),
         2 * 2 * (2 * 8 * 8 * 4), 0, None, None),
        (lambda c, a, b: c.addmm_(a, b), (torch.ones(2, 5), torch.ones(2, 3), torch.ones(3, 5)),
         2 * 2 * 3 * 5, 0, 4 * (10 + 6 + 15), 4 * 10),
        # Factorizations, as LAPACK counts them.
        (torch.linalg.cholesky, (torch.eye(6),), 0, 6**3 // 3, None, None),
        (torch.linalg.inv, (torch.eye(6),), 0, 2 * 6**3, None, None),
        # Element-wise: by element, whatever goes in is read, what comes out is written.
        (torch.add, (X, X), 0, 24, 2 * 96, 96),
        (lambda x: x.add_(1), (X.clone(),), 0, 24, 96, 96),
        (torch.sigmoid, (X,), 0, 3 * 24, 96, 96),
        (functional.gelu, (X,), 0, 5 * 24, 96, 96),
        (lambda x: x.to(torch.float16), (X,), 0, 0, 96, 48),
        # An expanded operand is read once.
        (lambda x, y: x * y, (X, torch.ones(1, 1)), 0, 24, 96 + 4, 96),
        # Reductions and normalizations: by what is read.
        (torch.sum, (X,), 0, 24, 96, 4),
        (lambda x: functional.softmax(x, -1), (X,), 0, 5 * 24, 96, 96),
        (lambda x: functional.max_pool2d(x, 2), (torch.ones(1, 1, 4, 4),), 0, 4 * 4, 64, 16 + 32),
        (lambda x: functional.avg_pool2d(x, 2), (torch.ones(1, 1, 4, 4),), 0, 4 * 5, 64, 16),
        # Looking rows up reads the rows and the indices, not the table.
        (functional.embedding, (torch.tensor([1, 2]), torch.ones(100, 8)), 0, 0, 16 + 64, 64),
        (lambda x, i: x[i], (torch.ones(100, 8), torch.tensor([3])), 0, 0, 8 + 32, 32),
        (lambda x: torch.cat([x, x]), (X,), 0, 0, 2 * 96, 2 * 96),
        (lambda x: x.fill_(0), (X.clone(),), 0, 0, 0, 96),
        (torch.fft.fft, (torch.ones(8, dtype=torch.complex64),), 0, 5 * 8 * 3, 64, 64),
    ],
)  # fmt: skip
def test_a_call_costs_what_it_costs_by_hand(function, tensors, flops, other, read, written):
    kernel = only(function, *tensors)
    assert (kernel.flops, kernel.other_flops) == (flops, other)
    if read is not None:
        assert (kernel.read, kernel.written) == (read, written)
    assert kernel.cost == "formula"


@pytest.mark.parametrize(
    "view",
    [lambda x: x.view(-1), lambda x: x.t(), lambda x: x[1:], lambda x: x.expand(2, 4, 6),
     lambda x: x.unsqueeze(0), lambda x: x.T, lambda x: x.detach(), lambda x: x.chunk(2)],
)  # fmt: skip
def test_views_are_free(view):
    found = kernels(view, X)
    assert {(k.cost, k.flops, k.bytes) for k in found} == {("zero", 0, 0)}


def test_grouped_experts():
    """8 tokens over 4 experts of [6, 10]: 2 x tokens x k x n, however the tokens are shared out."""
    offsets = torch.tensor([2, 4, 6, 8], dtype=torch.int32)
    a = torch.ones(8, 16, dtype=torch.bfloat16)
    b = torch.ones(4, 16, 32, dtype=torch.bfloat16)
    found = kernels(lambda a, b, o: torch._grouped_mm(a, b, offs=o), a, b, offsets)
    assert sum(k.flops for k in found) == 2 * 8 * 16 * 32


def test_an_operator_without_a_formula_is_unknown_until_torch_knows_one():
    @torch.library.custom_op("opgraph_test::mystery", mutates_args=())
    def mystery(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @mystery.register_fake
    def _(x):
        return torch.empty_like(x)

    profile = opgraph.profile(Calls(torch.ops.opgraph_test.mystery), inputs=X)
    assert profile.totals.unknown == (("opgraph_test.mystery", 1),)
    assert profile.totals.coverage < 1

    @register_flop_formula(torch.ops.opgraph_test.mystery)
    def mystery_flops(x_shape, out_shape=None, **kwargs):
        return 1000

    profile = opgraph.profile(Calls(torch.ops.opgraph_test.mystery), inputs=X)
    assert profile.totals.flops == 1000
    assert profile.totals.coverage == 1


def test_a_formula_is_registered_once():
    with pytest.raises(ValueError, match="already"):
        formula("reduction", "aten.sum")(lambda call: 0)
    with pytest.raises(ValueError, match="already"):
        contraction("matmul", "aten.dot")(lambda *args: 0)
    with pytest.raises(ValueError, match="already"):
        each("reduction", first_input, "", {"sum": "sum"})
