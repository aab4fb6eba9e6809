"""The order within ranks: sweeps that sort each rank by the mean place of its neighbours (the barycentre
heuristic), keeping the order with the fewest crossings."""

from __future__ import annotations

from collections.abc import Iterable

from opgraph.views.drawing.layout.cells import Cell, Hop, Level

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
