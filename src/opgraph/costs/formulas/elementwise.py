"""Element-wise work: FLOPs for each element that comes out.

Each table goes from the operations that make one element to the operators that do just these, and the
number of operations is the number of FLOPs. A sum, product, quotient, comparison or rounding is one, so is
a transcendental function (exp, log, erf, sin) and a draw of a random number. Choosing, moving and casting
are none; constants are folded, and so are scales that are 1 unless somebody says otherwise. Operators that
torch tags as pointwise and that are in no table count one (`count`).
"""

from __future__ import annotations

from opgraph.costs.registry import Call, each, first_input, first_output, formula

DEFINITION = "the definition in torch's documentation, counted here"
DECOMPOSITION = "torch/_decomp/decompositions.py, counted here"

each("elementwise", first_output, DEFINITION, {
    "product, sum": "addcmul linspace",
    "quotient, sum": "addcdiv",
    "quotient, rounding": "floor_divide",
    "comparison, product": "leaky_relu prelu _prelu_kernel",
    "comparison, comparison": "hardtanh relu6",
    "difference, product, sum": "lerp",
    "product, product, difference": "linalg_cross",
    "comparison, comparison, comparison": "nan_to_num",
    "comparison, exp, product": "elu selu",
    "comparison, exp, log": "softplus",
    "exp, sum, reciprocal": "sigmoid",
    "difference, quotient, log": "logit",
    "comparison, quotient, exp, product": "celu",
    "quotient, rounding, product, difference": "remainder fmod",
    "square, square, sum, root": "hypot",
    "exp, exp, sum, log": "logaddexp logaddexp2",
    "exp, sum, reciprocal, product": "silu glu",
    "cos, sin, product, product": "polar",
    "comparison, exp, log, tanh, product": "mish",
    "product, cos, product, difference": "hann_window hamming_window",
    "product, difference, abs, difference": "bartlett_window",
    "product, cos, product, product, cos, product, difference, sum": "blackman_window",
    "square, sum, product": "_weight_norm",
})  # fmt: skip
each("elementwise", first_output, DECOMPOSITION, {
    "sum, comparison, comparison, quotient": "hardsigmoid",
    "sum, comparison, comparison, product, quotient": "hardswish",
    "comparison, abs, exp, log, difference": "log_sigmoid_forward",
    "draw, comparison, product, product": "native_dropout",
})  # fmt: skip
each("elementwise", first_output, "derived here, one draw an element", {
    "draw": "rand randn randint rand_like randn_like randint_like randperm bernoulli uniform normal "
    "normal_functional exponential geometric cauchy log_normal poisson binomial random",
    "draw, comparison, product": "rrelu_with_noise",
})  # fmt: skip
each("elementwise", first_input, "derived here, a race of exponential draws", {
    "draw, quotient, comparison": "multinomial",
})  # fmt: skip
each("copy", first_output, "derived here, nothing is computed", {
    "": "clone copy _to_copy fill zero zeros ones full empty arange eye tril triu where "
    "masked_fill scalar_tensor zeros_like ones_like full_like empty_like new_zeros new_ones new_full "
    "new_empty new_empty_strided empty_strided empty_permuted lift_fresh_copy tril_indices triu_indices "
    "_local_scalar_dense view_as_real_copy view_as_complex_copy complex",
})  # fmt: skip


@formula("elementwise", "aten.clamp")
def clamp(call: Call) -> int:
    """A comparison with each bound that is given.

    Source: the definition in torch's documentation, min(max(x, min), max), counted here.
    """
    return sum(bound is not None for bound in call.args[1:3]) * call.output_elements


@formula("elementwise", "aten.gelu")
def gelu(call: Call) -> int:
    """x / sqrt 2, erf, + 1, times x, halved: 5 an element. The approximation by tanh: x^3 (2), times
    0.044715, + x, times sqrt(2 / pi), tanh, + 1, times x, halved: 9.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)", 2016, section 2, counted here.
    """
    return (9 if call.args[1] == "tanh" else 5) * call.output_elements


# Element-wise work on quantized numbers: torch's own quantized tensors and bitsandbytes.

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
