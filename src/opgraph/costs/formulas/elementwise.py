"""Element-wise work: FLOPs for each element that comes out.

Each table goes from the operations that make one element to the operators that do just these, and the
number of operations is the number of FLOPs. A sum, product, quotient, comparison or rounding is one, so is
a transcendental function (exp, log, erf, sin) and a draw of a random number. Choosing, moving and casting
are none; constants are folded, and so are scales that are 1 unless somebody says otherwise. Operators that
torch tags as pointwise and that are in no table count one (`count`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from opgraph.costs.registry import Call, Formula, each, first_input, first_output, formula, formulas

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
each("elementwise", first_input, "the definition of `torch.amp.GradScaler` in torch's documentation", {
    "comparison, sum, comparison, product": "_amp_update_scale_",
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


# Cells of recurrent layers, whose products are kernels of their own, by elements of the state.


@formula("elementwise", "aten._thnn_fused_lstm_cell")
def lstm_cell(call: Call) -> int:
    """Four gates, each a sum, with two biases two more; three sigmoids (3 each), a tanh; two products and a
    sum for the cell, its tanh and a product for the state.

    Source: derived here, from the equations of torch.nn.LSTMCell.
    """
    return (19 + 8 * (len(call.inputs) > 3)) * prod(call.outputs[0])


@formula("elementwise", "aten._thnn_fused_gru_cell")
def gru_cell(call: Call) -> int:
    """Two gates, each a sum and a sigmoid (3); a product, a sum and a tanh for the new state; a difference,
    a product and a sum to blend it with the old one; with biases six sums more.

    Source: derived here, from the equations of torch.nn.GRUCell.
    """
    return (14 + 6 * (len(call.inputs) > 3)) * prod(call.outputs[0])


@formula("elementwise", "aten._thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(call: Call) -> int:
    """From the tanh of the cell (1): the output gate's gradient (1), the cell's (5: two products, square,
    difference, sum), those of three gates and of the cell before (4), and through four activations (3
    each); four sums for the biases.

    Source: as `lstm_cell`, differentiated.
    """
    return (23 + 4 * bool(call.args[5])) * int(prod(call.args[2]))


@formula("elementwise", "aten._thnn_fused_gru_cell_backward")
def gru_cell_backward(call: Call) -> int:
    """The update gate's gradient (5), that of the state before (1), of the new state (5), of what the reset
    gate is multiplied with (1) and of that gate (4); six sums for the biases.

    Source: as `gru_cell`, differentiated.
    """
    return (16 + 6 * bool(call.args[2])) * call.input_elements


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


# Gradients of work that is not a contraction: FLOPs by the elements of the incoming gradient, which is the
# first tensor, where nothing else is said. (Gradients of contractions are in torch's own registry; those of
# pooling and interpolation are beside their forwards; plain element-wise operators are tagged as pointwise
# and count one operation an element.)


each("softmax", first_input, "torch/_decomp/decompositions.py, counted here", {
    "product, sum, product, difference": "_softmax_backward_data",
    "sum, exp, product, difference": "_log_softmax_backward_data",
})  # fmt: skip
each("normalization", first_input, DECOMPOSITION, {
    # x^ = (x - mean) / std (2), g' = g * weight; n * g', two sums and a product for them, and their
    # product with x^; two differences, a quotient; the gradients of weight (2) and bias (1).
    "difference, product, product, product, sum, product, sum, product, difference, difference, product, "
    "product, sum, sum": "native_layer_norm_backward",
    # Two sums of g * x and g; g * a + x * b + c, with a, b, c by the group.
    "product, sum, sum, product, product, sum, sum": "native_group_norm_backward",
    # x^ = x / rms, g' = g * weight; a sum of x^ * g'; (g' - x^ / n * sum) / rms; that of the weight (2).
    "product, product, product, sum, product, product, difference, product, product, sum":
        "_fused_rms_norm_backward",
    # The sum of g * v by the norm; (g - v * that / norm^2) * scale / norm: the gradient of the scale is a
    # quotient for each norm.
    "product, sum, product, difference, product": "_weight_norm_interface_backward",
    # As for a batch of a training step: see `batch_norm_backward`.
    "sum, difference, product, sum, difference, product, difference, difference, product":
        "cudnn_batch_norm_backward miopen_batch_norm_backward",
})  # fmt: skip
each("pooling", first_input, "derived here: each gradient is added at one place", {
    "sum": "max_pool2d_with_indices_backward max_pool3d_with_indices_backward "
    "adaptive_max_pool2d_backward adaptive_max_pool3d_backward",
})  # fmt: skip
each("indexing", first_input, "derived here: each gradient is added at one place", {
    "sum": "embedding_dense_backward embedding_backward unfold_backward",
})  # fmt: skip
each("indexing", first_input, "derived here: each gradient is put at a place of its own", {
    "": "slice_backward select_backward diagonal_backward value_selecting_reduction_backward",
})  # fmt: skip
each("elementwise", first_input, DECOMPOSITION, {
    "comparison": "threshold_backward",
    "comparison, comparison": "hardtanh_backward",
    "comparison, product": "leaky_relu_backward",
    "product, product": "native_dropout_backward",
    "square, difference, product": "tanh_backward",
    "difference, product, product": "sigmoid_backward",
    "comparison, product, product": "_prelu_kernel_backward",
    "comparison, comparison, product": "hardsigmoid_backward",
    "comparison, exp, product, product": "elu_backward",
    "exp, comparison, product, sum, quotient": "softplus_backward",
    "comparison, comparison, quotient, sum, product": "hardswish_backward",
    # The exponential is kept from the forward.
    "comparison, sum, quotient, product, difference, product": "log_sigmoid_backward",
    # The sigmoid (3); g * s * (1 + x * (1 - s)).
    "exp, sum, reciprocal, difference, product, sum, product, product": "silu_backward",
    # The sigmoid (3), for both halves of the result; (1 - s) * s * a * g, and s * g.
    "exp, sum, reciprocal, difference, product, product, product, product": "glu_backward",
    # The soft plus (3), its tanh t, the sigmoid s (3); g * (t + x * s * (1 - t * t)).
    "comparison, exp, log, tanh, exp, sum, reciprocal, product, square, difference, product, sum, product":
        "mish_backward",
})  # fmt: skip


@formula("elementwise", "aten.gelu_backward")
def gelu_backward(call: Call) -> int:
    """11 an element: x / sqrt 2, erf, + 1, halved; x^2, / -2, exp, times a constant, times x; sum, times g.
    For the approximation by tanh 18: the inner polynomial (5), tanh, x / 2, + 1, / 2; 1 - tanh^2 (2), the
    polynomial's derivative (3), two products, sum, times g.

    Source: torch/_decomp/decompositions.py (gelu_backward), counted here.
    """
    return (18 if call.args[2] == "tanh" else 11) * call.input_elements


@formula("normalization", "aten.native_batch_norm_backward", "aten.batch_norm_backward")
def batch_norm_backward(call: Call) -> int:
    """With the statistics of the batch 9 an element: the sums of g and of g * (x - mean) (4), and
    (g - (x - mean) * b - c) * a (5); with given ones 5: the sums, and g * a. The first boolean argument
    says which.

    Source: torch/_decomp/decompositions.py (native_batch_norm_backward), counted here.
    """
    training = next((a for a in call.args if isinstance(a, bool)), True)
    return (9 if training else 5) * call.input_elements


@formula("reduction", "aten.nll_loss_backward", "aten.nll_loss2d_backward")
def nll_loss_backward(call: Call) -> int:
    """Two products for each target, by its weight and by the share in the mean; the rest is zeros.

    Source: torch/_decomp/decompositions.py (_nll_loss_backward), counted here.
    """
    return 2 * prod(call.inputs[2])


def _of_loss(operations: str) -> Formula:
    """By the elements of the second tensor: the incoming gradient is a single number where the loss is."""
    flops = operations.count(",") + 1
    return Formula(
        "reduction", lambda call: flops * prod(call.inputs[1]), f"{DECOMPOSITION}: {operations}"
    )


for _name, _operations in {
    "mse_loss": "difference, product, product",
    "smooth_l1_loss": "difference, abs, comparison, product, quotient",
    "huber_loss": "difference, comparison, comparison, product",
    "binary_cross_entropy": "difference, product, difference, product, comparison, quotient",
}.items():
    formulas[f"aten.{_name}_backward"] = _of_loss(_operations)


@formula("elementwise", "aten._fused_adam_", "aten._fused_adamw_")
def fused_adam(call: Call) -> int:
    """For each weight: lerp of the first moment (3); the second times beta and plus a scaled square (3);
    its root, / the correction, + epsilon (3); the first over that, and added (2); a factor for the decay
    of weights where there is any.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2, counted here.
    """
    return (11 + bool(call.args[9])) * _elements(call.args[0])


@formula("elementwise", "aten._fused_sgd_")
def fused_sgd(call: Call) -> int:
    """For each weight: a factor and the gradient (2), the momentum's factor and sum if there is any (2).

    Source: the definition in torch's documentation of `torch.optim.SGD`, counted here.
    """
    return (2 + 2 * bool(call.args[4])) * _elements(call.args[0])


@formula("elementwise", "aten._amp_foreach_non_finite_check_and_unscale_")
def unscale(call: Call) -> int:
    """For each gradient a comparison (is it finite?) and a product.

    Source: the definition in torch's documentation of `torch.amp.GradScaler`, counted here.
    """
    return 2 * _elements(call.args[0])


def _elements(tensors: Iterable[Any]) -> int:
    return sum(t.numel() for t in tensors)
