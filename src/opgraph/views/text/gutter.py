"""Edges drawn in a gutter beside a list of nodes: every value keeps a lane from the node that made it to
the last one that reads it, so that a residual can be followed with the eye.

    ●        a node; what it makes goes on below it
    ├─●      reads the value of the left lane, which goes on
    │ ●─╯    reads the values of the lanes that end here
    ┊        carried by nodes that are not listed
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opgraph.analysis.fusion.partition import Subgraph
from opgraph.analysis.selection import Edge
from opgraph.record import units
from opgraph.views.terminal import safe

if TYPE_CHECKING:
    from rich.text import Text


DOT = "●"


@dataclass(frozen=True, slots=True)
class GutterRow:
    """Two lines beside one node: that with its dot (at the character `dot`), and what goes on below."""

    line: str
    below: str
    dot: int


def gutter(
    order: Sequence[int],
    edges: Mapping[int, Sequence[Edge]],
    *,
    before: Iterable[int] = (),
    after: Iterable[int] = (),
    lanes: int = 12,
    dots: Mapping[int, str] | None = None,
) -> dict[int, GutterRow]:
    """The gutter of nodes in this order.

    `before` are nodes above the list whose values are read in it, `after` those in the list whose
    values are read below it. At most `lanes` values are followed at a time: where there are more, those
    that are read last are not drawn. `dots` gives the character of a node where it is not `DOT`.
    """
    last: dict[int, int] = {}
    dotted: dict[int, bool] = {}
    for row, node in enumerate(order):
        for edge in edges.get(node, ()):
            last[edge.source] = row
            dotted[edge.source] = dotted.get(edge.source, True) and not edge.direct
    last.update(dict.fromkeys(after, len(order)))
    dotted.update(dict.fromkeys(after, False))
    board = _Lanes(lanes, last, dotted)
    for source in before:
        if source in last:
            board.take(source)
    rows = {}
    for row, node in enumerate(order):
        reads = [board.lane[e.source] for e in edges.get(node, ()) if e.source in board.lane]
        ending = {board.lane[s] for s in list(board.lane) if last[s] == row}
        dot = min(ending & set(reads), default=board.free())
        mark = (dots or {}).get(node, DOT)
        line = board.draw(dot, mark, set(reads) - {dot}, ending)
        board.release(ending)
        if node in last:
            board.take(node, dot)
        rows[node] = GutterRow(line, board.draw(), 2 * dot)
    width = max((len(r.line) for r in rows.values()), default=0)
    return {n: GutterRow(r.line.ljust(width), r.below.ljust(width), r.dot) for n, r in rows.items()}


class _Lanes:
    """Which value is in which lane at the moment."""

    def __init__(self, most: int, last: Mapping[int, int], dotted: Mapping[int, bool]) -> None:
        self.most = most
        self.last = last
        self.dotted = dotted
        self.lane: dict[int, int] = {}

    def free(self) -> int:
        """The first lane without a value; one beyond the last when there is none."""
        taken = set(self.lane.values())
        return next((i for i in range(self.most) if i not in taken), self.most)

    def take(self, source: int, lane: int | None = None) -> None:
        """Give a value a lane: a free one, or that of a value that is read later than this one."""
        lane = self.free() if lane is None else lane
        if lane < self.most:
            self.lane[source] = lane
            return
        latest = max(self.lane, key=self.last.__getitem__, default=source)
        if self.last[latest] > self.last[source]:
            self.lane[source] = self.lane.pop(latest)

    def release(self, lanes: set[int]) -> None:
        self.lane = {s: i for s, i in self.lane.items() if i not in lanes}

    def draw(
        self,
        dot: int | None = None,
        mark: str = "",
        reads: Iterable[int] = (),
        ending: Iterable[int] = (),
    ) -> str:
        """One line: the lanes, and the arms from those that are read to the dot."""
        through = {i: "┊" if self.dotted.get(s) else "│" for s, i in self.lane.items()}
        if dot is None:
            return "".join(
                through.get(i, " ").ljust(2) for i in range(max(through, default=-1) + 1)
            )
        read = set(reads)
        low, high = min(read | {dot}), max(read | {dot})
        cells = []
        for i in range(max(high, *through, dot) + 1 if through else dot + 1):
            if i == dot:
                cell = mark
            elif i in read:
                cell = _joint(i in set(ending), i < dot, low < i < high)
            else:
                cell = through.get(i, "─" if low < i < high else " ")
            cells.append(cell + ("─" if low <= i < high else " "))
        return "".join(cells)


def _joint(ends: bool, left: bool, inner: bool) -> str:
    """A lane where a node reads it: whether it ends there, on which side of the dot it is, and whether
    the arm goes on to a farther lane."""
    if inner:
        return "┴" if ends else "┼"
    if ends:
        return "╰" if left else "╯"
    return "├" if left else "┤"


# Subgraphs beside a list of nodes: which nodes would run as one kernel, and why, in a column of its own or
# on lines below.

WIDTH = 32
"""Characters of the column, its bracket included."""

_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


@dataclass(frozen=True, slots=True)
class Beside:
    """The lines of one node's cell, and what is said of its subgraph on lines below it where the node is
    the first that is listed of it."""

    lines: tuple[Text, ...]
    below: tuple[str, ...]


def beside(
    nodes: Iterable[int], parts: Iterable[Subgraph], ends: Mapping[int, str], height: int
) -> dict[int, Beside]:
    """The cells of listed nodes, by id, of so many lines; `ends` says why each subgraph ends. Nodes that
    do nothing by themselves have none."""
    wanted = set(nodes)
    found: dict[int, Beside] = {}
    for part in parts:
        listed = [i for i in part.nodes if i in wanted]
        if listed and part.rule not in ("boundary", "view"):
            found |= _cells(part, ends.get(part.id, ""), listed, height)
    return found


def _cells(part: Subgraph, end: str, listed: Sequence[int], height: int) -> dict[int, Beside]:
    from rich.text import Text

    style = _COLOURS[part.id % len(_COLOURS)]
    reason, end = safe(part.reason), safe(f"ends: {end}") if end else ""
    head = f"{part.id} {safe(part.rule)}, {units.plural(len(part.nodes), 'node')}"
    said = [head, *textwrap.wrap(end, WIDTH - 2), *textwrap.wrap(reason, WIDTH - 2)]
    room = height * len(listed)
    if len(said) > room:
        said = [*said[: room - 1], said[room - 1][: WIDTH - 3] + "…"]
    said += [""] * (room - len(said))
    cells = {}
    for position, node in enumerate(listed):
        lines = []
        for line in range(height * position, height * (position + 1)):
            bracket = "┏" if line == 0 else "┗" if line == room - 1 else "┃"
            text = Text(bracket, style=style)
            text.append(f" {said[line]}", style="not bold" if line == 0 else "not bold dim")
            lines.append(text)
        below = tuple(t for t in (f"{head}: {reason}", end) if t) if position == 0 else ()
        cells[node] = Beside(tuple(lines), below)
    return cells
