"""Ports: where lines enter and leave the boxes that are not open, the main line in the middle; and which
hops are the main ones at both their ends, and so should be straight."""

from __future__ import annotations

from opgraph.views.drawing.layout.cells import Cell, Hop, Level
from opgraph.views.drawing.layout.spacing import Spacing


def choose_ports(level: Level, spacing: Spacing) -> list[Hop]:
    """Set `entries` and `exits` of the cells whose ports are not given. Returns the hops that are the
    main ones of the cells at both ends."""
    entering: dict[Cell, list[Hop]] = {}
    leaving: dict[Cell, list[Hop]] = {}
    for hops in level.gaps:
        for hop in hops:
            entering.setdefault(hop.lower, []).append(hop)
            leaving.setdefault(hop.upper, []).append(hop)
    main_entry = {cell: _enter(cell, hops, spacing) for cell, hops in entering.items()}
    main_exit = {cell: _leave(cell, hops, spacing) for cell, hops in leaving.items()}
    return [hop for cell, hop in main_entry.items() if main_exit[hop.upper] is hop]


def _enter(cell: Cell, hops: list[Hop], spacing: Spacing) -> Hop:
    ordered = sorted(hops, key=lambda h: (h.upper.order, h.net.id))
    main = _main([h.upper for h in ordered])
    if cell.kind == "box" and not cell.fixed:
        cell.entries = _spread([h.net.id for h in ordered], main, cell.width, spacing)
    return ordered[main]


def _leave(cell: Cell, hops: list[Hop], spacing: Spacing) -> Hop:
    nets: dict[int, list[Hop]] = {}
    for hop in hops:
        nets.setdefault(hop.net.id, []).append(hop)
    mean = {n: sum(h.lower.order for h in found) / len(found) for n, found in nets.items()}
    ids = sorted(nets, key=lambda n: (mean[n], n))
    best = []
    for net in ids:
        ordered = sorted(nets[net], key=lambda h: h.lower.order)
        best.append(ordered[_main([h.lower for h in ordered])])
    main = _main([h.lower for h in best])
    if cell.kind == "box" and not cell.fixed:
        cell.exits = _spread(ids, main, cell.width, spacing)
    return best[main]


def _main(others: list[Cell]) -> int:
    """Which of several lines is the main one: of lines to boxes, or else to ports, the middle one; a
    bend only where it is itself in the middle, between boxes."""
    if any(c.side for c in others) and not all(c.side for c in others):
        ahead = [i for i, c in enumerate(others) if not c.side]
        return ahead[_main([others[i] for i in ahead])]
    for kinds in (("box",), ("in", "out")):
        found = [i for i, c in enumerate(others) if c.kind in kinds]
        middle = len(others) // 2
        if len(others) % 2 and found and found[0] < middle < found[-1]:
            return middle
        if found:
            return found[(len(found) - 1) // 2]
    return (len(others) - 1) // 2


def _spread(ids: list[int], main: int, width: float, spacing: Spacing) -> dict[int, float]:
    if len(ids) == 1:
        return {ids[0]: 0.0}
    sides = max(main, len(ids) - 1 - main)
    step = min(spacing.port, (width / 2 - 8.0) / sides)
    return {net: (position - main) * step for position, net in enumerate(ids)}
