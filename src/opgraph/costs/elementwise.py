"""Element-wise work: FLOPs for each element that comes out.

A figure counts the arithmetic of the definition, and a transcendental function (exp, log, erf, sin) as
one operation. Operators that torch tags as pointwise and that are not listed count one.
"""

from __future__ import annotations

from opgraph.costs.registry import Call, Formula, formulas

_FLOPS_PER_ELEMENT = {
    # Two operations: a product and a sum, or a comparison and a choice.
    2: "addcmul addcdiv lerp leaky_relu threshold hardtanh clamp native_dropout remainder fmod hypot "
    "logaddexp relu6 prelu _prelu_kernel dequantize rrelu_with_noise lerp_ linalg_cross",
    # exp(-x), + 1, reciprocal; the two clamps, product and sum of the hard variants.
    3: "smooth_l1_loss huber_loss hann_window hamming_window bartlett_window blackman_window "
    "sigmoid log_sigmoid_forward softplus elu celu selu hardsigmoid logit",
    4: "binary_cross_entropy binary_cross_entropy_with_logits silu hardswish mish glu",
    # x * 0.5 * (1 + erf(x / sqrt 2)).
    5: "gelu",
    # Moving data is not arithmetic.
    0: "clone copy _to_copy to fill zero zeros ones full empty arange eye tril triu where masked_fill "
    "nan_to_num contiguous scalar_tensor zeros_like ones_like full_like empty_like new_zeros new_ones "
    "new_full new_empty new_empty_strided empty_strided lift_fresh_copy linspace tril_indices "
    "triu_indices _local_scalar_dense empty_permuted view_as_real_copy view_as_complex_copy "
    "resolve_conj resolve_neg complex polar randperm",
    1: "rand randn randint rand_like randn_like randint_like bernoulli uniform normal exponential "
    "floor_divide geometric cauchy log_normal poisson binomial random isin normal_functional "
    "quantize_per_tensor quantize_per_channel _weight_norm trace put "
    "multinomial isfinite isnan isinf bucketize",
}

_COPIES = frozenset(_FLOPS_PER_ELEMENT[0].split())


def elementwise(flops_per_element: int, category: str = "elementwise") -> Formula:
    """A formula of so many FLOPs for each element of the first result (or of the tensor written)."""

    def work(call: Call) -> int:
        return flops_per_element * (call.output_elements or call.input_elements)

    return Formula(category, work)


for _flops, _names in _FLOPS_PER_ELEMENT.items():
    for _name in _names.split():
        _formula = elementwise(_flops, "copy" if _name in _COPIES else "elementwise")
        formulas.setdefault(f"aten.{_name}", _formula)
        formulas.setdefault(f"aten.{_name}_", _formula)

for _name, _flops in {
    "add": 1, "mul": 1, "add_relu": 2, "mul_relu": 2, "hardswish": 4, "sigmoid": 3, "leaky_relu": 2,
    "elu": 3, "relu6": 2, "cat": 0, "cat_relu": 1,
}.items():  # fmt: skip
    formulas[f"quantized.{_name}"] = elementwise(_flops)

for _name, _flops in (("int8_vectorwise_quant", 2), ("dequantize_blockwise", 1), ("dequantize_4bit", 1),
                      ("int8_vectorwise_dequant", 1), ("quantize_blockwise", 2),
                      ("int8_mm_dequant", 2)):  # fmt: skip
    formulas[f"bitsandbytes.{_name}"] = elementwise(_flops)
