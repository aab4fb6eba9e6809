"""Coordinates across the flow. Cells joined by main lines become blocks, which are straight; blocks are
pushed to the left as far as they go, and to the right, and put half way between; then each in turn moves
to where its other lines pull it, as far as its neighbours leave room. (After Brandes and Köpf, "Fast and
simple horizontal coordinate assignment", 2001, with ports as Rüegg et al., 2015.)"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from opgraph.views.picture.layout.cells import Cell, Hop, Level, Spacing

# Ports: where lines enter and leave the boxes that are not open, the main line in the middle; and which
# hops are the main ones at both their ends, and so should be straight.


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


ROUNDS = 8

MOST_ASIDE = 0.3
"""How far a box may be moved aside to keep a line straight, as a share of the wider one's width."""


@dataclass(slots=True, eq=False)
class Block:
    """Cells above each other that move together."""

    cells: list[Cell] = field(default_factory=list)
    u: float = 0.0


def place(level: Level, spacing: Spacing, cuts: frozenset[int] = frozenset()) -> None:
    """Set `u` of every cell, and where lines enter and leave boxes; what lies on different sides of a
    rank in `cuts` does not pull at each other."""
    chosen = [h for h in choose_ports(level, spacing) if h.upper.rank not in cuts]
    straight = _without_crossings(level, chosen)
    block, offset = _blocks(level, straight, single=spacing.single)
    rooms = _rooms(level, block, offset, spacing)
    blocks = list(dict.fromkeys(block[c] for cells in level.ranks for c in cells))
    left = _pushed(blocks, rooms)
    right = _pushed(blocks, {(b, a): room for (a, b), room in rooms.items()})
    end = max(left.values())
    for each in blocks:
        each.u = (left[each] + end - right[each]) / 2
    gaps = [hops for rank, hops in enumerate(level.gaps) if rank not in cuts]
    _settle(gaps, blocks, block, offset, rooms)
    for cells in level.ranks:
        for cell in cells:
            cell.u = block[cell].u + offset[cell]


def _without_crossings(level: Level, hops: list[Hop]) -> list[Hop]:
    """The hops that can all be straight: of two that cross, the one of a long line stays, or else the
    first."""
    kept: list[Hop] = []
    by_rank: dict[int, list[Hop]] = {}
    for hop in hops:
        by_rank.setdefault(hop.upper.rank, []).append(hop)
    for number in range(len(level.gaps)):
        chosen: list[Hop] = []
        for hop in sorted(by_rank.get(number, ()), key=lambda h: (-_bends(h), h.upper.order)):
            if all(
                (o.upper.order - hop.upper.order) * (o.lower.order - hop.lower.order) > 0
                for o in chosen
            ):
                chosen.append(hop)
        kept += chosen
    return kept


def _bends(hop: Hop) -> int:
    return (hop.upper.kind == "bend") + (hop.lower.kind == "bend")


def _blocks(
    level: Level, straight: list[Hop], *, single: bool
) -> tuple[dict[Cell, Block], dict[Cell, float]]:
    """The block of each cell, and the cell's offset in it; in `single` file the boxes are one block, which
    lines pass on one side or the other."""
    above = {hop.lower: hop for hop in straight}
    file, side = Block(), _sides(level) if single else {}
    block: dict[Cell, Block] = {}
    offset: dict[Cell, float] = {}
    for cells in level.ranks:
        for cell in cells:
            hop = above.get(cell)
            if side.get(cell) == 0:
                block[cell], offset[cell] = file, 0.0
            elif hop is None or side.get(cell) != side.get(hop.upper):
                block[cell], offset[cell] = Block(), 0.0
            else:
                block[cell] = block[hop.upper]
                leaves, enters = _ends(hop)
                offset[cell] = offset[hop.upper] + leaves - enters
            block[cell].cells.append(cell)
    return block, offset


def _sides(level: Level) -> dict[Cell, int]:
    """Whether a cell stands before (-1) or behind (1) the box of its rank, or is it (0)."""
    found: dict[Cell, int] = {}
    for cells in level.ranks:
        at = next((c.order for c in cells if c.kind == "box"), None)
        found |= {c: (c.order > at) - (c.order < at) for c in cells if at is not None}
    return found


def _ends(hop: Hop) -> tuple[float, float]:
    """Where a line leaves and enters, from the middles of its cells. Where that is far apart, as between
    open boxes of several columns, it is not worth its straightness: the boxes lie below each other."""
    leaves = hop.upper.exits.get(hop.net.id, 0.0)
    enters = hop.lower.entries.get(hop.net.id, 0.0)
    if abs(leaves - enters) > MOST_ASIDE * max(hop.upper.width, hop.lower.width):
        return 0.0, 0.0
    return leaves, enters


Rooms = dict[tuple[Block, Block], float]


def _rooms(
    level: Level, block: dict[Cell, Block], offset: dict[Cell, float], spacing: Spacing
) -> Rooms:
    """How far apart blocks must be that are neighbours in a rank."""
    found: Rooms = {}
    for cells in level.ranks:
        for left, right in pairwise(cells):
            pair = (block[left], block[right])
            room = _apart(left, right, spacing) + offset[left] - offset[right]
            found[pair] = max(found.get(pair, room), room)
    return found


def packed_width(cells: list[Cell], spacing: Spacing) -> float:
    """The width of cells as close together as they may be."""
    inside = sum(_apart(left, right, spacing) for left, right in pairwise(cells))
    return inside + (cells[0].width + cells[-1].width) / 2


def _apart(left: Cell, right: Cell, spacing: Spacing) -> float:
    bends = (left.kind != "box") + (right.kind != "box")
    between = (spacing.beside, spacing.lane, 0.0)[bends]
    return left.width / 2 + right.width / 2 + between


def _pushed(blocks: list[Block], rooms: Rooms) -> dict[Block, float]:
    """The least places of blocks, the first ones at 0 (longest paths)."""
    after: dict[Block, list[tuple[Block, float]]] = {}
    waiting = dict.fromkeys(blocks, 0)
    for (left, right), room in rooms.items():
        after.setdefault(left, []).append((right, room))
        waiting[right] += 1
    place = dict.fromkeys(blocks, 0.0)
    ready = [b for b in blocks if not waiting[b]]
    while ready:
        block = ready.pop()
        for other, room in after.get(block, ()):
            place[other] = max(place[other], place[block] + room)
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    return place


def _settle(
    gaps: list[list[Hop]],
    blocks: list[Block],
    block: dict[Cell, Block],
    offset: dict[Cell, float],
    rooms: Rooms,
) -> None:
    """Move each block to the weighted median of its pulls."""
    pulls: dict[Block, list[tuple[Block, float, float]]] = {}
    for hops in gaps:
        for hop in hops:
            upper, lower = block[hop.upper], block[hop.lower]
            if upper is lower:
                continue
            leaves, enters = _ends(hop)
            start, end = offset[hop.upper] + leaves, offset[hop.lower] + enters
            weight = (4.0, 1.0, 8.0)[_bends(hop)]
            pulls.setdefault(lower, []).append((upper, start - end, weight))
            pulls.setdefault(upper, []).append((lower, end - start, weight))
    lefts: dict[Block, list[tuple[Block, float]]] = {}
    rights: dict[Block, list[tuple[Block, float]]] = {}
    for (left, right), room in rooms.items():
        lefts.setdefault(right, []).append((left, room))
        rights.setdefault(left, []).append((right, room))
    for number in range(ROUNDS):
        for each in blocks if number % 2 == 0 else reversed(blocks):
            wanted = sorted((o.u + away, weight) for o, away, weight in pulls.get(each, ()))
            if not wanted:
                continue
            low = max((b.u + room for b, room in lefts.get(each, ())), default=float("-inf"))
            high = min((b.u - room for b, room in rights.get(each, ())), default=float("inf"))
            if low <= high:
                each.u = min(max(_median(wanted), low), high)


def _median(pool: list[tuple[float, float]]) -> float:
    """The weighted median; the middle where two values are as good."""
    half = sum(w for _, w in pool) / 2
    passed = 0.0
    for position, (value, weight) in enumerate(pool):
        passed += weight
        if passed > half + 1e-9:
            return value
        if passed > half - 1e-9:
            return (value + pool[min(position + 1, len(pool) - 1)][0]) / 2
    return pool[-1][0]
