"""Element-wise operators on 4 x 6 = 24 elements: the operations that make one, times 24."""

from __future__ import annotations

import torch
from tests.costs.hand import bools, case, complexes, floats, ints

X = floats(4, 6)
CASES = [
    # self + t1 * t2, and self + t1 / t2.
    *case("addcmul addcdiv", X, X, X, other=2 * 24),
    # start + w * (end - start).
    *case("lerp", X, X, 0.5, other=3 * 24),
    # A comparison and a product; two comparisons; one with the only bound.
    *case("leaky_relu", X, other=2 * 24),
    *case("prelu _prelu_kernel", X, floats(6), other=2 * 24),
    *case("hardtanh relu6", X, other=2 * 24),
    *case("clamp", X, 0, 1, other=2 * 24),
    *case("clamp", X, 0, other=24),
    *case("clamp", X, None, X, other=24),
    # NaN and the two infinities.
    *case("nan_to_num", X, other=3 * 24),
    # Rounded quotient q, then x - q * y.
    *case("floor_divide", X, X, other=2 * 24),
    *case("remainder fmod", X, X, other=4 * 24),
    # x x, y y, sum, root; e^x, e^y, sum, log; a2 b3 - a3 b2; log(x / (1 - x)).
    *case("hypot logaddexp logaddexp2", X, X, other=4 * 24),
    *case("linalg_cross", floats(8, 3), floats(8, 3), other=3 * 24),
    *case("logit", X, other=3 * 24),
    # 1 / (1 + e^-x); times x; the same of the second half, times the first.
    *case("sigmoid", X, other=3 * 24),
    *case("silu", X, other=4 * 24),
    *case("glu", floats(4, 12), other=4 * 24),
    # x > 0, e^x - 1, times alpha; and x / alpha.
    *case("elu selu", X, other=3 * 24),
    *case("celu", X, other=4 * 24),
    # Above the threshold as it is, else log(1 + e^x), and x * tanh of that.
    *case("softplus", X, other=3 * 24),
    *case("mish", X, other=5 * 24),
    # min(x, 0) - log(1 + e^-|x|).
    *case("log_sigmoid_forward", X, other=5 * 24),
    # (x + 3) between 0 and 6, / 6; times x.
    *case("hardsigmoid", X, other=4 * 24),
    *case("hardswish", X, other=5 * 24),
    # x / sqrt 2, erf, + 1, * x, / 2; x x x (2), * c, + x, * c, tanh, + 1, * x, / 2.
    *case("gelu", X, other=5 * 24),
    *case("gelu", X, approximate="tanh", other=9 * 24),
    # The place of a draw in a race of exponential draws: draw, quotient, comparison for each category.
    *case("multinomial", X, 2, other=3 * 24),
    # Draws: one each; kept where above p, times the mask, scaled; chosen where negative, times x.
    *case("rand randn", [4, 6], other=24, device="meta"),
    *case("randint", 9, [4, 6], other=24, device="meta"),
    *case("randperm", 24, other=24, device="meta"),
    *case("rand_like randn_like", X, other=24, bytes=(0, 96)),
    *case("randint_like", X, 9, other=24, bytes=(0, 96)),
    *case("bernoulli poisson", X, other=24),
    *case("uniform normal_functional exponential cauchy log_normal random", X, other=24, gives=X),
    *case("geometric", X, 0.5, other=24),
    *case("normal", X, X, other=24),
    *case("binomial", X, X, other=24, gives=X),
    *case("native_dropout", X, 0.5, True, other=4 * 24),
    *case("rrelu_with_noise", X, X, other=3 * 24),
    # cos, sin and two products for each complex number; none to put two numbers together.
    *case("polar", X, X, other=4 * 24),
    *case("complex", X, X),
    # Windows of 24: a - b cos(c n); 1 - |c n - 1|; a - b cos(c n) + d cos(2 c n).
    *case("hann_window hamming_window bartlett_window", 24, other=4 * 24, device="meta"),
    *case("blackman_window", 24, other=8 * 24, device="meta"),
    # v * (g / |v|): squares, their sum, the product.
    *case("_weight_norm", X, floats(4, 1), other=3 * 24),
    # start + i * step; numbers of places cost nothing.
    *case("linspace", 0, 1, 24, other=2 * 24, device="meta"),
    *case("arange", 24, device="meta"),
    *case("eye", 4, 6, device="meta"),
    *case("tril_indices triu_indices", 4, 4, device="meta"),
    # Nothing is computed: bytes in and out alone, and for those that only make something, out.
    *case("clone", X, bytes=(96, 96)),
    *case("_to_copy", X, dtype=torch.float16, bytes=(96, 48)),
    *case("tril triu lift_fresh_copy", X, bytes=(96, 96)),
    *case("zeros ones", [4, 6], device="meta", bytes=(0, 96)),
    *case("full", [4, 6], 1.0, device="meta", bytes=(0, 96)),
    *case("scalar_tensor", 1.0, device="meta", bytes=(0, 4)),
    *case("where", bools(4, 6), X, X, bytes=(24 + 2 * 96, 96)),
    *case("masked_fill", X, bools(4, 6), 0.0, bytes=(96 + 24, 96)),
    *case("zeros_like ones_like", X, bytes=(0, 96)),
    *case("full_like", X, 1.0, bytes=(0, 96)),
    *case("new_zeros new_ones", X, [3, 5], bytes=(0, 60)),
    *case("new_full", X, [3, 5], 1.0, bytes=(0, 60)),
    *case("view_as_real_copy", complexes(4, 3), bytes=(96, 96)),
    *case("view_as_complex_copy", floats(4, 3, 2), bytes=(96, 96)),
    # Of 3 x 4 states: 4 gates of a sum and two biases, 3 sigmoids, a tanh; 2 products, sum, tanh, product.
    *case("_thnn_fused_lstm_cell", floats(3, 16), floats(3, 16), floats(3, 4), floats(16), floats(16),
          other=(4 * 3 + 3 * 3 + 1 + 5) * 12, bytes=(4 * (48 + 48 + 12 + 32), 4 * (12 + 12 + 48))),
    *case("_thnn_fused_lstm_cell", floats(3, 16), floats(3, 16), floats(3, 4), other=(4 + 9 + 1 + 5) * 12),
    *case("_thnn_fused_lstm_cell_backward_impl", floats(3, 4), None, floats(3, 4), floats(3, 4),
          floats(3, 16), True, other=(1 + 1 + 5 + 4 + 4 * 3 + 4) * 12),
    # 2 gates of a sum and a sigmoid, product, sum, tanh, difference, product, sum; 6 biases.
    *case("_thnn_fused_gru_cell", floats(3, 12), floats(3, 12), floats(3, 4), other=(2 * 4 + 3 + 3) * 12),
    *case("_thnn_fused_gru_cell", floats(3, 12), floats(3, 12), floats(3, 4), floats(12), floats(12),
          other=(2 * 4 + 3 + 3 + 6) * 12),
    *case("_thnn_fused_gru_cell_backward", floats(3, 4), floats(3, 20), True,
          other=(5 + 1 + 5 + 1 + 4 + 6) * 12),
    # Written without being read.
    *case("copy copy_", X, floats(6), bytes=(24, 96)),
    *case("fill fill_", X, 1.0, bytes=(0, 96)),
    *case("zero zero_", X, bytes=(0, 96)),
    *case("uniform_ normal_ bernoulli_ random_ exponential_", X, other=24, bytes=(0, 96)),
    # Nobody writes; a number is looked at.
    *case("empty", [4, 6], device="meta", bytes=(0, 0)),
    *case("empty_like", X, bytes=(0, 0)),
    *case("new_empty", X, [3], bytes=(0, 0)),
    *case("empty_strided", [4, 6], [6, 1], device="meta", bytes=(0, 0)),
    *case("new_empty_strided", X, [4, 6], [6, 1], bytes=(0, 0)),
    *case("empty_permuted", [4, 6], [0, 1], device="meta", bytes=(0, 0)),
    *case("_local_scalar_dense", ints(1), gives=1, bytes=(0, 0)),
]  # fmt: skip
