"""Quantized tensors of torch and of bitsandbytes: 4 x 6 = 24 elements, or products of 2 x 3 rows."""

from __future__ import annotations

import warnings

import torch
from tests.costs.hand import case, floats, whole

X = floats(4, 6)
ROWS, RESULT = floats(2, 3, 8), floats(2, 3, 5)
PRODUCT = 2 * 6 * 8 * 5
FLOAT = torch.float32


def packed(prepack: str, *sizes: int, **how: object) -> object:
    """A weight in the form that torch keeps it packed in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weight = torch.quantize_per_tensor(torch.ones(sizes), 1.0, 0, torch.qint8)
        return getattr(torch.ops.quantized, prepack)(weight, None, *how.values())


def packed_filter(dims: int) -> object:
    """A filter of 6 outputs in 2 groups, each of 2 channels and 3 places a side."""
    one, none = [1] * dims, [0] * dims
    return packed(
        f"conv{dims}d_prepack", 6, 2, *[3] * dims, stride=one, padding=none, dilation=one, groups=2
    )


LINEAR = packed("linear_prepack", 5, 8)
FILTERS = {dims: packed_filter(dims) for dims in (1, 2, 3)}
HALF = torch.ops.quantized.linear_prepack_fp16(torch.ones(5, 8), None)

CASES = [
    # x / scale, rounded, + zero point, held between two bounds; and back: - zero point, * scale.
    *case("quantize_per_tensor", X, 1.0, 0, torch.qint8, gives=whole(4, 6), other=5 * 24, bytes=(96, 24)),
    *case("quantize_per_channel", X, floats(4), floats(4), 0, torch.qint8, gives=whole(4, 6),
          other=5 * 24),
    *case("dequantize", whole(4, 6), gives=X, other=2 * 24, bytes=(24, 96)),
    # As of floats: see `elementwise`.
    *case("quantized.add quantized.mul", X, X, 1.0, 0, gives=X, other=24),
    *case("quantized.add_relu quantized.mul_relu", X, X, 1.0, 0, gives=X, other=2 * 24),
    *case("quantized.hardswish", X, 1.0, 0, gives=X, other=5 * 24),
    *case("quantized.sigmoid", X, 1.0, 0, gives=X, other=3 * 24),
    *case("quantized.leaky_relu", X, 0.1, False, 1.0, 0, gives=X, other=2 * 24),
    *case("quantized.elu", X, 1.0, 0, gives=X, other=3 * 24),
    *case("quantized.relu6", X, gives=X, other=2 * 24),
    *case("quantized.cat", [X, X], 0, None, None, gives=floats(8, 6)),
    *case("quantized.cat_relu", [X, X], 0, None, None, gives=floats(8, 6), other=48),
    *case("quantized.linear quantized.linear_relu", ROWS, LINEAR, 1.0, 0, gives=RESULT, flops=PRODUCT,
          bytes=(4 * 48 + 40, 4 * 30)),
    *case("quantized.linear_dynamic quantized.linear_relu_dynamic", ROWS, LINEAR, gives=RESULT,
          flops=PRODUCT),
    *case("quantized.linear_dynamic_fp16", ROWS, HALF, gives=RESULT, flops=PRODUCT),
    # Each of 6 x 3 (x 3 (x 3)) results sums over 2 channels and 3 (x 3 (x 3)) places.
    *case("quantized.conv1d quantized.conv1d_relu", floats(1, 4, 5), FILTERS[1], 1.0, 0,
          gives=floats(1, 6, 3), flops=2 * 6 * 3 * 2 * 3),
    *case("quantized.conv2d quantized.conv2d_relu", floats(1, 4, 5, 5), FILTERS[2], 1.0, 0,
          gives=floats(1, 6, 3, 3), flops=2 * 6 * 9 * 2 * 9),
    *case("quantized.conv3d quantized.conv3d_relu", floats(1, 4, 5, 5, 5), FILTERS[3], 1.0, 0,
          gives=floats(1, 6, 3, 3, 3), flops=2 * 6 * 27 * 2 * 27),
    # Products with weights of 8 and of 4 bits, two in a byte.
    *case("bitsandbytes.int8_linear_matmul", whole(2, 3, 8), whole(5, 8), flops=PRODUCT),
    *case("bitsandbytes.int8_scaled_mm", whole(2, 3, 8), whole(5, 8), floats(6), floats(5), gives=RESULT,
          flops=PRODUCT),
    *case("bitsandbytes.gemv_4bit", ROWS, whole(20, 1), [5, 8], floats(1), floats(16), 64, gives=RESULT,
          flops=PRODUCT),
    *case("bitsandbytes.gemm_4bit", ROWS, whole(20, 1), [5, 8], floats(1), 64, "nf4", gives=RESULT,
          flops=PRODUCT),
    # |x|, the greatest, x * 127 / it, rounded. |x|, the greatest, x / it, held between two bounds, and its
    # place among 256 codes: log2 256.
    *case("bitsandbytes.int8_vectorwise_quant", X, gives=whole(4, 6), other=4 * 24),
    *case("bitsandbytes.quantize_blockwise", X, floats(256), 64, gives=whole(4, 6), other=(5 + 8) * 24),
    # A code, looked up, times the scale of its block; times the scale of a row and 1 / 127; times the
    # scales of row and column, and a constant.
    *case("bitsandbytes.dequantize_blockwise", whole(4, 6), floats(1), floats(256), 64, FLOAT, gives=X,
          other=24),
    *case("bitsandbytes.dequantize_4bit", whole(12, 1), floats(1), 64, "nf4", [4, 6], FLOAT, gives=X,
          other=24),
    *case("bitsandbytes.int8_vectorwise_dequant", whole(4, 6), floats(4), gives=X, other=2 * 24),
    *case("bitsandbytes.int8_mm_dequant", floats(4, 6, dtype=torch.int32), floats(4), floats(6), gives=X,
          other=3 * 24),
]  # fmt: skip
