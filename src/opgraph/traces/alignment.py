"""Which operators of a trace are which positions of a graph: the longest common subsequence, exact, by
bits (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004), so that thousands of operators against
thousands of nodes take milliseconds."""

from __future__ import annotations

from collections.abc import Sequence

_WORTH = 0.5
"""What each operator passed over costs against each one matched, where one run of the graph ends."""


def matched(masks: Sequence[int], width: int) -> list[int | None]:
    """The position (from 0) of each item in a sequence of `width` positions, in rising order, as many as
    can be; `masks[i]` has a bit for every position that item i may have."""
    full = (1 << width) - 1
    row = full
    rows = [row]
    for mask in masks:
        both = row & mask
        row = ((row + both) | (row - both)) & full
        rows.append(row)
    found: list[int | None] = [None] * len(masks)
    item, position = len(masks), width
    while item and position:
        bit = 1 << (position - 1)
        if rows[item] & bit:
            position -= 1
            continue
        item -= 1
        if masks[item] & bit:
            position -= 1
            found[item] = position
    return found


def one_run(masks: Sequence[int | None], width: int) -> int:
    """How many of the first items belong to one run of the sequence, where it may be run again and again:
    up to there nearly every item matches, and after it hardly one does. None stands for an item that can
    match none and says nothing. 0 where too few match."""
    full = (1 << width) - 1
    row = full
    worth = best = 0.0
    cost, end = 0.0, 0
    for i, mask in enumerate(masks, 1):
        if mask is not None:
            both = row & mask
            row = ((row + both) | (row - both)) & full
            cost += _WORTH
            worth = width - row.bit_count() - cost
        if worth > best or (mask is None and worth == best > 0):
            best, end = worth, i
    return end
