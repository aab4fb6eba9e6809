"""Gradients of work that is no contraction, of 4 x 6 = 24 elements or images of 2 x 4 x 3 x 3 = 72; those
of pooling and interpolation are in `sampling`."""

from __future__ import annotations

import torch
from tests.costs.hand import bools, case, floats, ints

X = floats(4, 6)
SIX = floats(6)
IMAGE = floats(2, 4, 3, 3)
C = floats(4)
ALL = [True, True, True]

CASES = [
    # g * y, its sum, y * sum, difference; the sum of g, e^y, product, difference.
    *case("_softmax_backward_data _log_softmax_backward_data", X, X, 1, torch.float32, other=4 * 24),
    # x^ (2), g * w, n of it, its sum and that of its product with x^ (3), x^ * sum, two differences, a
    # product; of the weight a product and a sum, of the bias a sum.
    *case("native_layer_norm_backward", X, X, [6], floats(4, 1), floats(4, 1), SIX, SIX, ALL,
          other=(2 + 1 + 1 + 3 + 1 + 2 + 1 + 2 + 1) * 24),
    # The sums of g * x and g (3); a g + b x + c (4).
    *case("native_group_norm_backward", IMAGE, IMAGE, floats(2, 2), floats(2, 2), C, 2, 4, 9, 2, ALL,
          other=(3 + 4) * 72),
    # g * v and its sum by the norm; v * (that / norm^2), difference, by scale / norm.
    *case("_weight_norm_interface_backward", X, X, floats(4, 1), floats(4, 1), 0, other=(2 + 3) * 24),
    # x^, g * w, the sum of their product (2), x^ / n * sum (2), difference, / rms; the weight's (2).
    *case("_fused_rms_norm_backward", X, X, [6], floats(4, 1), SIX, [True, True],
          other=(1 + 1 + 2 + 2 + 1 + 1 + 2) * 24),
    # The sums of g and g (x - mean) (4); (x - mean) b (2), two differences, a product; or g a alone.
    *case("native_batch_norm_backward", IMAGE, IMAGE, C, C, C, C, C, True, 1e-5, ALL, other=(4 + 5) * 72),
    *case("native_batch_norm_backward", IMAGE, IMAGE, C, C, C, C, C, False, 1e-5, ALL, other=(4 + 1) * 72),
    *case("batch_norm_backward", IMAGE, IMAGE, C, C, C, C, C, True, 1e-5, ALL, floats(0), gives=IMAGE,
          other=(4 + 5) * 72),
    *case("cudnn_batch_norm_backward", IMAGE, IMAGE, C, C, C, C, C, 1e-5, floats(0), gives=IMAGE,
          other=(4 + 5) * 72),
    *case("miopen_batch_norm_backward", IMAGE, IMAGE, C, C, C, C, C, 1e-5, gives=IMAGE, other=(4 + 5) * 72),
    # A sum for each element of 5 rows, and for each of 3 windows of 2 out of 4.
    *case("embedding_dense_backward", floats(5, 6), ints(5), 9, -1, False, other=30),
    *case("embedding_backward", floats(5, 6), ints(5), 9, -1, False, False, other=30, gives=floats(9, 6)),
    *case("unfold_backward", floats(3, 2), [4], 0, 2, 1, other=6),
    # Into zeros, each at a place of its own.
    *case("slice_backward", X, [8, 6], 0, 0, 4, 1, bytes=(96, 192)),
    *case("select_backward", SIX, [4, 6], 0, 1, bytes=(24, 96)),
    *case("diagonal_backward", C, [4, 6], 0, 0, 1, bytes=(16, 96)),
    *case("value_selecting_reduction_backward", C, 1, ints(4), [4, 6], False, gives=X),
    # Compared, kept or not; and times a slope, or a sixth; times the mask, scaled.
    *case("threshold_backward", X, X, 0.0, other=24),
    *case("hardtanh_backward", X, X, -1.0, 1.0, other=2 * 24),
    *case("leaky_relu_backward", X, X, 0.1, False, other=2 * 24),
    *case("hardsigmoid_backward", X, X, other=3 * 24),
    *case("native_dropout_backward", X, bools(4, 6), 2.0, other=2 * 24),
    # g * (1 - y y); g * y * (1 - y).
    *case("tanh_backward sigmoid_backward", X, X, other=3 * 24),
    # Compared, w * g and x * g; alpha * e^x * g; e^x, compared, g * e / (1 + e); g * (x / 3 + 1/2).
    *case("_prelu_kernel_backward", X, X, X, other=3 * 24),
    *case("elu_backward", X, 1.0, 1.0, 1.0, False, X, other=4 * 24),
    *case("softplus_backward", X, X, 1.0, 20.0, other=5 * 24),
    *case("hardswish_backward", X, X, other=5 * 24),
    # Compared; z / (1 + z), signed, taken from 0 or 1, times g.
    *case("log_sigmoid_backward", X, X, X, other=6 * 24),
    # s = sigmoid (3), g * s * (1 + x * (1 - s)) (5).
    *case("silu_backward", X, X, other=(3 + 5) * 24),
    # s of the second half (3), g * s for the first; g * a * s * (1 - s) for the second.
    *case("glu_backward", X, floats(4, 12), 1, other=(3 + 1 + 4) * 24),
    # t = tanh(log(1 + e^x)) (1 + 3), s = sigmoid (3); g * (t + x * s * (1 - t t)) (6).
    *case("mish_backward", X, X, gives=X, other=(4 + 3 + 6) * 24),
    # The normal distribution (4) and its density (4), x * density, sum, * g.
    *case("gelu_backward", X, X, other=(4 + 4 + 3) * 24),
    # The polynomial (5), tanh, three factors (3), 1 - t t (2), its derivative (3), two products, sum, * g.
    *case("gelu_backward", X, X, approximate="tanh", other=(5 + 1 + 3 + 2 + 3 + 2 + 1 + 1) * 24),
    # The gradient that comes in is one number; 2 / n * (x - t) * g.
    *case("mse_loss_backward", floats(), X, X, 1, other=3 * 24),
    # x - t, |d| compared; d * g / beta. Compared with both bounds; d * g.
    *case("smooth_l1_loss_backward", floats(), X, X, 1, 1.0, other=5 * 24),
    *case("huber_loss_backward", floats(), X, X, 1, 1.0, other=4 * 24),
    # g * (x - t) / max(x * (1 - x), eps).
    *case("binary_cross_entropy_backward", floats(), X, X, None, 1, other=6 * 24),
    # Two products for each of 4 targets, or of 2 x 3 x 3 points.
    *case("nll_loss_backward", floats(), X, ints(4), None, 1, -100, floats(), other=2 * 4),
    *case("nll_loss2d_backward", floats(), IMAGE, ints(2, 3, 3), None, 1, -100, floats(), other=2 * 18),
]  # fmt: skip
