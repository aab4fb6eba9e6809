"""One level of the layout: from cells and nets to coordinates and lines. Parts that nothing connects are
laid out by themselves, side by side, so that none has to wait for the ranks of another."""

from __future__ import annotations

from opgraph.views.drawing.layout.cells import Cell, Level
from opgraph.views.drawing.layout.frame import Frame, Laid
from opgraph.views.drawing.layout.order import order
from opgraph.views.drawing.layout.place import place
from opgraph.views.drawing.layout.ranks import rank
from opgraph.views.drawing.layout.spacing import Spacing


def lay(level: Level, spacing: Spacing, least_width: float, least_length: float) -> Laid:
    """Lay a level out inside an open box that must be at least so large."""
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
