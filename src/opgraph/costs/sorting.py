"""Sorting, selecting and searching: FLOPs are comparisons."""

from __future__ import annotations

from math import log2, prod

from opgraph.costs.registry import Call, Sizes, each, first_input, formula

each("sorting", first_input, "derived here, one pass over the elements", {
    "comparison": "nonzero unique_consecutive",
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
