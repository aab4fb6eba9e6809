"""Reductions, softmax, normalizations and losses of 4 x 6 = 24 elements, or of images of 2 x 4 x 3 x 3."""

from __future__ import annotations

from tests.costs.hand import bools, case, floats, ints

X = floats(4, 6)
IMAGE = floats(2, 4, 3, 3)
C = floats(4)
NORMALIZED = (IMAGE, C, C, C, C)
STATISTICS = {"gives": (IMAGE, C, C)}

CASES = [
    # An operation for each element that is read.
    *case("sum mean prod amax amin max min argmax argmin", X, other=24),
    *case("any all _is_all_true _is_any_true", bools(4, 6), other=24),
    *case("cumsum cumprod cummax cummin", X, 1, other=24),
    *case("_cummax_helper _cummin_helper", X, X, ints(4, 6), 1, other=24, gives=()),
    *case("equal", X, X, other=24, bytes=(2 * 96, 0), gives=True),
    # The lesser and the greater; not NaN or not 0, then a sum.
    *case("aminmax", X, other=2 * 24),
    *case("nansum count_nonzero", X, other=2 * 24),
    # x * x, sum; and a difference first.
    *case("norm linalg_vector_norm", X, other=2 * 24),
    *case("dist", X, X, other=3 * 24),
    # exp, sum, log of each; the maximum, difference, exp and sum, where only a log of each row follows.
    *case("logcumsumexp", X, 1, other=3 * 24),
    *case("logsumexp", X, [1], other=4 * 24),
    # Mean, difference, square, sum.
    *case("var std var_mean std_mean", X, other=4 * 24),
    # Three features of each of 4 x 5 pairs: difference, square, sum.
    *case("_cdist_forward", floats(4, 3), floats(5, 3), 2.0, None, other=3 * 3 * 20),
    # By a product of rows of 3 + 2 elements.
    *case("_euclidean_dist", floats(4, 3), floats(5, 3), flops=2 * 20 * (3 + 2)),
    # Difference, two products, sum.
    *case("_cdist_backward", floats(4, 5), floats(4, 3), floats(5, 3), 1.0, floats(4, 5),
          gives=floats(4, 3), other=4 * 20 * 3),
    # 10 steps of 3 sequences of up to 4 letters out of 8: 2 * 4 + 1 places.
    *case("_ctc_loss", floats(10, 3, 8), ints(3, 4), [10] * 3, [4] * 3,
          gives=(floats(3), floats(3, 10, 9)), other=13 * 3 * 10 * 9),
    *case("_ctc_loss_backward", floats(3), floats(10, 3, 8), ints(3, 4), ints(3), ints(3), floats(3),
          floats(3, 10, 9), 0, gives=floats(10, 3, 8), other=22 * 3 * 10 * 9 + 5 * 10 * 3 * 8),
    # Four elements are on the diagonal.
    *case("trace", X, other=4),
    # Maximum, difference, exp, sum, and a quotient or, after the log of each row, a difference.
    *case("_softmax _log_softmax", X, 1, False, other=5 * 24),
    *case("_safe_softmax", X, 1, other=5 * 24),
    *case("softmax log_softmax", X, 1, other=5 * 24),
    # Mean, difference, square, sum; / std, * weight, + bias.
    *case("native_layer_norm", X, [6], floats(6), floats(6), 1e-5, other=7 * 24),
    *case("native_group_norm", IMAGE, C, C, 2, 4, 9, 2, 1e-5, other=7 * 72),
    *case("native_batch_norm", *NORMALIZED, True, 0.1, 1e-5, other=7 * 72),
    *case("_native_batch_norm_legit _native_batch_norm_legit_functional", *NORMALIZED, True, 0.1, 1e-5,
          other=7 * 72),
    *case("cudnn_batch_norm miopen_batch_norm", *NORMALIZED, True, 0.1, 1e-5, other=7 * 72, **STATISTICS),
    *case("_batch_norm_with_update _batch_norm_with_update_functional", *NORMALIZED, 0.1, 1e-5,
          other=7 * 72, **STATISTICS),
    # With statistics that are given: difference, / std, * weight, + bias.
    *case("native_batch_norm", *NORMALIZED, False, 0.1, 1e-5, other=4 * 72),
    *case("_native_batch_norm_legit_no_training _batch_norm_no_update", *NORMALIZED, 0.1, 1e-5,
          other=4 * 72),
    # Square, sum; / rms, * weight.
    *case("_fused_rms_norm", X, [6], floats(6), 1e-5, other=4 * 24),
    *case("rms_norm", X, [6], floats(6), 1e-5, other=4 * 24),
    # Square, sum; v * (g / |v|).
    *case("_weight_norm_interface", X, floats(4, 1), other=3 * 24),
    # (x - t)^2, and its sum unless reduction is 0.
    *case("mse_loss", X, X, 0, other=2 * 24),
    *case("mse_loss", X, X, 1, other=3 * 24),
    # |x - t| (2), compared, 0.5 d^2 / beta (3); without the last quotient; and the sum.
    *case("smooth_l1_loss", X, X, 0, other=6 * 24),
    *case("smooth_l1_loss", X, X, 1, other=7 * 24),
    *case("huber_loss", X, X, 1, other=6 * 24),
    # t - 1, 1 - x, and log x, log (1 - x), each held above -100; two products, a difference; the sum.
    *case("binary_cross_entropy", X, X, None, 1, other=(2 + 2 * 2 + 3 + 1) * 24),
    # (1 - t) * x (2) less log sigmoid (5); the sum.
    *case("binary_cross_entropy_with_logits", X, X, None, None, 1, other=(2 + 5 + 1 + 1) * 24),
    # A product and a sum for each of 4 targets, or of 2 x 3 x 3 points of an image.
    *case("nll_loss_forward", X, ints(4), None, 1, -100, other=2 * 4),
    *case("nll_loss2d_forward", IMAGE, ints(2, 3, 3), None, 1, -100, other=2 * 18),
]  # fmt: skip
