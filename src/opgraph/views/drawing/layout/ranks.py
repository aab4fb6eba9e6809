"""Ranks: every cell as early as what it reads allows, and what reads nothing as late as its reader
allows; then the bends of the lines that pass ranks."""

from __future__ import annotations

from opgraph.views.drawing.layout.cells import Cell, Hop, Level


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
