"""Looking up and writing by indices: an operation for each element that is added to or compared with
another, none for those that are only moved, and the bytes of the places that are touched rather than of the
table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch

from opgraph.costs.registry import (
    Call,
    Formula,
    Sizes,
    Traffic,
    Work,
    each,
    first_input,
    first_output,
    formula,
    formulas,
    moves,
)


def _overwrite(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """The first tensor is written without being read."""
    return sum(sizes[1:]), sizes[0] if sizes else results


def _overwrite_each(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """The tensors of the first list are written without being read."""
    count = len(call.args[0])
    return sum(sizes[count:]), sum(sizes[:count])


def _make(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """Only the results are written: what goes in gives no more than its shape."""
    return 0, results


def _nothing(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """Nobody has written yet, or a number is looked at."""
    return 0, 0


def _experts(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """Rows shared out to experts, [rows, k] @ [experts, k, n]: an expert is read if it has a row, so there
    are at most as many of them as rows."""
    rows, weights = call.inputs[:2]
    if len(rows) != 2 or len(weights) != 3:
        return sum(sizes), results
    used = min(rows[0], weights[0])
    return sum(sizes) - sizes[1] + sizes[1] * used // max(1, weights[0]), results


def _packed(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """Where weights are sharded: all but the last tensor go into that, or into a part of it."""
    return sum(sizes[:-1]), sum(sizes[:-1])


def _unpacked(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """The first tensor goes into the others."""
    return sum(sizes[1:]), sum(sizes[1:])


moves(
    _overwrite,
    "fsdp.copy_ copy copy_ fill fill_ zero zero_ uniform_ normal_ bernoulli_ random_ exponential_",
)
moves(_overwrite_each, "_foreach_copy_ _foreach_zero_")
moves(
    _make,
    "zeros_like ones_like full_like rand_like randn_like randint_like new_zeros new_ones new_full",
)
moves(
    _nothing,
    "empty empty_like new_empty empty_strided new_empty_strided empty_permuted resize_ set_ "
    "_local_scalar_dense",
)
moves(_experts, "_grouped_mm _scaled_grouped_mm", by=lambda given, _, __: given[0][0] < given[1][0])
moves(_packed, "fsdp.all_gather_copy_in fsdp.chunk_cat fsdp.chunk_cat_mixed_dtype")
moves(_unpacked, "fsdp.split_with_sizes_copy")

each("copy", first_output, "derived here, nothing is computed", {
    "": "cat stack constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d "
    "replication_pad1d replication_pad2d replication_pad3d repeat repeat_interleave flip roll rot90 "
    "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle im2col unfold_copy tile "
    "resize_ set_ split_with_sizes_copy split_copy expand_copy view_copy slice_copy select_copy "
    "permute_copy transpose_copy t_copy squeeze_copy unsqueeze_copy unbind_copy narrow_copy "
    "diagonal_copy alias_copy as_strided_copy _reshape_copy "
    "as_strided_scatter block_diag cartesian_prod meshgrid diag_embed diag to_mkldnn to_dense _to_dense "
    "_nested_tensor_from_mask _nested_tensor_from_tensor_list _pin_memory fsdp.copy_ "
    "fsdp.all_gather_copy_in fsdp.split_with_sizes_copy fsdp.chunk_cat fsdp.chunk_cat_mixed_dtype",
})  # fmt: skip
each("copy", first_input, "derived here: each element is added at one place", {
    "sum": "col2im reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward "
    "replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward",
})  # fmt: skip


def _rows(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """A table and indices: the rows that are taken are read, not the table."""
    return sum(sizes[1:]) + min(results, sizes[0]) if sizes else 0, results


def _by_rows(given: Sequence[Sizes], made: Sequence[Sizes], more: int) -> tuple[bool, bool]:
    """Whether a table is larger than what is taken of it. It may be expanded, and lie in memory once: where
    as much is read as is written, all the rest is the indices, of 1 to 8 bytes each."""
    indices = sum(map(prod, given[1:]))
    return prod(made[0]) < prod(given[0]), more in {size * indices for size in (1, 2, 4, 8)}


def _bags(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """Each index reads a row of the table, and no more than the result of a bag is written."""
    (rows, *_), indices = call.inputs[:2]
    return sum(sizes[1:]) + prod(indices) * sizes[0] // max(1, rows), results


moves(_rows, "embedding index index_select gather take take_along_dim _unsafe_index masked_select "
      "_padded_dense_to_jagged_forward _nested_from_padded",
      by=_by_rows)  # fmt: skip
moves(_bags, "embedding_bag _embedding_bag _embedding_bag_forward_only")

each("indexing", first_output, "derived here, nothing is computed", {
    "": "embedding index index_select gather take take_along_dim _unsafe_index masked_select one_hot "
    "slice_scatter select_scatter diagonal_scatter _jagged_to_padded_dense_forward "
    "_padded_dense_to_jagged_forward to_padded_tensor _nested_from_padded",
})  # fmt: skip


@formula(
    "indexing", "aten.embedding_bag", "aten._embedding_bag", "aten._embedding_bag_forward_only"
)
def embedding_bag(call: Call) -> int:
    """A sum (or a comparison) for each element of each row that is looked up: indices * width.

    Source: the definition of torch.nn.EmbeddingBag, counted here.
    """
    return prod(call.inputs[1]) * call.inputs[0][-1]


def _by_index(call: Call) -> int:
    """An element of the index, the second tensor, says where one element goes."""
    return prod(call.inputs[1])


def _by_source(call: Call) -> int:
    """Every element of the source, the third tensor, is written."""
    return prod(call.inputs[2])


def _by_slices(call: Call) -> int:
    """Each index stands for a slice of the first tensor along a dimension."""
    length = call.inputs[0][int(call.args[1])]
    return call.input_elements // max(1, length) * prod(call.inputs[1])


def _by_mask(call: Call) -> int:
    """As many as the mask lets through, at most all it covers and all of the source."""
    return min(prod(sizes) for sizes in call.inputs[1:3])


def _by_indices(call: Call) -> int:
    """The indices, broadcast, times the dimensions without one. What a mask lets through is in the data:
    then the values say how many, or, where there is only one, all elements."""
    indices = [(i, index) for i, index in enumerate(call.args[1]) if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for _, index in indices):
        values = prod(call.inputs[-1])
        return values if values > 1 else call.input_elements
    whole = prod(n for i, n in enumerate(call.inputs[0]) if i not in dict(indices))
    return whole * int(prod(torch.broadcast_shapes(*(index.shape for _, index in indices))))


def _accumulates(call: Call) -> bool:
    """`put` and `index_put` add where their fourth argument says so."""
    return call.args[3] is True


def _reduces(call: Call) -> bool:
    """`scatter` adds or multiplies where it is told which."""
    return any(isinstance(a, str) for a in call.args)


def _always(call: Call) -> bool:
    return True


def _never(call: Call) -> bool:
    return False


def _writing(elements: Work, adds: Callable[[Call], bool]) -> Traffic:
    """In place: indices and source are read, and so many elements written; those added to are read, too."""

    def rule(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
        written = elements(call) * sizes[0] // max(1, call.input_elements)
        return sum(sizes[1:]) + written * adds(call), written

    return rule


def _adding(elements: Work, adds: Callable[[Call], bool]) -> Formula:
    source = f"derived here, an operation for each element that is added. {elements.__doc__}"
    return Formula("indexing", lambda call: elements(call) * adds(call), source)


for _names, _elements, _adds in (
    ("scatter", _by_index, _reduces),
    ("scatter_add scatter_reduce", _by_index, _always),
    ("put", _by_index, _accumulates),
    ("index_add index_reduce", _by_source, _always),
    ("index_copy", _by_source, _never),
    ("index_fill", _by_slices, _never),
    ("masked_scatter", _by_mask, _never),
    ("index_put _index_put_impl", _by_indices, _accumulates),
):
    for _name in _names.split():
        formulas[f"aten.{_name}"] = _adding(_elements, _adds)
        moves(_writing(_elements, _adds), f"{_name}_")
formulas["aten._unsafe_index_put"] = formulas["aten.index_put"]
