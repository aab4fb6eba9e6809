"""Gradients of work that is not a contraction: FLOPs by the elements of the incoming gradient, which is
the first tensor, where nothing else is said. (Gradients of contractions are in torch's own registry; those
of pooling and interpolation are beside their forwards; plain element-wise operators are tagged as pointwise
and count one operation an element.)"""

from __future__ import annotations

from math import prod

from opgraph.costs.formulas.elementwise import DECOMPOSITION
from opgraph.costs.registry import Call, Formula, each, first_input, formula, formulas

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
