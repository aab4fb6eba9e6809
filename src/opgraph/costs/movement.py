"""Operators that move data: which bytes they really touch, where that is not "all that goes in and all
that comes out". Each rule gets the bytes of every tensor argument by position, the bytes of all results,
and the shapes of the arguments; it returns the bytes read and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opgraph.costs.registry import Formula, Sizes, formulas

Traffic = Callable[[Sequence[int], int, Sequence[Sizes]], tuple[int, int]]
"""From the bytes of each tensor argument (in order), of the results, and the shapes of the arguments:
bytes read and written."""

traffic: dict[str, Traffic] = {}


def _rows(sizes: Sequence[int], results: int, shapes: Sequence[Sizes]) -> tuple[int, int]:
    """A table and indices: the rows that are taken are read, not the table."""
    return sum(sizes[1:]) + min(results, sizes[0]) if sizes else 0, results


def _scatter_into(sizes: Sequence[int], results: int, shapes: Sequence[Sizes]) -> tuple[int, int]:
    """In place: the indices and the source are read, and as many bytes as the source are written."""
    moved = sizes[-1] if len(sizes) > 1 else 0
    return sum(sizes[1:]), moved


def _overwrite(sizes: Sequence[int], results: int, shapes: Sequence[Sizes]) -> tuple[int, int]:
    """The first tensor is written without being read."""
    return sum(sizes[1:]), sizes[0] if sizes else results


def _make(sizes: Sequence[int], results: int, shapes: Sequence[Sizes]) -> tuple[int, int]:
    """Only the results are written: what goes in gives no more than its shape."""
    return 0, results


def _nothing(sizes: Sequence[int], results: int, shapes: Sequence[Sizes]) -> tuple[int, int]:
    return 0, 0


def _experts(sizes: Sequence[int], results: int, shapes: Sequence[Sizes]) -> tuple[int, int]:
    """Rows shared out to experts, [rows, k] @ [experts, k, n]: an expert is read if it has a row, so there
    are at most as many of them as rows."""
    rows, weights = shapes[:2]
    if len(rows) != 2 or len(weights) != 3:
        return sum(sizes), results
    used = min(rows[0], weights[0])
    return sum(sizes) - sizes[1] + sizes[1] * used // max(1, weights[0]), results


def _register(rule: Traffic, names: str) -> None:
    for name in names.split():
        traffic[f"aten.{name}"] = rule


_register(
    _rows, "embedding index index_select gather take take_along_dim _unsafe_index masked_select"
)
_register(
    _scatter_into,
    "index_put_ index_copy_ index_add_ scatter_ scatter_add_ scatter_reduce_ "
    "index_fill_ masked_scatter_ _index_put_impl_ _unsafe_index_put_",
)
_register(_overwrite, "copy_ fill_ zero_ uniform_ normal_ bernoulli_ random_ exponential_")
_register(
    _make,
    "zeros_like ones_like full_like rand_like randn_like randint_like new_zeros new_ones new_full",
)
_register(
    _nothing,
    "empty empty_like new_empty empty_strided new_empty_strided empty_permuted "
    "resize_ set_ _local_scalar_dense equal",
)

_register(_experts, "_grouped_mm")

_MOVES = {
    "indexing": "embedding index index_select gather take take_along_dim _unsafe_index masked_select "
    "index_put index_copy index_fill scatter slice_scatter select_scatter diagonal_scatter "
    "masked_scatter index_put_ index_copy_ index_fill_ scatter_ masked_scatter_ _index_put_impl_ "
    "_unsafe_index_put _unsafe_index_put_ one_hot equal",
    "copy": "cat stack constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d "
    "replication_pad1d replication_pad2d replication_pad3d repeat repeat_interleave flip roll "
    "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle im2col col2im unfold_copy "
    "tile resize_ set_ split_with_sizes_copy split_copy expand_copy view_copy slice_copy select_copy "
    "permute_copy transpose_copy t_copy squeeze_copy unsqueeze_copy as_strided_scatter block_diag "
    "cartesian_prod meshgrid unbind_copy narrow_copy to_mkldnn to_dense _to_dense "
    "_nested_tensor_from_mask _pin_memory random_ rot90 diag_embed diag vander",
}
for _category, _names in _MOVES.items():
    for _name in _names.split():
        formulas.setdefault(f"aten.{_name}", Formula(_category, lambda call: 0))

for _name in (
    "index_add",
    "index_add_",
    "scatter_add",
    "scatter_add_",
    "scatter_reduce",
    "scatter_reduce_",
    "embedding_bag",
    "_embedding_bag",
    "_embedding_bag_forward_only",
):
    formulas[f"aten.{_name}"] = Formula(
        "indexing", lambda call: max((_product(s) for s in call.inputs[1:]), default=0)
    )


def _product(sizes: Any) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
