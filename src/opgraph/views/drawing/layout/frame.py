"""The frame of a laid level: from ranks with coordinates across the flow to places, lines, and columns."""

from __future__ import annotations

from dataclasses import dataclass

from opgraph.views.drawing.layout.cells import Cell, Level
from opgraph.views.drawing.layout.columns import Ranks, choose_cuts, columns, detour
from opgraph.views.drawing.layout.place import packed_width
from opgraph.views.drawing.layout.spacing import Spacing
from opgraph.views.drawing.layout.tracks import Run, tracks

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
        """The ranks after which it would be better to begin a new column."""
        return choose_cuts(self.ranks, self.spacing, whole_end=self.ends)

    def laid(self, cuts: list[int]) -> Laid:
        """The places and lines, without padding at the sides, in columns that end at these ranks."""
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
        """Up to the end of the longest column; ports at the end lie on it."""
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
