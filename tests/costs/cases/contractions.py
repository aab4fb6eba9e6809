"""Matrix products, convolutions, attention and recurrent layers: 2 FLOPs for each product and sum."""

from __future__ import annotations

import torch
from tests.costs.hand import case, complexes, floats, ints, whole
from torch.sparse import semi_structured

# These two operators are made with the first weight that needs them.
for name in ("_ensure_cutlass_mm_registered", "_ensure_cusparselt_mm_registered"):
    getattr(semi_structured, name, bool)()  # torch before 2.15 has other operators there

A, B = floats(3, 8), floats(8, 5)
AS, BS = floats(2, 3, 8), floats(2, 8, 5)
HALF = {"dtype": torch.bfloat16}
FLOAT8 = {"dtype": torch.float8_e4m3fn}
SCALE = floats(1)
# Two images of 4 channels and 5 x 5, filters of 3 x 3 to 6 channels and 3 x 3 places.
IMAGE, FILTER, RESULT = floats(2, 4, 5, 5), floats(6, 4, 3, 3), floats(2, 6, 3, 3)
GROUPED = floats(6, 2, 3, 3)
ONES, ZEROS = [1, 1], [0, 0]
CONVOLUTION = 2 * 2 * 9 * 6 * 4 * 9
# Two sequences, 3 heads of 4; 5 queries meet 7 keys.
Q, K = floats(2, 3, 5, 4), floats(2, 3, 7, 4)
PRODUCT = 2 * 2 * 3 * 5 * 7 * 4
QS, KS = floats(2, 5, 3, 4), floats(2, 7, 3, 4)
L = floats(2, 3, 5)
# A GRU of two layers of 4, 3 wide: three gates, from inputs and from states.
GRU = [floats(12, 3), floats(12, 4), floats(12), floats(12), floats(12, 4), floats(12, 4), floats(12),
       floats(12)]  # fmt: skip

CASES = [
    # 3 x 8 by 8 x 5, and two of them.
    *case("mm", A, B, flops=2 * 3 * 8 * 5, bytes=(4 * (24 + 40), 4 * 15)),
    *case("addmm", floats(5), A, B, flops=2 * 3 * 8 * 5, bytes=(4 * (5 + 24 + 40), 4 * 15)),
    *case("bmm", AS, BS, flops=2 * 2 * 3 * 8 * 5, bytes=(4 * (48 + 80), 4 * 30)),
    *case("baddbmm", floats(2, 3, 5), AS, BS, flops=2 * 2 * 3 * 8 * 5),
    *case("addbmm", floats(3, 5), AS, BS, flops=2 * 2 * 3 * 8 * 5),
    *case("_scaled_mm", floats(16, 32, **FLOAT8), floats(48, 32, **FLOAT8).t(), SCALE, SCALE,
          gives=floats(16, 48), flops=2 * 16 * 32 * 48),
    *case("dot vdot", floats(7), floats(7), flops=2 * 7),
    *case("mv", A, floats(8), flops=2 * 3 * 8),
    *case("addmv", floats(3), A, floats(8), flops=2 * 3 * 8),
    *case("addr", floats(3, 5), floats(3), floats(5), flops=2 * 3 * 5),
    # x1[n, i] W[o, i, j] x2[n, j] with n = 2, o = 5, i = 3, j = 4.
    *case("_trilinear", floats(2, 3), floats(5, 3, 4), floats(2, 4), [1, 3], [0], [1, 2], [2, 3],
          gives=floats(2, 5), flops=2 * 2 * 5 * 3 * 4 + 2 * 2 * 5 * 4),
    *case("_int_mm", whole(32, 16), whole(16, 8), flops=2 * 32 * 16 * 8),
    # Half of 6 x 16 weights are kept; each meets 3 rows.
    *case("_sparse_semi_structured_linear", floats(3, 16), floats(6, 8), ints(1), gives=floats(3, 6),
          flops=2 * 3 * 6 * 8),
    *case("_sparse_semi_structured_mm", floats(6, 8), ints(1), floats(16, 3), gives=floats(6, 3),
          flops=2 * 3 * 6 * 8),
    *case("_sparse_semi_structured_addmm", floats(6), floats(6, 8), ints(1), floats(16, 3),
          gives=floats(6, 3), flops=2 * 3 * 6 * 8),
    *case("_cslt_sparse_mm", floats(6, 9), floats(16, 3), gives=floats(6, 3), flops=2 * 3 * 6 * 8),
    *case("semi_structured.cutlass_mm", floats(3, 16), floats(6, 8), ints(1), None, 6, 1, 1, True,
          gives=floats(3, 6), flops=2 * 3 * 6 * 8),
    *case("semi_structured.cusparselt_mm", floats(16, 3), floats(6, 9), floats(6), 6, 1, 1, False, 0,
          gives=floats(6, 3), flops=2 * 3 * 6 * 8),
    *case("_weight_int8pack_mm", A, whole(5, 8), floats(5), gives=floats(3, 5), flops=2 * 3 * 8 * 5),
    *case("_weight_int4pack_mm _weight_int4pack_mm_for_cpu", A, ints(1, 1, 32, 4), 32, floats(1),
          gives=floats(3, 5), flops=2 * 3 * 8 * 5),
    *case("mkldnn_linear", AS, floats(5, 8), None, gives=floats(2, 3, 5), flops=2 * 6 * 8 * 5),
    *case("mkldnn._linear_pointwise", AS, floats(5, 8), None, "none", [], "", gives=floats(2, 3, 5),
          flops=2 * 6 * 8 * 5),
    # 6 rows of 16 over 4 experts of 16 x 32, all of which are read; one row reads one expert.
    *case("_grouped_mm", floats(6, 16, **HALF), floats(4, 16, 32, **HALF), ints(4).int(),
          flops=2 * 6 * 16 * 32, bytes=(2 * (6 * 16 + 4 * 16 * 32) + 16, 2 * 6 * 32)),
    *case("_grouped_mm", floats(1, 16, **HALF), floats(4, 16, 32, **HALF), ints(4).int(),
          flops=2 * 16 * 32, bytes=(2 * (16 + 16 * 32) + 16, 2 * 32)),
    # The gradient of the weights: 16 x 6 by 6 x 32, of which each row belongs to one expert.
    *case("_grouped_mm", floats(16, 6, **HALF), floats(6, 32, **HALF), ints(4).int(),
          gives=floats(4, 16, 32, **HALF), flops=2 * 16 * 6 * 32),
    # Groups along the batch, and along the columns.
    *case("_grouped_mm", floats(4, 6, 16, **HALF), floats(4, 16, 32, **HALF), flops=2 * 4 * 6 * 16 * 32),
    *case("_grouped_mm", floats(4, 6, 16, **HALF), floats(16, 40, **HALF), ints(4).int(),
          gives=floats(6, 40, **HALF), flops=2 * 6 * 16 * 40),
    *case("_scaled_grouped_mm", floats(6, 16, **FLOAT8), floats(4, 16, 32, **FLOAT8), floats(6),
          floats(4, 32), ints(4).int(), gives=floats(6, 32, **HALF), flops=2 * 6 * 16 * 32,
          bytes=(6 * 16 + 4 * 16 * 32 + 4 * 6 + 4 * 128 + 16, 2 * 6 * 32)),
    # Each of 2 x 6 x 3 x 3 results sums over 4 x 3 x 3; of two groups over 2 x 3 x 3.
    *case("convolution convolution_overrideable", IMAGE, FILTER, None, ONES, ZEROS, ONES, False, ZEROS, 1,
          gives=RESULT, flops=CONVOLUTION),
    *case("convolution", IMAGE, GROUPED, None, ONES, ZEROS, ONES, False, ZEROS, 2, flops=CONVOLUTION // 2),
    # Transposed: each of 2 x 4 x 5 x 5 inputs meets 6 outputs and 3 x 3 places.
    *case("convolution", IMAGE, floats(4, 6, 3, 3), None, ONES, ZEROS, ONES, True, ZEROS, 1,
          flops=2 * 2 * 4 * 25 * 6 * 9),
    *case("_convolution", IMAGE, FILTER, None, ONES, ZEROS, ONES, False, ZEROS, 1, *[False] * 4,
          flops=CONVOLUTION),
    *case("cudnn_convolution", IMAGE, FILTER, ZEROS, ONES, ONES, 1, True, False, False, gives=RESULT,
          flops=CONVOLUTION),
    *case("cudnn_convolution_relu", IMAGE, FILTER, None, ONES, ZEROS, ONES, 1, gives=RESULT,
          flops=CONVOLUTION),
    *case("cudnn_convolution_add_relu", IMAGE, FILTER, RESULT, None, None, ONES, ZEROS, ONES, 1,
          gives=RESULT, flops=CONVOLUTION),
    *case("mkldnn_convolution", IMAGE, FILTER, None, ZEROS, ONES, ONES, 1, gives=RESULT, flops=CONVOLUTION),
    *case("miopen_convolution", IMAGE, FILTER, None, ZEROS, ONES, ONES, 1, False, False, gives=RESULT,
          flops=CONVOLUTION),
    *case("_slow_conv2d_forward", IMAGE, FILTER, [3, 3], None, ONES, ZEROS, gives=RESULT,
          flops=CONVOLUTION),
    *case("slow_conv_dilated2d", IMAGE, FILTER, [3, 3], gives=RESULT, flops=CONVOLUTION),
    *case("slow_conv3d_forward", floats(2, 4, 5, 5, 1), floats(6, 4, 3, 3, 1), [3, 3, 1], None, [1] * 3,
          [0] * 3, gives=floats(2, 6, 3, 3, 1), flops=CONVOLUTION),
    *case("slow_conv_dilated3d", floats(2, 4, 5, 5, 1), floats(6, 4, 3, 3, 1), [3, 3, 1],
          gives=floats(2, 6, 3, 3, 1), flops=CONVOLUTION),
    # One channel a group: 3 x 3 places for each of 2 x 4 x 3 x 3 results.
    *case("_conv_depthwise2d", IMAGE, floats(4, 1, 3, 3), [3, 3], None, ONES, ZEROS, ONES,
          gives=floats(2, 4, 3, 3), flops=2 * 2 * 4 * 9 * 9),
    *case("miopen_depthwise_convolution", IMAGE, floats(4, 1, 3, 3), None, ZEROS, ONES, ONES, 4, False,
          False, gives=floats(2, 4, 3, 3), flops=2 * 2 * 4 * 9 * 9),
    *case("conv_depthwise3d", floats(2, 4, 5, 5, 1), floats(4, 1, 3, 3, 1), [3, 3, 1], None, [1] * 3,
          [0] * 3, [1] * 3, gives=floats(2, 4, 3, 3, 1), flops=2 * 2 * 4 * 9 * 9),
    # The gradients of input and weight, each as the forward; of one of them; of two groups.
    *case("convolution_backward", RESULT, IMAGE, FILTER, None, ONES, ZEROS, ONES, False, ZEROS, 1,
          [True, True, False], flops=2 * CONVOLUTION),
    *case("convolution_backward", RESULT, IMAGE, FILTER, None, ONES, ZEROS, ONES, False, ZEROS, 1,
          [False, True, False], flops=CONVOLUTION),
    *case("convolution_backward", RESULT, IMAGE, GROUPED, None, ONES, ZEROS, ONES, False, ZEROS, 2,
          [True, True, False], flops=2 * CONVOLUTION // 2),
    # Q K^T and A V are two products; the backward makes the first again and has two gradients of each.
    *case("_scaled_dot_product_efficient_attention", Q, K, K, None, False, gives=(Q,), flops=2 * PRODUCT),
    *case("_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
          "_scaled_dot_product_attention_math_for_mps", Q, K, K, gives=(Q,), flops=2 * PRODUCT),
    *case("_scaled_dot_product_cudnn_attention", Q, K, K, None, False, gives=(Q,), flops=2 * PRODUCT),
    *case("_flash_attention_forward", QS, KS, KS, None, None, 5, 7, 0.0, False, False,
          gives=(QS,), flops=2 * PRODUCT),
    *case("_efficient_attention_forward", QS, KS, KS, None, None, None, None, None, 0.0,
          0, gives=(QS,), flops=2 * PRODUCT),
    *case("_scaled_dot_product_efficient_attention_backward", Q, Q, K, K, floats(0), Q, L, SCALE, SCALE,
          0.0, [True] * 4, gives=(Q, K, K), flops=5 * PRODUCT),
    *case("_scaled_dot_product_flash_attention_backward", Q, Q, K, K, Q, L, SCALE, SCALE, 5, 7, 0.0, False,
          SCALE, SCALE, gives=(Q, K, K), flops=5 * PRODUCT),
    *case("_scaled_dot_product_flash_attention_for_cpu_backward", Q, Q, K, K, Q, L, 0.0, False,
          gives=(Q, K, K), flops=5 * PRODUCT),
    *case("_scaled_dot_product_cudnn_attention_backward", Q, Q, K, K, Q, L, SCALE, SCALE, floats(0), SCALE,
          SCALE, 5, 7, 0.0, False, gives=(Q, K, K), flops=5 * PRODUCT),
    *case("_flash_attention_backward", QS, QS, KS, KS, QS, L, None, None, 5, 7, 0.0, False, SCALE, SCALE,
          gives=(QS, KS, KS), flops=5 * PRODUCT),
    *case("_efficient_attention_backward", QS, QS, KS, KS, None, QS, None, None, 5, 7, L, 0.0, SCALE, SCALE,
          0, False, gives=(QS, KS, KS), flops=5 * PRODUCT),
    # 2 x 3 queries meet 2 x 5 keys, 4 wide: projections of q and out, of k and v; the two products.
    *case("_native_multi_head_attention", floats(2, 3, 4), floats(2, 5, 4), floats(2, 5, 4), 4, 2,
          floats(12, 4), floats(12), floats(4, 4), floats(4), gives=(floats(2, 3, 4),),
          flops=2 * (2 * 6 * 16) + 2 * (2 * 10 * 16) + 2 * (2 * 2 * 3 * 5 * 4)),
    # The same of 3 by 3, and two linear layers between widths of 4 and 8.
    *case("_transformer_encoder_layer_fwd", floats(2, 3, 4), 4, 2, floats(12, 4), floats(12), floats(4, 4),
          floats(4), True, False, 1e-5, floats(4), floats(4), floats(4), floats(4), floats(8, 4), floats(8),
          floats(4, 8), floats(4), gives=floats(2, 3, 4),
          flops=4 * (2 * 6 * 16) + 2 * (2 * 2 * 3 * 3 * 4) + 2 * (2 * 6 * 4 * 8)),
    # An LSTM of 4 units over 5 steps of 2 sequences, 3 wide: 4 gates, from inputs and from states.
    *case("mkldnn_rnn_layer", floats(5, 2, 3), floats(16, 3), floats(16, 4), floats(16), floats(16),
          floats(1, 2, 4), floats(1, 2, 4), False, [], 2, 4, 1, True, False, False, False,
          gives=(floats(5, 2, 4),), flops=5 * 2 * 4 * (2 * 4 * 3 + 2 * 4 * 4)),
    # 5 steps of 2 sequences; for each product of the forward two.
    *case("mkldnn_rnn_layer_backward", floats(5, 2, 3), floats(16, 3), floats(16, 4), floats(16),
          floats(16), floats(2, 4), floats(2, 4), floats(5, 2, 4), floats(2, 4), floats(2, 4),
          floats(5, 2, 4), None, None, False, 2, 4, 1, True, True, False, [], False, floats(1),
          gives=(floats(5, 2, 3), floats(16, 3), floats(16, 4)), flops=2 * 5 * 2 * 2 * 16 * (3 + 4)),
    *case("_cudnn_rnn", floats(5, 2, 3), [floats(16, 3), floats(16, 4), floats(16), floats(16)], 4, None,
          floats(1, 2, 4), floats(1, 2, 4), 2, 4, 0, 1, False, 0.0, False, False, [], None,
          gives=(floats(5, 2, 4),), flops=5 * 2 * 4 * (2 * 4 * 3 + 2 * 4 * 4),
          bytes=(4 * (30 + 48 + 64 + 16 + 16 + 8 + 8), 4 * 40)),
    # 7 positions of sequences of several lengths: 3 at the first step, then 2, 1, 1.
    *case("_cudnn_rnn", floats(7, 3), [floats(16, 3), floats(16, 4), floats(16), floats(16)], 4, None,
          floats(1, 3, 4), floats(1, 3, 4), 2, 4, 0, 1, False, 0.0, False, False, [3, 2, 1, 1], None,
          gives=(floats(7, 4),), flops=7 * 4 * (2 * 4 * 3 + 2 * 4 * 4),
          bytes=(4 * (21 + 48 + 64 + 16 + 16 + 12 + 12), 4 * 28)),
    # A GRU of two layers in training: what the first gives is read again, and at each of 10 positions 6
    # states of each layer and that are kept, each of 4 numbers.
    *case("_cudnn_rnn", floats(5, 2, 3), GRU, 4, None, floats(2, 2, 4), None, 3, 4, 0, 2, False, 0.0, True,
          False, [], None, gives=(floats(5, 2, 4),), flops=5 * 2 * 3 * (2 * 4 * 3 + 3 * 2 * 4 * 4),
          bytes=(4 * (30 + 228 + 16) + 4 * 40, 4 * 40 + 4 * 40 * 13)),
    # Its backward reads the output and its gradient, too, and gives those of input and weights; that of the
    # first layer's output is written and read.
    *case("_cudnn_rnn_backward", floats(5, 2, 3), GRU, 4, floats(0), floats(2, 2, 4), None, floats(5, 2, 4),
          floats(5, 2, 4), None, None, 3, 4, 0, 2, False, 0.0, True, False, [], None, floats(0), [True] * 4,
          gives=(floats(5, 2, 3), GRU), flops=2 * 5 * 2 * 3 * (2 * 4 * 3 + 3 * 2 * 4 * 4),
          bytes=(4 * (30 + 228 + 16 + 40 + 40) + 4 * 40 * 13 + 4 * 40, 4 * (30 + 228) + 4 * 40)),
    # Two gradients for each product.
    *case("_cudnn_rnn_backward", floats(5, 2, 3), [floats(16, 3), floats(16, 4), floats(16), floats(16)], 4,
          floats(0), floats(1, 2, 4), floats(1, 2, 4), floats(5, 2, 4), floats(5, 2, 4), None, None, 2, 4,
          0, 1, False, 0.0, True, False, [], None, floats(0), [True] * 4,
          gives=(floats(5, 2, 3),), flops=2 * 5 * 2 * 4 * (2 * 4 * 3 + 2 * 4 * 4)),
    # A complex product is four real ones; one of a complex number and a real one is not run as such.
    *case("mm", complexes(4, 8), complexes(8, 12), flops=4 * 2 * 4 * 8 * 12),
    *case("bmm", complexes(3, 4, 8), complexes(3, 8, 12), flops=3 * 4 * 2 * 4 * 8 * 12),
    # A GRU has three.
    *case("miopen_rnn", floats(5, 2, 3), [floats(12, 3), floats(12, 4), floats(12), floats(12)], 4,
          floats(1, 2, 4), None, 3, 4, 1, False, 0.0, False, False, [], None,
          gives=(floats(5, 2, 4),), flops=5 * 2 * 3 * (2 * 4 * 3 + 2 * 4 * 4)),
]  # fmt: skip
