"""Copies around collectives: what is packed for one and taken apart after it, where weights are sharded
(`fully_shard`). Nothing is computed; each byte is read and written once."""

from __future__ import annotations

from collections.abc import Sequence

from opgraph.costs.registry import Call, each, first_input, moves


def _packed(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """All but the last tensor go into that, or into a part of it."""
    return sum(sizes[:-1]), sum(sizes[:-1])


def _unpacked(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """The first tensor goes into the others."""
    return sum(sizes[1:]), sum(sizes[1:])


def _copied(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """The second tensor goes into the first."""
    return sizes[1], sizes[0]


moves(_packed, "fsdp.all_gather_copy_in fsdp.chunk_cat fsdp.chunk_cat_mixed_dtype")
moves(_unpacked, "fsdp.split_with_sizes_copy")
moves(_copied, "fsdp.copy_")

each("copy", first_input, "derived here, nothing is computed", {
    "": "fsdp.all_gather_copy_in fsdp.split_with_sizes_copy fsdp.chunk_cat "
    "fsdp.chunk_cat_mixed_dtype fsdp.copy_",
})  # fmt: skip
