"""Operators that move data: which bytes they really touch, where that is not "all that goes in and all
that comes out". Each rule gets the bytes of every tensor argument by position, the bytes of all results,
and the call; it returns the bytes read and written.

The rules are derived here, from what an operator must touch by its definition in torch's documentation;
those of indices are in `indexing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opgraph.costs.registry import Call, each, first_input, first_output

Traffic = Callable[[Sequence[int], int, Call], tuple[int, int]]
"""From the bytes of each tensor argument (in order), of the results, and the call: bytes read, written."""

traffic: dict[str, Traffic] = {}


def moves(rule: Traffic, names: str) -> None:
    """Register a rule for the bytes of ATen operators. Raises ValueError on duplicates."""
    for name in names.split():
        if f"aten.{name}" in traffic:
            raise ValueError(f"aten.{name} has a rule already")
        traffic[f"aten.{name}"] = rule


def _overwrite(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """The first tensor is written without being read."""
    return sum(sizes[1:]), sizes[0] if sizes else results


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


moves(
    _overwrite,
    "copy copy_ fill fill_ zero zero_ uniform_ normal_ bernoulli_ random_ exponential_",
)
moves(
    _make,
    "zeros_like ones_like full_like rand_like randn_like randint_like new_zeros new_ones new_full",
)
moves(
    _nothing,
    "empty empty_like new_empty empty_strided new_empty_strided empty_permuted resize_ set_ "
    "_local_scalar_dense",
)
moves(_experts, "_grouped_mm _scaled_grouped_mm")

each("copy", first_output, "derived here, nothing is computed", {
    "": "cat stack constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d "
    "replication_pad1d replication_pad2d replication_pad3d repeat repeat_interleave flip roll rot90 "
    "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle im2col unfold_copy tile "
    "resize_ set_ split_with_sizes_copy split_copy expand_copy view_copy slice_copy select_copy "
    "permute_copy transpose_copy t_copy squeeze_copy unsqueeze_copy unbind_copy narrow_copy "
    "as_strided_scatter block_diag cartesian_prod meshgrid diag_embed diag to_mkldnn to_dense _to_dense "
    "_nested_tensor_from_mask _pin_memory",
})  # fmt: skip
each("copy", first_input, "derived here: each element is added at one place", {
    "sum": "col2im reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward "
    "replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward",
})  # fmt: skip
