"""Boxes in boxes: each open box is laid out by itself, from the inside out; then lines are put together
from their parts, level by level, from the box that makes a tensor to the box that reads it."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Protocol

from opgraph.views.picture.layout.cells import Cell, Hop, Level, Net, Spacing
from opgraph.views.picture.layout.frame import Frame, Laid, Point
from opgraph.views.picture.layout.place import place

# One level of the layout: from cells and nets to coordinates and lines. Parts that nothing connects are
# laid out by themselves, side by side, so that none has to wait for the ranks of another.


def lay(level: Level, spacing: Spacing, least_width: float, least_length: float) -> Laid:
    """Lay a level out in a box at least so large."""
    parts = [(part, _lay(part, spacing)) for part in _parts(level)]
    parts.sort(key=lambda p: -p[1].width * p[1].length)
    length = max([least_length, *(laid.length for _, laid in parts)])
    before = spacing.padding + (spacing.title if spacing.title_across else 0.0)
    merged = Laid(0.0, length, {}, {})
    top = max(0.0 if spacing.title_across else spacing.title, spacing.padding)
    low = high = before
    end: float | None = None
    for part, laid in parts:
        ported = any(c.kind in ("in", "out") for c in part.cells)
        along = 0.0 if end is None or ported else end + spacing.gap - top
        if end is None or ported or along + laid.length > length:
            low = high + (spacing.beside * 2 if merged.at else 0.0)
            along = 0.0
        _merge(merged, laid, low, along, length)
        high = max(high, low + laid.width)
        end = None if ported else along + laid.length - spacing.padding
    width = max(high + spacing.padding, least_width)
    shift = (width - high - spacing.padding) / 2
    at = {c: (u + shift, v) for c, (u, v) in merged.at.items()}
    lines = {key: [(u + shift, v) for u, v in line] for key, line in merged.lines.items()}
    return Laid(width, length, at, lines)


def _lay(level: Level, spacing: Spacing) -> Laid:
    rank(level, spacing.lane)
    order(level)
    place(level, spacing)
    frame = Frame(level, spacing)
    cuts = frame.cuts()
    if cuts:
        # Columns are placed again, each by itself: a wide one would spread the others.
        place(level, spacing, frozenset(cuts))
        frame = Frame(level, spacing)
    return frame.laid(cuts)


def _merge(merged: Laid, laid: Laid, across: float, along: float, length: float) -> None:
    """Add a part to a level, moved; ports at the end stay at the end of the level."""
    for cell, (u, v) in laid.at.items():
        merged.at[cell] = (u + across, length if cell.kind == "out" else v + along)
    for (net, target), line in laid.lines.items():
        moved = [(u + across, v + along) for u, v in line]
        if target.kind == "out":
            moved[-1] = (moved[-1][0], length)
        merged.lines[net, target] = moved


def _parts(level: Level) -> list[Level]:
    """The connected parts, in the order of their first cells."""
    leader = {c: c for c in level.cells}

    def find(cell: Cell) -> Cell:
        while leader[cell] is not cell:
            leader[cell] = leader[leader[cell]]
            cell = leader[cell]
        return cell

    for first, second in level.constraints:
        leader[find(second)] = find(first)
    for net in level.nets:
        for target in net.targets:
            leader[find(target)] = find(net.source)
    parts: dict[Cell, Level] = {}
    for cell in level.cells:
        parts.setdefault(find(cell), Level([], [], [])).cells.append(cell)
    for net in level.nets:
        parts[find(net.source)].nets.append(net)
    for pair in level.constraints:
        parts[find(pair[0])].constraints.append(pair)
    return list(parts.values())


class Node(Protocol):
    """A box to lay out: what is inside it, and whether it separates what is before it from what is
    behind it."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def children(self) -> Sequence[Node]: ...


class Link(Protocol):
    """A line to lay out, from the point of its net."""

    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def net(self) -> int: ...


Four = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Rect:
    """Where a box is, in pixels, y downwards."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where everything is: boxes by id, lines as corners."""

    width: float
    height: float
    rects: dict[str, Rect]
    lines: list[list[Point]]


def arrange(
    root: Node, links: Sequence[Link], sizes: Mapping[str, tuple[float, float]], spacing: Spacing,
    *, across: bool = False,
) -> Geometry:  # fmt: skip
    """Lay out the boxes inside `root`, which has no title itself, from top to bottom, or from left to
    right when `across`.

    `sizes` are the width and height of each box that is not open, and the least ones of each open box.
    """
    return _Compound(root, links, sizes, spacing, across).geometry()


@dataclass(slots=True)
class _Inside:
    """An open box: level, cells by box, nets by id."""

    level: Level = field(default_factory=lambda: Level([], [], []))
    cells: dict[str, Cell] = field(default_factory=dict)
    nets: dict[int, Net] = field(default_factory=dict)
    ports: dict[tuple[str, int], Cell] = field(default_factory=dict)
    laid: Laid = field(default_factory=lambda: Laid(0.0, 0.0, {}, {}))


class _Compound:
    def __init__(
        self, root: Node, links: Sequence[Link], sizes: Mapping[str, tuple[float, float]],
        spacing: Spacing, across: bool,
    ) -> None:  # fmt: skip
        self.root, self.links, self.spacing, self.across = root, links, spacing, across
        self.sizes = {k: (h, w) for k, (w, h) in sizes.items()} if across else dict(sizes)
        self.parent: dict[str, str] = {}
        self.inside: dict[str, _Inside] = {}
        self._enter(root)
        for link in links:
            self._connect(link)
        self._settle(root)

    def _enter(self, box: Node) -> None:
        inside = self.inside[box.id] = _Inside()
        for number, child in enumerate(box.children):
            self.parent[child.id] = box.id
            inside.cells[child.id] = Cell(
                "box", number, box=child.id, side=child.kind == "parameters"
            )
            if child.children:
                self._enter(child)

    def _above(self, box: str) -> list[str]:
        """The open boxes around a box, from the inside out."""
        found = [self.parent[box]]
        while found[-1] != self.root.id:
            found.append(self.parent[found[-1]])
        return found

    def _way(self, link: Link) -> tuple[list[str], str, list[str]]:
        """The boxes that a line leaves, the open box that holds both its ends, and the boxes it enters,
        all from the inside out."""
        leaving, entering = self._above(link.source), self._above(link.target)
        while len(leaving) > 1 and len(entering) > 1 and leaving[-2] == entering[-2]:
            leaving.pop()
            entering.pop()
        return [link.source, *leaving[:-1]], leaving[-1], [link.target, *entering[:-1]]

    def _connect(self, link: Link) -> None:
        """Add a link to the nets of all levels on its way."""
        out, common, into = self._way(link)
        for inner, box in pairwise(out):
            inside = self.inside[box]
            self._join(inside, link.net, inside.cells[inner], self._port(inside, "out", link.net))
        inside = self.inside[common]
        self._join(inside, link.net, inside.cells[out[-1]], inside.cells[into[-1]])
        for inner, box in pairwise(into):
            inside = self.inside[box]
            self._join(inside, link.net, self._port(inside, "in", link.net), inside.cells[inner])

    def _port(self, inside: _Inside, kind: str, net: int) -> Cell:
        key = (kind, net)
        if key not in inside.ports:
            number = len(inside.cells) + len(inside.ports)
            inside.ports[key] = Cell(kind, number, width=self.spacing.lane)  # type: ignore[arg-type]
        return inside.ports[key]

    def _join(self, inside: _Inside, id_: int, source: Cell, target: Cell) -> None:
        if id_ not in inside.nets:
            inside.nets[id_] = Net(id_, source)
        if target not in inside.nets[id_].targets:
            inside.nets[id_].targets.append(target)

    def _settle(self, box: Node) -> None:
        """Lay out the inside of an open box, after what is in it."""
        inside = self.inside[box.id]
        for child in box.children:
            cell = inside.cells[child.id]
            if child.children:
                self._settle(child)
                self._take_ports(cell, self.inside[child.id])
            else:
                cell.width, cell.height = self.sizes[child.id]
        ports = list(inside.ports.values())
        cells = [c for c in ports if c.kind == "in"]
        cells += inside.cells.values()
        cells += [c for c in ports if c.kind == "out"]
        below = _seams(box, inside)
        if self.spacing.single:
            below += pairwise(inside.cells.values())
        inside.level = Level(cells, list(inside.nets.values()), below)
        spacing = self.spacing if box is not self.root else replace(self.spacing, title=0.0)
        inside.laid = lay(inside.level, spacing, *self.sizes.get(box.id, (0.0, 0.0)))

    def _take_ports(self, cell: Cell, inner: _Inside) -> None:
        laid = inner.laid
        cell.width, cell.height, cell.fixed = laid.width, laid.length, True
        for (kind, net), port in inner.ports.items():
            offset = laid.at[port][0] - laid.width / 2
            (cell.entries if kind == "in" else cell.exits)[net] = offset

    def geometry(self) -> Geometry:
        laid = self.inside[self.root.id].laid
        origins: dict[str, Point] = {self.root.id: (0.0, 0.0)}
        rects: dict[str, Four] = {self.root.id: (0.0, 0.0, laid.width, laid.length)}
        self._spread(self.root, origins, rects)
        lines = [self._line(link, origins) for link in self.links]
        turned = {box: self._turned(r) for box, r in rects.items()}
        whole = turned[self.root.id]
        if self.across:
            lines = [[(v, u) for u, v in line] for line in lines]
        return Geometry(whole.width, whole.height, turned, lines)

    def _turned(self, r: Four) -> Rect:
        """A rectangle in pixels, from coordinates across and along the flow."""
        return Rect(r[1], r[0], r[3], r[2]) if self.across else Rect(*r)

    def _spread(self, box: Node, origins: dict[str, Point], rects: dict[str, Four]) -> None:
        inside = self.inside[box.id]
        u, v = origins[box.id]
        for child in box.children:
            cell = inside.cells[child.id]
            middle, begin = inside.laid.at[cell]
            origins[child.id] = (u + middle - cell.width / 2, v + begin)
            rects[child.id] = (*origins[child.id], cell.width, cell.height)
            if child.children:
                self._spread(child, origins, rects)

    def _line(self, link: Link, origins: dict[str, Point]) -> list[Point]:
        out, common, into = self._way(link)
        points: list[Point] = []

        def add(box: str, target: Cell) -> None:
            laid = self.inside[box].laid
            u, v = origins[box]
            points.extend((u + a, v + b) for a, b in laid.lines[link.net, target])

        for box in out[1:]:
            add(box, self.inside[box].ports["out", link.net])
        add(common, self.inside[common].cells[into[-1]])
        for box, inner in reversed(list(zip(into[1:], into, strict=False))):
            add(box, self.inside[box].cells[inner])
        return _corners(points)


def _seams(box: Node, inside: _Inside) -> list[tuple[Cell, Cell]]:
    """What must lie before and behind the seams of a level."""
    found: list[tuple[Cell, Cell]] = []
    ordered = [inside.cells[c.id] for c in box.children]
    for number, child in enumerate(box.children):
        if child.kind == "seam":
            found += [(c, ordered[number]) for c in ordered[:number]]
            found += [(ordered[number], c) for c in ordered[number + 1 :]]
    return found


def _corners(points: list[Point]) -> list[Point]:
    """The same line without points on straight pieces."""
    kept: list[Point] = []
    for point in points:
        if kept and abs(kept[-1][0] - point[0]) < 0.01 and abs(kept[-1][1] - point[1]) < 0.01:
            continue
        while len(kept) > 1 and _in_line(kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    return kept


def _in_line(a: Point, b: Point, c: Point) -> bool:
    return (abs(a[0] - b[0]) < 0.01 and abs(b[0] - c[0]) < 0.01) or (
        abs(a[1] - b[1]) < 0.01 and abs(b[1] - c[1]) < 0.01
    )


# The order within ranks: sweeps that sort each rank by the mean place of its neighbours (the barycentre
# heuristic), keeping the order with the fewest crossings.
#
# Ranks: every cell as early as what it reads allows, and what reads nothing as late as its reader
# allows; then the bends of the lines that pass ranks.


def rank(level: Level, lane: float) -> None:
    """Give every cell its rank, and fill `level.ranks` and `level.gaps`.

    Cells are expected in an order in which whatever is read has been made before.
    """
    before: dict[Cell, list[Cell]] = {c: [] for c in level.cells}
    after: dict[Cell, list[Cell]] = {c: [] for c in level.cells}
    for source, target in _pairs(level):
        before[target].append(source)
        after[source].append(target)
    has_ports = any(c.kind == "in" for c in level.cells)
    for cell in level.cells:
        least = 1 if has_ports and cell.kind != "in" else 0
        cell.rank = max((c.rank + 1 for c in before[cell]), default=least)
        cell.rank = max(cell.rank, least)
    last = max((c.rank for c in level.cells), default=0)
    bottom = max((c.rank + 1 for c in level.cells if c.kind != "out"), default=last)
    for cell in level.cells:
        if cell.kind == "out":
            cell.rank = bottom
    for cell in reversed(level.cells):
        if cell.kind == "box" and after[cell]:
            inner = [c for c in before[cell] if c.kind == "box"]
            if not inner or len(inner) < len(set(after[cell])):
                cell.rank = max(cell.rank, min(c.rank for c in after[cell]) - 1)
    _bends(level, lane)


def _pairs(level: Level) -> list[tuple[Cell, Cell]]:
    return [*level.constraints, *((n.source, t) for n in level.nets for t in n.targets)]


def _bends(level: Level, lane: float) -> None:
    count = 1 + max((c.rank for c in level.cells), default=0)
    level.ranks = [[] for _ in range(count)]
    level.gaps = [[] for _ in range(count - 1)]
    for cell in level.cells:
        level.ranks[cell.rank].append(cell)
    number = len(level.cells)
    for net in level.nets:
        net.chain = {net.source.rank: net.source}
        last = max(t.rank for t in net.targets)
        for at in range(net.source.rank + 1, last):
            bend = Cell("bend", number, width=lane, rank=at)
            number += 1
            net.chain[at] = bend
            level.ranks[at].append(bend)
            level.gaps[at - 1].append(Hop(net, net.chain[at - 1], bend))
        for target in net.targets:
            level.gaps[target.rank - 1].append(Hop(net, net.chain[target.rank - 1], target))
    for cells in level.ranks:
        for position, cell in enumerate(cells):
            cell.order = position


SWEEPS = 10


def order(level: Level) -> None:
    """Set the order of the cells in each rank of `level.ranks`."""
    if all(len(cells) < 2 for cells in level.ranks):
        return
    uppers, lowers = _neighbours(level)
    best = [list(cells) for cells in level.ranks]
    fewest = crossings(level.gaps)
    for sweep in range(SWEEPS):
        if fewest == 0:
            break
        if sweep % 2 == 0:
            for cells in level.ranks[1:]:
                _sort(cells, uppers)
        else:
            for cells in reversed(level.ranks[:-1]):
                _sort(cells, lowers)
        now = crossings(level.gaps)
        if now < fewest:
            fewest, best = now, [list(cells) for cells in level.ranks]
    for cells, kept in zip(level.ranks, best, strict=True):
        cells[:] = kept
        _number(cells)


def crossings(gaps: Iterable[list[Hop]]) -> int:
    """How many pairs of hops cross, but those of one net."""
    return sum(_crossings(hops) for hops in gaps)


def _crossings(hops: list[Hop]) -> int:
    """Inversions: of each hop those from further up front that end further behind."""
    found, ends = 0, list[int]()
    pairs = sorted({(h.upper.order, h.lower.order) for h in hops})
    for _, group in groupby(pairs, key=lambda pair: pair[0]):
        lowers = [lower for _, lower in group]
        found += sum(len(ends) - bisect_right(ends, lower) for lower in lowers)
        for lower in lowers:
            insort(ends, lower)
    return found


def _neighbours(level: Level) -> tuple[dict[Cell, list[Cell]], dict[Cell, list[Cell]]]:
    uppers: dict[Cell, list[Cell]] = {}
    lowers: dict[Cell, list[Cell]] = {}
    for hops in level.gaps:
        for hop in hops:
            uppers.setdefault(hop.lower, []).append(hop.upper)
            lowers.setdefault(hop.upper, []).append(hop.lower)
    return uppers, lowers


def _sort(cells: list[Cell], neighbours: dict[Cell, list[Cell]]) -> None:
    """Sort by the mean place of neighbours, if any."""
    weight = {
        c: sum(n.order for n in near) / len(near) for c in cells if (near := neighbours.get(c))
    }
    moving = iter(sorted((c for c in cells if c in weight), key=lambda c: weight[c]))
    cells[:] = [next(moving) if c in weight else c for c in cells]
    _number(cells)


def _number(cells: list[Cell]) -> None:
    for position, cell in enumerate(cells):
        cell.order = position
