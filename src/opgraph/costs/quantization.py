"""Element-wise work on quantized numbers: torch's own quantized tensors and bitsandbytes."""

from __future__ import annotations

from opgraph.costs.elementwise import DEFINITION
from opgraph.costs.registry import each, first_output

each("elementwise", first_output, DEFINITION, {
    "quotient, rounding, sum, comparison, comparison": "quantize_per_tensor quantize_per_channel",
    "difference, product": "dequantize",
})  # fmt: skip
each("elementwise", first_output, "as in floating point; scales are folded (derived here)", {
    "": "quantized.cat",
    "sum": "quantized.add",
    "product": "quantized.mul",
    "comparison": "quantized.cat_relu",
    "sum, comparison": "quantized.add_relu",
    "product, comparison": "quantized.mul_relu",
    "comparison, product": "quantized.leaky_relu",
    "comparison, comparison": "quantized.relu6",
    "comparison, exp, product": "quantized.elu",
    "exp, sum, reciprocal": "quantized.sigmoid",
    "sum, comparison, comparison, product, quotient": "quantized.hardswish",
})  # fmt: skip
each("elementwise", first_output, "bitsandbytes/backends/default/ops.py, counted here", {
    # The place in a table of 256 codes is found by bisection: 8 comparisons.
    "abs, comparison, product, comparison, comparison" + 8 * ", comparison":
        "bitsandbytes.quantize_blockwise",
    "abs, comparison, product, rounding": "bitsandbytes.int8_vectorwise_quant",
    "product": "bitsandbytes.dequantize_blockwise bitsandbytes.dequantize_4bit",
    "product, product": "bitsandbytes.int8_vectorwise_dequant",
    "product, product, product": "bitsandbytes.int8_mm_dequant",
})  # fmt: skip
