"""The frame of a laid level: from ranks with coordinates across the flow to places, lines, and columns."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf, log

from opgraph.views.picture.layout.cells import Cell, Hop, Level, Net, Spacing
from opgraph.views.picture.layout.place import packed_width

# Tracks: the horizontal parts of the lines between two ranks, one below the other, so that no two lines
# lie on each other and few cross.

NEAR = 3.0


@dataclass(slots=True)
class Run:
    """The part of a net in one gap: it comes from above at `start`, leaves below at `ends`, and has a
    horizontal part on a track in between, unless it is straight."""

    net: Net
    start: float
    ends: list[float]
    track: int = -1

    @property
    def low(self) -> float:
        return min(self.start, *self.ends)

    @property
    def high(self) -> float:
        return max(self.start, *self.ends)

    @property
    def straight(self) -> bool:
        return self.high - self.low < 0.5


def tracks(hops: list[Hop]) -> tuple[dict[int, Run], int]:
    """The runs of a gap by net id, and their tracks."""
    runs: dict[int, Run] = {}
    for hop in hops:
        run = runs.setdefault(hop.net.id, Run(hop.net, hop.start, []))
        run.ends.append(hop.end)
    bent = sorted(
        (r for r in runs.values() if not r.straight), key=lambda r: (r.low, r.high, r.net.id)
    )
    ordered: list[Run] = []
    for run in bent:
        _insert(run, ordered)
    count = 0
    for position, run in enumerate(ordered):
        run.track = 1 + max((o.track for o in ordered[:position] if _overlap(o, run)), default=-1)
        count = max(count, run.track + 1)
    return runs, count


def _overlap(a: Run, b: Run) -> bool:
    return a.low < b.high + NEAR and b.low < a.high + NEAR


def _insert(run: Run, ordered: list[Run]) -> None:
    """Put a run among others where it crosses the fewest lines."""
    cost = sum(_cost(run, other) for other in ordered)
    best, at = cost, 0
    for position, other in enumerate(ordered, start=1):
        cost += _cost(other, run) - _cost(run, other)
        if cost < best:
            best, at = cost, position
    ordered.insert(at, run)


def _cost(upper: Run, lower: Run) -> int:
    """Crossings where `upper` lies above `lower`, overlaps counted often."""
    if not _overlap(upper, lower):
        return 0
    crossing = sum(lower.low - NEAR < end < lower.high + NEAR for end in upper.ends)
    crossing += upper.low - NEAR < lower.start < upper.high + NEAR
    shared = sum(abs(end - lower.start) < NEAR for end in upper.ends)
    return crossing + 20 * shared


# Columns: a level that would get too long is broken between ranks, as a text is broken into lines, and
# its lines run on from the end of one column to the beginning of the next.

EMPTIEST = 0.45
"""Of the longest column's length, each fills at least so much, but in a room that is wider than long."""
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
    run on; without end where a column is mostly empty, for then lines go round the picture to little."""
    spans = _spans(cuts, len(ranks.tops))
    length = max(ranks.bottoms[last] - ranks.tops[first] for first, last in spans)
    least = 0.0 if spacing.room and spacing.room[0] > spacing.room[1] else EMPTIEST
    if any(ranks.bottoms[last] - ranks.tops[first] < least * length for first, last in spans):
        return inf
    width = sum(max(ranks.widths[first : last + 1]) for first, last in spans)
    width += sum(spacing.gutter + len(ranks.runs[c]) * spacing.track for c in cuts)
    length, width = max(length, 1.0), max(width, 1.0)
    crossing = sum(len(ranks.runs[c]) - 1 for c in cuts)
    if spacing.room:
        return max(width / spacing.room[0], length / spacing.room[1]) + 0.01 * crossing
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


Point = tuple[float, float]
Lines = dict[tuple[int, Cell], list[Point]]


@dataclass(frozen=True, slots=True)
class Laid:
    """A level that is laid out: its size across and along the flow, the middle across and the beginning
    along of each cell, and the line of each net to each of its targets."""

    width: float
    length: float
    at: dict[Cell, Point]
    lines: Lines


class Frame:
    """Places a level whose cells have ranks, order and coordinates across."""

    def __init__(self, level: Level, spacing: Spacing) -> None:
        self.level, self.spacing = level, spacing
        found = [tracks(hops) for hops in level.gaps]
        self.runs: list[dict[int, Run]] = [runs for runs, _ in found]
        self.begins = any(c.kind == "in" for c in level.ranks[0])
        self.ends = any(c.kind == "out" for c in level.ranks[-1])
        self.title = 0.0 if spacing.title_across else spacing.title
        self.tops: list[float] = []
        self.bottoms: list[float] = []
        at = 0.0 if self.begins else max(self.title, spacing.padding)
        for number, cells in enumerate(level.ranks):
            self.tops.append(at)
            self.bottoms.append(at + max(c.height for c in cells))
            if number < len(found):
                at = self.bottoms[-1] + self._gap(number, found[number][1])

    def _gap(self, number: int, count: int) -> float:
        room = self.spacing.leave + count * self.spacing.track + self.spacing.arrive
        if number == 0 and self.begins:
            return max(room, self.spacing.gap) + self.title - self.spacing.leave
        return max(room, self.spacing.gap)

    @property
    def ranks(self) -> Ranks:
        widths = [packed_width(cells, self.spacing) for cells in self.level.ranks]
        top = max(self.title, self.spacing.padding)
        return Ranks(self.tops, self.bottoms, widths, self.runs, top)

    def cuts(self) -> list[int]:
        """The ranks after which a new column is better."""
        return choose_cuts(self.ranks, self.spacing, whole_end=self.ends)

    def laid(self, cuts: list[int]) -> Laid:
        """The places and lines in columns that end at these ranks."""
        extents = [
            (min(c.u - c.width / 2 for c in cells), max(c.u + c.width / 2 for c in cells))
            for cells in self.level.ranks
        ]
        self.columns = columns(self.ranks, cuts, extents, self.spacing)
        self.column = [c for c in self.columns for _ in range(c.first, c.last + 1)]
        width = max(extents[r][1] + c.across for r, c in enumerate(self.column))
        length = self._length()
        at = {
            c: (c.u + self.column[r].across, self._begin(r, c, length))
            for r, cells in enumerate(self.level.ranks)
            for c in cells
        }
        return Laid(width, length, at, self._lines(length))

    def _length(self) -> float:
        """The end of the longest column, where ports lie."""
        longest = 0.0
        for column in self.columns:
            last = column.last
            bottom = self.bottoms[last] + column.along
            if last < len(self.runs):
                bottom += self.spacing.leave + len(self.runs[last]) * self.spacing.track
            ports = self.ends and last == len(self.level.ranks) - 1
            longest = max(longest, bottom + (0.0 if ports else self.spacing.padding))
        return longest

    def _begin(self, number: int, cell: Cell, length: float) -> float:
        if cell.kind == "out":
            return length
        room = self.bottoms[number] - self.tops[number] - cell.height
        return self.tops[number] + self.column[number].along + room / 2

    def _lines(self, length: float) -> Lines:
        found: Lines = {}
        for net in self.level.nets:
            source = net.source
            u = source.u + source.exits.get(net.id, 0.0) + self.column[source.rank].across
            points: list[Point] = [(u, self._begin(source.rank, source, length) + source.height)]
            last = max(t.rank for t in net.targets)
            for at in range(source.rank + 1, last + 1):
                for target in net.targets:
                    if target.rank == at:
                        end = self._hop(net.id, at - 1, target)
                        stop = (end[-1][0], self._begin(at, target, length))
                        found[net.id, target] = [*points, *end, stop]
                if at < last:
                    points = [*points, *self._hop(net.id, at - 1, net.chain[at])]
        return found

    def _hop(self, net: int, gap: int, lower: Cell) -> list[Point]:
        """The points where a line turns on its way across a gap."""
        run = self.runs[gap][net]
        above, below = self.column[gap], self.column[gap + 1]
        start = run.start + above.across
        end = lower.u + lower.entries.get(net, 0.0) + below.across
        if above is not below:
            return self._detour(net, gap, start, end)
        if run.straight:
            return [(end, self.bottoms[gap] + above.along)]
        v = self.bottoms[gap] + above.along + self.spacing.leave + run.track * self.spacing.track
        if gap == 0 and self.begins:
            v += self.title - self.spacing.leave
        return [(start, v), (end, v)]

    def _detour(self, net: int, gap: int, start: float, end: float) -> list[Point]:
        """The way from the end of one column to the beginning of the next; of several lines the
        rightmost turns first, so that they do not cross."""
        above, below = self.column[gap], self.column[gap + 1]
        ordered = sorted(self.runs[gap].values(), key=lambda r: (-r.start, r.net.id))
        number = next(i for i, r in enumerate(ordered) if r.net.id == net)
        right = max(
            c.u + c.width / 2 for r in self.level.ranks[above.first : above.last + 1] for c in r
        )
        top = self.tops[below.first] + below.along
        top -= self.spacing.arrive + len(ordered) * self.spacing.track
        begin = (start, self.bottoms[gap] + above.along)
        return detour(number, begin, right + above.across, top, end, self.spacing)
