"""Reductions, softmax, normalizations and losses: FLOPs by the elements that they read."""

from __future__ import annotations

from math import log2, prod

from opgraph.costs.formulas.elementwise import DECOMPOSITION, DEFINITION
from opgraph.costs.registry import Call, Formula, Sizes, each, first_input, formula, formulas

each("reduction", first_input, DEFINITION, {
    "sum": "sum mean cumsum",
    "product": "prod cumprod",
    "comparison": "amax amin max min argmax argmin any all equal cummax cummin _cummax_helper "
    "_cummin_helper _is_all_true _is_any_true",
    "comparison, comparison": "aminmax",
    "comparison, sum": "nansum count_nonzero",
    "square, sum": "norm linalg_vector_norm",
    "difference, square, sum": "dist",
    "exp, sum, log": "logcumsumexp",
    # As for softmax, the maximum is taken away first.
    "comparison, difference, exp, sum": "logsumexp",
    "sum, difference, square, sum": "var std var_mean std_mean",
})  # fmt: skip
each("softmax", first_input, "torch/_decomp/decompositions.py, without work by the row, counted here", {
    "comparison, difference, exp, sum, quotient": "_softmax _safe_softmax softmax",
    "comparison, difference, exp, sum, difference": "_log_softmax log_softmax",
})  # fmt: skip
each("normalization", first_input, 'Ba, Kiros and Hinton, "Layer Normalization", 2016; Wu and He, '
     '"Group Normalization", 2018; counted here', {
    "sum, difference, square, sum, product, product, sum": "native_layer_norm native_group_norm",
})  # fmt: skip
each("normalization", first_input, 'Ioffe and Szegedy, "Batch Normalization", 2015, algorithms 1-2, '
     "counted here", {
    "sum, difference, square, sum, product, product, sum":
        "_batch_norm_with_update _batch_norm_with_update_functional",
    "difference, product, product, sum":
        "_native_batch_norm_legit_no_training _batch_norm_no_update",
})  # fmt: skip
each("normalization", first_input, 'Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, '
     "counted here", {
    "square, sum, product, product": "_fused_rms_norm rms_norm",
})  # fmt: skip
each("normalization", first_input, 'Salimans and Kingma, "Weight Normalization", 2016, counted here', {
    "square, sum, product": "_weight_norm_interface",
})  # fmt: skip


@formula(
    "normalization",
    "aten.native_batch_norm", "aten._native_batch_norm_legit", "aten.cudnn_batch_norm",
    "aten._native_batch_norm_legit_functional", "aten.miopen_batch_norm",
)  # fmt: skip
def batch_norm(call: Call) -> int:
    """7 an element with the statistics of the batch (as layer normalization), 4 where they are given; the
    first boolean argument says which.

    Source: Ioffe and Szegedy, "Batch Normalization", 2015, algorithms 1 and 2, counted here.
    """
    training = next((a for a in call.args if isinstance(a, bool)), True)
    return (7 if training else 4) * call.input_elements


@formula("reduction", "aten._cdist_forward")
def cdist(call: Call) -> int:
    """Difference, square and sum for each feature of each pair.

    Source: derived here, from the definition of the distance, without the root of each pair.
    """
    return 3 * call.output_elements * call.inputs[0][-1]


@formula("reduction", "aten._cdist_backward")
def cdist_backward(call: Call) -> int:
    """Difference, two products with what depends on the distance, and sum, for each feature of each pair.

    Source: derived here, from the derivative of the distance.
    """
    return 4 * prod(call.inputs[3]) * call.inputs[1][-1]


# Probabilities of all ways of spelling: log-sums of three exponentials (two maxima, three differences,
# three exponentials, two sums, a logarithm, a sum) and a sum with the letter's, for each step and each of
# 2 l + 1 places at and between letters.
_WAYS = 13


@formula("reduction", "aten._ctc_loss")
def ctc_loss(call: Call) -> int:
    """13 for each step and place: the second result is [sequences, steps, 2 * letters + 1].

    Source: Graves et al., "Connectionist Temporal Classification", 2006, equations 6 and 7, in logarithms.
    """
    return _WAYS * prod(call.outputs[1])


@formula("reduction", "aten._ctc_loss_backward")
def ctc_loss_backward(call: Call) -> int:
    """The same backwards in time, and for each place a sum of both, and a log-sum of two (maximum, two
    differences, two exponentials, sum, logarithm, sum): 22; for each letter and step of the
    log-probabilities two exponentials, a sum, two differences.

    Source: as `ctc_loss`, equations 10, 15 and 16.
    """
    return (_WAYS + 9) * prod(call.inputs[-1]) + 5 * prod(call.inputs[1])


@formula("reduction", "aten.trace")
def trace(call: Call) -> int:
    """A sum for each element of the diagonal.

    Source: the definition in torch's documentation.
    """
    return min(call.inputs[0])


def _loss(operations: str) -> Formula:
    flops = operations.count(",") + 1

    def work(call: Call) -> int:
        reduced = call.output_elements != call.input_elements
        return (flops + reduced) * call.input_elements

    return Formula(
        "reduction", work, f"{DECOMPOSITION}: {operations}, and a sum where it is reduced"
    )


for _name, _operations in {
    "mse_loss": "difference, square",
    "smooth_l1_loss": "difference, abs, comparison, square, product, quotient",
    "huber_loss": "difference, abs, comparison, square, product",
    # Each logarithm is held above -100.
    "binary_cross_entropy": "difference, log, comparison, product, difference, log, comparison, product, "
    "difference",
    "binary_cross_entropy_with_logits": "difference, product, comparison, abs, exp, log, difference, "
    "difference",
}.items():
    formulas[f"aten.{_name}"] = _loss(_operations)


@formula("reduction", "aten.nll_loss_forward", "aten.nll_loss2d_forward")
def nll_loss(call: Call) -> int:
    """One logarithm is picked for each target, multiplied by its weight and summed: 2 a target, however
    many classes there are.

    Source: torch/_decomp/decompositions.py (_nll_loss_forward), counted here.
    """
    return 2 * prod(call.inputs[1])


# Sorting, selecting and searching: FLOPs are comparisons.

each("sorting", first_input, "derived here, one pass over the elements", {
    "comparison": "nonzero nonzero_static unique_consecutive",
    "sum": "bincount",
    "difference, product, rounding, sum": "histc",
})  # fmt: skip


def _along(sizes: Sizes, dim: int | None) -> int:
    """Elements along a dimension; all of them without one."""
    return prod(sizes) if dim is None else (sizes[dim] if sizes else 1)


def _integers(call: Call) -> list[int]:
    return [a for a in call.args[1:] if type(a) is int]


@formula("sorting", "aten.sort", "aten.argsort", "aten.mode", "aten.unique_dim")
def sort(call: Call) -> int:
    """n log2 n comparisons along the dimension, which is the first integer among the arguments.

    Source: Knuth, "The Art of Computer Programming", volume 3, 2nd ed., 1998, section 5.2.4 (merging).
    """
    n = _along(call.inputs[0], _integers(call)[0])
    return int(call.input_elements * log2(n)) if n > 1 else 0


@formula("sorting", "aten._unique", "aten._unique2")
def unique(call: Call) -> int:
    """n log2 n comparisons of all elements.

    Source: as `sort`.
    """
    n = call.input_elements
    return int(n * log2(n)) if n > 1 else 0


@formula("sorting", "aten.topk")
def topk(call: Call) -> int:
    """n log2 k comparisons along the dimension, and n of them for the greatest alone.

    Source: std::partial_sort (C++ standard, [partial.sort]: about n log k comparisons), which
    aten/src/ATen/native/TopKImpl.h calls for a small k.
    """
    k, _ = _integers(call)
    return int(call.input_elements * max(1.0, log2(max(1, k))))


@formula("sorting", "aten.kthvalue", "aten.median", "aten.nanmedian")
def select(call: Call) -> int:
    """2 n comparisons: n, n / 2, n / 4 … as each partition leaves half of the elements.

    Source: derived here, for Hoare's "Algorithm 65: Find", 1961, with partitions that halve.
    """
    return 2 * call.input_elements


def _bisect(values: int, table: int) -> int:
    return int(values * log2(table)) if table > 1 else values


@formula("sorting", "aten.searchsorted")
def searchsorted(call: Call) -> int:
    """log2 n comparisons for each value, in the first tensor of sorted rows of n.

    Source: derived here: bisection halves what is left with each comparison.
    """
    return _bisect(call.output_elements, call.inputs[0][-1])


@formula("sorting", "aten.bucketize")
def bucketize(call: Call) -> int:
    """log2 n comparisons for each value, in n boundaries, which are the last tensor.

    Source: derived here: bisection halves what is left with each comparison.
    """
    return _bisect(call.output_elements, prod(call.inputs[-1]))


@formula("sorting", "aten.isin")
def isin(call: Call) -> int:
    """A comparison for each pair of an element and a tested one.

    Source: torch/_decomp/decompositions.py (isin), for few tested elements; it sorts many.
    """
    return prod(prod(sizes) for sizes in call.inputs)
