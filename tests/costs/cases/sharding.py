"""Copies around collectives, where weights are sharded: each byte is read and written once."""

from __future__ import annotations

from tests.costs.hand import case, floats, free

PIECES, GATHERED = [floats(6), floats(2)], floats(32)  # of one rank of four, and of all

CASES = [
    # Two pieces of 6 and 2 numbers go into the part of the buffer that is this rank's.
    *case("fsdp.all_gather_copy_in", PIECES, GATHERED, [6, 2], 8, 0, bytes=(32, 32)),
    *case("fsdp.split_with_sizes_copy", floats(4, 8), [6, 2], 1, bytes=(128, 128),
          out=[floats(4, 6), floats(4, 2)]),
    *case("fsdp.chunk_cat fsdp.chunk_cat_mixed_dtype", [floats(8, 3), floats(8)], 0, 4,
          bytes=(128, 128), out=floats(4, 8)),
    *case("fsdp.copy_", floats(6), floats(6), bytes=(24, 24)),
    *free("fsdp.record_grad_output_stream", floats(6), 0, 0, 0, gives=()),
]  # fmt: skip
