"""The caching allocator of a GPU, by hand."""

from __future__ import annotations

import pytest

from opgraph.analysis.memory import Reserved, reserve, rounded
from opgraph.record.graph import Storage

MIB = 1 << 20


@pytest.mark.parametrize(("size", "block"), [(1, 512), (512, 512), (513, 1024), (MIB, MIB)])
def test_blocks_are_multiples_of_512_bytes(size, block):
    assert rounded(size) == block


@pytest.mark.parametrize(
    ("kept", "storages", "allocated", "reserved"),
    [
        # Small blocks share 2 MiB, the others below 10 MiB share 20 MiB, a large one has its own.
        ([100], [], 512, 2 * MIB),
        ([MIB, MIB], [], 2 * MIB, 2 * MIB),
        ([MIB, MIB, 1], [], 2 * MIB + 512, 4 * MIB),
        ([MIB + 1], [], MIB + 512, 20 * MIB),
        ([9 * MIB, 9 * MIB], [], 18 * MIB, 20 * MIB),
        ([11 * MIB], [], 12 * MIB, 12 * MIB),
        # What was freed is taken again, by the smallest block that fits.
        ([], [(30, 0, 1), (30, 1, 2)], 30 * MIB, 30 * MIB),
        ([], [(30, 0, 1), (20, 1, 2), (10, 1, 2)], 30 * MIB, 30 * MIB),
        ([], [(30, 0, 2), (20, 0, 1), (20, 1, 2)], 50 * MIB, 50 * MIB),
        # What is left is not split off unless it is more than 1 MiB, and counts.
        ([], [(30, 0, 1), (29, 1, 2)], 30 * MIB, 30 * MIB),
        # Free neighbours become one: 20 and 10 MiB of one segment hold 30 again.
        ([], [(30, 0, 1), (20, 1, 2), (10, 1, 3), (30, 3, 4)], 30 * MIB, 30 * MIB),
        # Fragmentation: 25 free MiB in two pieces hold no 20.
        ([], [(30, 0, 1), (12, 1, 2), (5, 1, 4), (13, 1, 2), (20, 2, 3)], 30 * MIB, 50 * MIB),
        # Made and freed within one kernel.
        ([], [(30, 0, 0), (30, 0, 1)], 30 * MIB, 30 * MIB),
    ],
)  # fmt: skip
def test_segments_by_hand(kept, storages, allocated, reserved):
    held = [Storage(size * MIB, born, died) for size, born, died in storages]
    assert reserve(kept, held, 5) == Reserved(allocated, reserved)
