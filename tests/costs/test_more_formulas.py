"""Formulas of rarer operators against figures worked out by hand, one call each."""

from __future__ import annotations

import pytest
import torch
import torchvision
from tests.costs.hand import Calls, kernels
from torch.nn import functional

import opgraph

X = torch.ones(4, 6)


@pytest.mark.parametrize(
    ("function", "tensors", "flops", "other"),
    [
        # Contractions that torch's registry lacks.
        (torch.addmv, (torch.ones(2), torch.ones(2, 3), torch.ones(3)),
         2 * 2 * 3, 0),
        (torch.addr, (torch.ones(2, 3), torch.ones(2), torch.ones(3)),
         2 * 2 * 3, 0),
        (torch.addbmm,
         (torch.ones(3, 5), torch.ones(2, 3, 4), torch.ones(2, 4, 5)), 2 * 2 * 3 * 4 * 5, 0),
        # x1[n, i] W[o, i, j] x2[n, j] with n = 2, o = 5, i = 3, j = 4.
        (functional.bilinear, (torch.ones(2, 3), torch.ones(2, 4), torch.ones(5, 3, 4)),
         2 * 2 * 5 * 3 * 4 + 2 * 2 * 5 * 4, 0),
        (torch._int_mm, (torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8)),
         2 * 32 * 16 * 8, 0),
        # Two groups: each of 6 outputs sums over 2 of 4 channels and 3 x 3 places.
        (lambda x, w: functional.conv2d(x, w, groups=2), (torch.ones(1, 4, 5, 5), torch.ones(6, 2, 3, 3)),
         2 * 9 * 6 * 2 * 9, 0),
        # Each of 3 x 4 x 4 inputs meets 2 outputs and 3 x 3 places.
        (functional.conv_transpose2d, (torch.ones(1, 3, 4, 4), torch.ones(3, 2, 3, 3)),
         2 * 16 * 3 * 2 * 9, 0),
        # Factorizations and solutions of a 6 x 6 system.
        (torch.linalg.lu_factor_ex, (torch.eye(6),), 0, 6**3 - 6**3 // 3),
        (torch.linalg.eigh, (torch.eye(6),), 0, 9 * 6**3),
        (lambda x: torch.linalg.svd(x, full_matrices=False), (torch.ones(6, 3),), 0, 6 * 6 * 9 + 20 * 27),
        (torch.linalg.solve, (torch.eye(6), torch.ones(6, 2)), 0, 2 * 6**3 // 3 + 2 * 6 * 12),
        (lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), (torch.eye(6), torch.ones(6, 2)),
         0, 6 * 12),
        # By element.
        (functional.silu, (X,), 0, 4 * 24),
        (lambda x: torch.clamp(x, 0, 1), (X,), 0, 2 * 24),
        (lambda x: torch.lerp(x, x, 0.5), (X,), 0, 3 * 24),
        # Reductions and normalizations by what is read.
        (torch.mean, (X,), 0, 24),
        (torch.var, (X,), 0, 4 * 24),
        (lambda x: torch.logsumexp(x, -1), (X,), 0, 4 * 24),
        (lambda x: functional.layer_norm(x, (6,)), (X,), 0, 7 * 24),
        (lambda x: functional.group_norm(x, 2), (torch.ones(1, 4, 3, 3),), 0, 7 * 36),
        (lambda x, m: functional.batch_norm(x, m, m), (torch.ones(2, 3, 4, 4), torch.ones(3)),
         0, 4 * 96),
        # Windows, taps and comparisons.
        (lambda x: functional.adaptive_avg_pool2d(x, 2), (torch.ones(1, 3, 4, 4),), 0, 48 + 12),
        (lambda x: functional.interpolate(x, scale_factor=2), (torch.ones(1, 1, 4, 4),), 0, 0),
        (lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"), (torch.ones(1, 1, 4, 4),),
         0, 7 * 64),
        (lambda x: functional.interpolate(x, scale_factor=2, mode="bicubic"), (torch.ones(1, 1, 4, 4),),
         0, 31 * 64),
        # 4 points for each of 9 places, and 18 for their weights.
        (lambda x, g: functional.grid_sample(x, g, align_corners=False),
         (torch.ones(1, 1, 4, 4), torch.ones(1, 3, 3, 2)), 0, 7 * 9 + 18 * 9),
        (torch.sort, (torch.ones(4, 8),), 0, 4 * 8 * 3),
        (lambda x, y: torch.cdist(x, y, p=1.0), (torch.ones(4, 6), torch.ones(5, 6)), 0, 3 * 20 * 6),
        (torch.fft.rfft, (torch.ones(8),), 0, 5 * 8 * 3 // 2),
        # torchvision's own. 10 boxes are 45 pairs of 13; a region of 2 x 2 cells has 4 samples each of 8.
        (lambda b, s: torchvision.ops.nms(b, s, 0.5), (torch.rand(10, 4), torch.rand(10)),
         0, 3 * 10 + 13 * 45),
        (lambda x, b: torchvision.ops.roi_align(x, [b], 2, sampling_ratio=2),
         (torch.ones(1, 3, 8, 8), torch.tensor([[0.0, 0.0, 4.0, 4.0]])), 0, 3 * 4 * 8 * 4),
        (torchvision.ops.deform_conv2d,
         (torch.ones(1, 4, 5, 5), torch.zeros(1, 18, 3, 3), torch.ones(6, 4, 3, 3)),
         2 * 9 * 6 * 4 * 9, 0),
    ],
)  # fmt: skip
def test_a_call_costs_what_it_costs_by_hand(function, tensors, flops, other):
    found = [k for k in kernels(function, *tensors) if k.cost != "zero"]
    assert {k.cost for k in found} == {"formula"}
    assert (sum(k.flops for k in found), sum(k.other_flops for k in found)) == (flops, other)


def test_fused_recurrent_layers():
    """3 layers, 2 directions, 5 steps of 2 sequences: two FLOPs an element of the weights each."""
    lstm = torch.nn.LSTM(7, 8, 3, bidirectional=True)
    weights = sum(p.numel() for n, p in lstm.named_parameters() if n.startswith("weight"))
    assert opgraph.profile(lstm, torch.ones(5, 2, 7)).totals.flops == 2 * 5 * 2 * weights


def test_a_fused_encoder_layer():
    """Batch 2, 5 tokens of width 8, hidden 16: four projections, two products, two linear layers."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    b, s, e, hidden = 2, 5, 8, 16
    expected = 2 * b * s * 4 * e * e + 2 * 2 * b * s * s * e + 2 * 2 * b * s * e * hidden
    assert opgraph.profile(layer, torch.ones(b, s, e)).totals.flops == expected


def test_the_gradient_of_a_grouped_convolution():
    """Each of the two gradients costs what the forward costs, also with groups."""
    module = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 1), torch.nn.Conv2d(4, 6, 3, groups=2))
    graph = opgraph.profile(module, torch.ones(1, 4, 5, 5), mode="train", optimizer="sgd").graph
    first, second = 2 * 25 * 4 * 4, 2 * 9 * 6 * 2 * 9
    # The input of the first one needs no gradient.
    assert sum(n.flops for n in graph.nodes if n.phase == "backward") == first + 2 * second


def test_a_pool_of_regions_is_counted_by_its_cells() -> None:
    boxes = torch.tensor([[0.0, 0, 0, 4, 4]] * 3)
    pool = Calls(lambda x, b: torchvision.ops.roi_pool(x, b, 2))
    totals = opgraph.profile(pool, (torch.ones(1, 2, 8, 8), boxes)).totals
    assert (totals.flops, totals.other_flops) == (0, 3 * 2 * 2 * 2)
