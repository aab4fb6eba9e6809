"""Columns: a level that would get too long is broken between ranks, as a text is broken into lines, and
its lines run on from the end of one column to the beginning of the next."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import log

from opgraph.views.drawing.layout.spacing import Spacing
from opgraph.views.drawing.layout.tracks import Run

MOST_COLUMNS = 40


@dataclass(frozen=True, slots=True)
class Column:
    """The ranks `first` to `last` (inclusive), moved by `across` and `along`."""

    first: int
    last: int
    across: float = 0.0
    along: float = 0.0


@dataclass(frozen=True, slots=True)
class Ranks:
    """What breaking into columns needs to know of ranks: where each begins and ends along the flow, how
    wide it is, and the runs across the gap below it; and where columns begin."""

    tops: list[float]
    bottoms: list[float]
    widths: list[float]
    runs: list[dict[int, Run]]
    top: float

    @property
    def length(self) -> float:
        return self.bottoms[-1] - self.tops[0]


def choose_cuts(ranks: Ranks, spacing: Spacing, *, whole_end: bool) -> list[int]:
    """The ranks after which a column ends; none where the level is not too long. With `whole_end` the
    last two ranks stay together: ports must lie right behind what they belong to."""
    best, found = _badness(ranks, [], spacing), list[int]()
    if ranks.length < spacing.longest or ranks.length < spacing.slimmest * max(ranks.widths):
        return found
    for count in range(2, MOST_COLUMNS + 1):
        cuts = _cuts(ranks, count, whole_end)
        if len(cuts) + 1 < count:
            break
        badness = _badness(ranks, cuts, spacing)
        if badness < best:
            best, found = badness, cuts
    return found


def _badness(ranks: Ranks, cuts: list[int], spacing: Spacing) -> float:
    """How much room columns take, how far from the wanted proportions they are, and how many lines must
    run on."""
    spans = _spans(cuts, len(ranks.tops))
    length = max(ranks.bottoms[last] - ranks.tops[first] for first, last in spans)
    width = sum(max(ranks.widths[first : last + 1]) for first, last in spans)
    width += sum(spacing.gutter + len(ranks.runs[c]) * spacing.track for c in cuts)
    length, width = max(length, 1.0), max(width, 1.0)
    crossing = sum(len(ranks.runs[c]) - 1 for c in cuts)
    return log(length * width) + 0.5 * abs(log(length / width / spacing.wanted)) + 0.03 * crossing


def _spans(cuts: list[int], count: int) -> list[tuple[int, int]]:
    """The first and last rank of each column."""
    edges = [0, *(c + 1 for c in cuts), count]
    return [(first, end - 1) for first, end in pairwise(edges)]


def _cuts(ranks: Ranks, count: int, whole_end: bool) -> list[int]:
    """The ranks after which a column ends, for at most so many columns, the longest as short as can be."""
    low, high = 0.0, ranks.length
    best: list[int] = []
    for _ in range(24):
        middle = (low + high) / 2
        cuts = _filled(ranks, middle, whole_end)
        if cuts is not None and len(cuts) < count:
            high, best = middle, cuts
        else:
            low = middle
    return best


def _filled(ranks: Ranks, length: float, whole_end: bool) -> list[int] | None:
    """The cuts when columns are filled up to a length, each broken where the fewest lines cross; None
    where a single rank is longer than that."""
    cuts: list[int] = []
    last = len(ranks.tops) - (2 if whole_end else 1)
    first = 0
    while ranks.bottoms[last] - ranks.tops[first] > length:
        fitting = [
            r for r in range(first, last) if ranks.bottoms[r] - ranks.tops[first] <= length
        ]  # fmt: skip
        if not fitting:
            return None
        roomy = [
            r for r in fitting if ranks.bottoms[r] - ranks.tops[first] >= 0.6 * length
        ] or fitting[-1:]
        cut = min(roomy, key=lambda r: (len(ranks.runs[r]) * 60.0 - ranks.bottoms[r], r))
        cuts.append(cut)
        first = cut + 1
    return cuts


def columns(
    ranks: Ranks, cuts: list[int], extents: list[tuple[float, float]], spacing: Spacing
) -> list[Column]:
    """The columns between cuts: each beside the one before, with room for the lines that run on.
    `extents` are where ranks begin and end across the flow."""
    found: list[Column] = []
    at = 0.0
    for first, last in _spans(cuts, len(ranks.tops)):
        low = min(e[0] for e in extents[first : last + 1])
        high = max(e[1] for e in extents[first : last + 1])
        along = 0.0
        if found:
            lines = len(ranks.runs[first - 1])
            at += spacing.gutter + lines * spacing.track
            along = ranks.top + lines * spacing.track + spacing.arrive - ranks.tops[first]
        found.append(Column(first, last, at - low, along))
        at += high - low
    return found


def detour(
    number: int, start: tuple[float, float], edge: float, top: float, end: float, spacing: Spacing
) -> list[tuple[float, float]]:
    """The way of the line with this number from `start`, at the bottom of a column whose right edge is
    at `edge`, to the top of the next, at `end`."""
    turn = start[1] + spacing.leave + number * spacing.track
    lane = edge + spacing.gutter / 2 + number * spacing.track
    over = top + number * spacing.track
    return [start, (start[0], turn), (lane, turn), (lane, over), (end, over)]
