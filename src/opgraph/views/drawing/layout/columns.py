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
    """What breaking into columns needs to know of ranks: where each begins and ends along the flow, its
    extent across, and the runs across the gap below it; and where columns begin."""

    tops: list[float]
    bottoms: list[float]
    extents: list[tuple[float, float]]
    runs: list[dict[int, Run]]
    top: float

    @property
    def length(self) -> float:
        return self.bottoms[-1] - self.tops[0]

    def width(self, first: int = 0, last: int | None = None) -> float:
        """The width of the ranks from `first` to `last`, inclusive."""
        chosen = self.extents[first : None if last is None else last + 1]
        return max(e[1] for e in chosen) - min(e[0] for e in chosen)


def columns(ranks: Ranks, spacing: Spacing, *, whole_end: bool) -> list[Column]:
    """The columns of a level, one if it is not too long. With `whole_end` the last two ranks stay
    together: ports must lie right behind what they belong to."""
    whole = Column(0, len(ranks.tops) - 1, -min(e[0] for e in ranks.extents))
    best, found = _badness(ranks, [whole], spacing), [whole]
    if ranks.length < spacing.longest or ranks.length < spacing.slimmest * ranks.width():
        return found
    for count in range(2, MOST_COLUMNS + 1):
        cuts = _cuts(ranks, count, whole_end)
        if len(cuts) + 1 < count:
            break
        tried = _put(ranks, cuts, spacing)
        badness = _badness(ranks, tried, spacing)
        if badness < best:
            best, found = badness, tried
    return found


def _badness(ranks: Ranks, tried: list[Column], spacing: Spacing) -> float:
    """How far from the wanted proportions columns are, how much of them is empty, and how many lines
    must run on."""
    right = tried[-1].across + max(e[1] for e in ranks.extents[tried[-1].first :])
    lengths = [ranks.bottoms[c.last] - ranks.tops[c.first] for c in tried]
    empty = 1.0 - sum(lengths) / len(lengths) / max(lengths)
    crossing = sum(len(ranks.runs[c.last]) - 1 for c in tried[:-1])
    return abs(log(max(lengths) / right / spacing.wanted)) + 1.5 * empty + 0.05 * crossing


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


def _put(ranks: Ranks, cuts: list[int], spacing: Spacing) -> list[Column]:
    """Columns between cuts: each beside the one before, with room for the lines that run on."""
    found: list[Column] = []
    at = 0.0
    for first, end in pairwise([0, *(c + 1 for c in cuts), len(ranks.tops)]):
        low = min(e[0] for e in ranks.extents[first:end])
        along = 0.0
        if found:
            lines = len(ranks.runs[first - 1])
            at += spacing.gutter + lines * spacing.track
            along = ranks.top + lines * spacing.track + spacing.arrive - ranks.tops[first]
        found.append(Column(first, end - 1, at - low, along))
        at += ranks.width(first, end - 1)
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
