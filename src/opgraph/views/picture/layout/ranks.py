"""The order within ranks: sweeps that sort each rank by the mean place of its neighbours (the barycentre
heuristic), keeping the order with the fewest crossings."""

from __future__ import annotations

from collections.abc import Iterable

from opgraph.views.picture.layout.cells import Cell, Hop, Level

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
    """How many pairs of hops cross, lines of one net not counted against each other."""
    return sum(_crossings(hops) for hops in gaps)


def _crossings(hops: list[Hop]) -> int:
    """Inversions, counted with a Fenwick tree over the places in the lower rank."""
    pairs = sorted({(h.upper.order, h.lower.order) for h in hops})
    size = 1 + max((b for _, b in pairs), default=0)
    tree = [0] * (size + 1)
    found = seen = 0
    position = 0
    while position < len(pairs):
        upper, start = pairs[position][0], position
        while position < len(pairs) and pairs[position][0] == upper:
            at, below = pairs[position][1] + 1, 0
            while at:
                below += tree[at]
                at &= at - 1
            found += seen - below
            position += 1
        for _, lower in pairs[start:position]:
            at = lower + 1
            while at <= size:
                tree[at] += 1
                at += at & -at
            seen += 1
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
    """Sort by the mean place of the neighbours; those without any stay where they are."""
    weight = {
        c: sum(n.order for n in near) / len(near) for c in cells if (near := neighbours.get(c))
    }
    moving = iter(sorted((c for c in cells if c in weight), key=lambda c: weight[c]))
    cells[:] = [next(moving) if c in weight else c for c in cells]
    _number(cells)


def _number(cells: list[Cell]) -> None:
    for position, cell in enumerate(cells):
        cell.order = position
