"""The explorer's list of nodes: what each is and costs, with the edges between them in a gutter. A line a
node; a long list says also what it reads and makes and where it is called, on one more line where there is
room for its columns, on two where there is not."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from opgraph.analysis.cost.totals import classify, cost_of, total_seconds
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.fusion.partition import Subgraph
from opgraph.analysis.nodes import NodeView
from opgraph.analysis.selection import Edge, Selection, edges
from opgraph.record import units
from opgraph.record.graph import Graph, Node, Value
from opgraph.views.marks import BOUNDS
from opgraph.views.terminal import bar, bound, draw, fit, fit_tail, safe

if TYPE_CHECKING:
    from opgraph.analysis.timing.roofline import RooflinePoint

SIDE_BY_SIDE = 120
"""Columns from which subgraphs stand beside the nodes of a long list instead of below, and a short one has
all figures."""

ROOMY = 100
"""Columns from which a node's figures stand in columns of their own, and in a short list FLOPs/byte."""

MARKS = {"input": "◆", "output": "◆", "constant": "◇", "control": "◇"}
FREE = "○"
FAILED = "✗"


def node_list(
    costed: CostedRecord,
    selection: Selection,
    *,
    color: bool = False,
    width: int = 120,
    subgraphs: bool = True,
    long: bool = False,
) -> str:
    """The selected nodes as text, a header above and their sum below. `width` is in characters; on a
    device each has its predicted time, and with `subgraphs` the subgraph it is in (of several nodes, or in
    a `long` list of one, and then also why it ends)."""
    parts = [p for p in costed.parts if long or len(p.nodes) > 1] if subgraphs else []
    rows = [NodeView(costed, node) for node in selection.nodes]
    shown: list[RenderableType] = [_title(costed, selection)]
    if rows:
        side = long and bool(parts) and width >= SIDE_BY_SIDE
        room = width - WIDTH - 2 if side else width
        costliest = max(n.flops for n in costed.graph.nodes)
        layout = _Layout.fitting(rows, room, costliest, _times(costed), long)
        edges = _gutter(costed.graph, selection, layout.lanes)
        layout = layout.beside(
            max(len(g.line) for g in edges.values()), max(len(r.name) for r in rows)
        )
        cells = beside((r.id for r in rows), parts, costed, layout.height)
        shown += ["", *layout.header()]
        for row in rows:
            cell = cells.get(row.id)
            lines = layout.lines(row, edges[row.id], None if side else cell)
            if side and cell is not None:
                for line, bracket in zip(lines, cell.lines, strict=False):
                    line.pad_right(max(0, layout.width + 2 - line.cell_len))
                    line.append_text(bracket)
            shown += lines
        shown += ["", *_footer(costed, selection, rows)]
    shown += [Text(safe(note, 300), style="yellow") for note in selection.notes]
    return draw(shown, width, color)


def _title(costed: CostedRecord, selection: Selection) -> Text:
    nodes = selection.nodes
    title = Text(safe(costed.profile.model.name), style="bold")
    every = len(costed.graph.nodes)
    if nodes and selection.contiguous:
        which = f"node {nodes[0].id}" if len(nodes) == 1 else f"nodes {nodes[0].id}–{nodes[-1].id}"
        title.append(f"  {which} of {every:,}", style="not bold")
    else:
        title.append(f"  {len(nodes):,} of {units.plural(every, 'node')}", style="not bold")
    return title


def _gutter(graph: Graph, selection: Selection, lanes: int) -> dict[int, GutterRow]:
    """The gutter of the selected nodes; beside neighbours also what comes in from above and goes on
    below, unless it is only returned: that would be a line to the end of every list."""
    ids = [n.id for n in selection.nodes]
    before: list[int] = []
    after: list[int] = []
    if selection.contiguous:
        computing = [n for n in selection.nodes if n.kind != "output"]
        before = sorted({s for n in computing for s in graph.reads(n) if s < ids[0]})
        after = [n.id for n in selection.nodes if _read_below(graph, n, ids[-1])]
    within = edges(graph, [*before, *ids])
    return gutter(ids, within, before=before, after=after, lanes=lanes,
                  dots={n.id: _mark(n) for n in selection.nodes})  # fmt: skip


def _read_below(graph: Graph, node: Node, last: int) -> bool:
    users = (user for v in node.outputs for user in graph.users.get(v, ()))
    return any(user.id > last and user.kind != "output" for user in users)


def _mark(node: Node) -> str:
    if node.error is not None:
        return FAILED
    return MARKS.get(node.kind) or (DOT if node.bytes or node.flops else FREE)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where everything stands on the lines of one node, in characters."""

    width: int
    id: int
    op: int
    costliest: int
    lanes: int
    times: tuple[str, ...]
    long: bool
    gutter: int = 0

    @classmethod
    def fitting(
        cls,
        rows: Sequence[NodeView],
        width: int,
        costliest: int,
        times: tuple[str, ...],
        long: bool,
    ) -> _Layout:
        most = 28 if width >= 140 else 18 if long or width >= ROOMY else 14
        op = min(max(max(len(r.op), len(r.cls) if long else 8) for r in rows), most)
        lanes = 10 if width >= 140 else 8 if width >= ROOMY else 5 if long else 3
        return cls(width, max(len(str(r.id)) for r in rows), op, costliest, lanes, times, long)

    def beside(self, gutter: int, names: int) -> _Layout:
        """The same beside a gutter of that width, and no wider than names of that width need."""
        narrower = replace(self, gutter=gutter)
        return replace(narrower, width=self.width - max(0, narrower.name - max(names, 40)))

    @property
    def roomy(self) -> bool:
        return self.width >= (ROOMY if self.long else SIDE_BY_SIDE)

    @property
    def intensity(self) -> bool:
        """Whether there is room for FLOPs/byte beside names, or two times."""
        return self.width >= ROOMY or (self.long and len(self.times) < 2)

    @property
    def named(self) -> bool:
        """Whether names stand on the first line."""
        return self.roomy or not self.long

    @property
    def indent(self) -> int:
        """Where what is said of a node starts, behind its number."""
        return self.gutter + 1 + self.id + 2

    @property
    def figures(self) -> int:
        """The width of the figures, at the right of the first line."""
        return (58 if self.roomy else 42) + 10 * len(self.times) - (0 if self.intensity else 11)

    @property
    def height(self) -> int:
        """The lines of a node."""
        return 1 if not self.long else 2 if self.roomy else 3

    @property
    def name(self) -> int:
        return self.width - self.indent - self.op - 2 - self.figures

    def header(self) -> list[Text]:
        line = Text(" " * (self.gutter + 1) + "#".rjust(self.id) + "  " + "operator".ljust(self.op))
        line.append("  " + ("name" if self.named else "").ljust(self.name))
        line.append("  params" if self.roomy else "")
        line.append("    FLOPs ")
        line.append("      " if self.roomy else "")
        line.append(
            "     bytes "
            + ("FLOPs/byte " if self.intensity else "")
            + "".join(f"{t:>9} " for t in self.times)
            + "bound"
        )
        line.stylize("bold")
        return [line, Text("─" * self.width)]

    def lines(self, row: NodeView, beside: GutterRow, cell: Beside | None) -> list[Text]:
        """The lines of a node, with its subgraph's cell."""
        first = self._gutter(beside.line, beside.dot, row)
        first.append(f" {row.id:>{self.id}}  ", style="dim")
        first.append(fit(row.op, self.op), style="bold" if row.bytes or row.flops else "")
        first.append("  " + (fit_tail(row.name, self.name) if self.named else " " * self.name))
        first.append_text(self._figures(row))
        lines = [first]
        if self.long:
            lines += self._more(row, beside)
        for number, words in enumerate(() if cell is None else cell.below[: self.height]):
            said = self._gutter(beside.below)
            room = self.width - self.indent
            lead = "  " if number else "subgraph "
            said.append(" " * (self.indent - self.gutter) + fit(lead + words, room).rstrip())
            said.stylize("cyan", self.gutter)
            lines.append(said)
        if row.error is not None:
            failed = self._gutter(beside.below)
            failed.append(" " * (self.indent - self.gutter) + safe(row.error, 300), style="red")
            lines.append(failed)
        return lines

    def _more(self, row: NodeView, beside: GutterRow) -> list[Text]:
        """What a long list says of a node: its class, what it reads and makes, where it is called."""
        flow, place = _flow(row), safe(row.place)
        if not self.roomy:
            return [
                self._below(beside, row.name, safe(row.cls)),
                self._below(beside, flow, place),
            ]
        line = self._below(beside, flow, safe(row.cls))
        return [line.append(place.rjust(self.width - line.cell_len), style="dim")]

    def _gutter(self, line: str, dot: int | None = None, row: NodeView | None = None) -> Text:
        result = Text(line.ljust(self.gutter), style="", no_wrap=True, overflow="ellipsis")
        result.stylize("dim", 0, self.gutter)
        if dot is not None and row is not None:
            bounded = BOUNDS[row.bound].style if row.bound else ""
            style = "red" if row.error else bounded
            result.stylize(f"not dim bold {style}".strip(), dot, dot + 1)
        return result

    def _below(self, beside: GutterRow, left: str, right: str) -> Text:
        line = self._gutter(beside.below)
        line.append(" " * (self.indent - self.gutter))
        if self.roomy:
            room = self.width - self.indent - self.op - 2 - 24
            line.append(fit(right, self.op) + "  " + fit(left, room), style="dim")
        else:
            room = self.width - self.indent - 2 - len(right)
            line.append(fit(left, room) + "  " + right, style="dim")
        return line

    def _figures(self, row: NodeView) -> Text:
        line = Text()
        if self.roomy:
            line.append(_right(units.count(row.elements) if row.elements else "", 8))
        line.append(_right(units.count(row.flops) if row.flops else "", 9) + " ")
        if self.roomy:
            line.append_text(bar(row.flops / self.costliest if self.costliest else 0.0, 6))
        line.append(_right(units.size(row.bytes) if row.bytes else "", 10))
        if self.intensity:
            shown = units.intensity(row.arithmetic_intensity) if row.bytes else ""
            line.append(_right(shown, 11))
        line.append(" ")
        for time in self.times:
            taken = row.measured if time == _MEASURED else row.seconds
            line.append(_right(units.seconds(taken) if taken else "", 9) + " ")
        if row.bound is not None:
            line.append_text(bound(row.bound))
        elif row.kind == "call":
            line.append("no work", style="dim")
        return line


_MEASURED = "measured"


def _times(costed: CostedRecord) -> tuple[str, ...]:
    """The columns of time: the predicted one on a device, and what was measured."""
    return (("time",) if costed.device else ()) + ((_MEASURED,) if costed.measurement else ())


def _flow(row: NodeView) -> str:
    """What a node reads and makes: ← 11, 32  1x128x768 → 1x768."""
    parts = []
    if row.sources:
        parts.append("← " + _some([str(n.id) for n in row.sources], 6) + "  ")
    read = _some(_counted(row.read), 3)
    made = _some(_counted(row.outputs), 3)
    parts.append(f"{read} → {made}" if read and made else f"→ {made}" if made else read)
    return "".join(parts).strip()


def _counted(values: Sequence[Value]) -> list[str]:
    """Shapes in words, with equal neighbours counted: 24 × 1x12x128x64."""
    found: list[tuple[str, int]] = []
    for shape in (units.shape(v.shape) for v in values):
        if found and found[-1][0] == shape:
            found[-1] = (shape, found[-1][1] + 1)
        else:
            found.append((shape, 1))
    return [shape if n == 1 else f"{n} × {shape}" for shape, n in found]


def _some(texts: Sequence[str], most: int) -> str:
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def _footer(costed: CostedRecord, selection: Selection, rows: Sequence[NodeView]) -> list[Text]:
    cost, every = cost_of(selection.nodes), costed.totals
    share = units.percent(cost.flops / every.flops) if every.flops else "none"
    traffic = units.percent(cost.bytes / every.bytes) if every.bytes else "none"
    taken = total_seconds(selection.nodes, times := costed.seconds_by_node)
    whole = total_seconds(costed.graph.nodes, times)
    timed = f", {units.seconds(taken)} ({units.percent(taken / whole)})" if taken and whole else ""
    if costed.measurement is not None:
        by_node = costed.measurement.by_node
        taken = total_seconds(selection.nodes, by_node) or 0.0
        part = units.percent(taken / (sum(by_node.values()) or 1.0))
        timed += f", {units.seconds(taken)} measured ({part})"
    lines = [
        Text(
            f"{units.plural(len(rows), 'node')}: {units.flops(cost.flops)} ({share} of the model's), "
            f"{units.size(cost.bytes)} moved ({traffic}), "
            f"intensity {units.intensity(cost.arithmetic_intensity)} FLOPs/byte{timed}"
        )
    ]
    if selection.omitted:
        lines.append(Text(f"… and {units.plural(selection.omitted, 'more node')} that pass; "
                          "--max-nodes N lists more", style="yellow"))  # fmt: skip
    return lines


def _right(value: str, width: int) -> str:
    return value.rjust(width)


# Edges drawn in a gutter beside a list of nodes: every value keeps a lane from the node that made it to
# the last one that reads it, so that a residual can be followed with the eye.


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
        """The first lane without a value, or one more."""
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
        """One line: the lanes, and arms from what is read."""
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
    nodes: Iterable[int], parts: Iterable[Subgraph], costed: CostedRecord, height: int
) -> dict[int, Beside]:
    """The cells of listed nodes, by id, of so many lines: what each subgraph costs as one kernel, why it
    ends, and why its nodes go together. Nodes that do nothing by themselves have none."""
    ends = costed.barriers
    points = {p.subgraph: p for p in costed.roofline} if costed.device else {}
    wanted = set(nodes)
    found: dict[int, Beside] = {}
    for part in parts:
        listed = [i for i in part.nodes if i in wanted]
        if listed and part.rule not in ("boundary", "view"):
            cost = _fused_cost(part, costed.ridge, points.get(part.id))
            found |= _cells(part, cost, ends.get(part.id, ""), listed, height)
    return found


def _fused_cost(part: Subgraph, ridge: float, point: RooflinePoint | None) -> str:
    """What a subgraph costs as one kernel: FLOPs, bytes, FLOPs/byte, what that waits for, and its time."""
    timed = [] if point is None else [units.seconds(point.predicted)]
    flops = part.cost.flops + part.cost.other_flops
    if not part.fused_bytes or not flops:
        return ", ".join([units.size(part.fused_bytes), *timed]) if part.fused_bytes else ""
    intensity = flops / part.fused_bytes
    waits = classify(intensity, ridge) if point is None else point.bound
    mark = BOUNDS[waits].sign if waits else ""
    rate = f"{units.intensity(intensity)} {mark}".strip()
    return ", ".join([units.count(flops), units.size(part.fused_bytes), rate, *timed])


def _cells(
    part: Subgraph, cost: str, end: str, listed: Sequence[int], height: int
) -> dict[int, Beside]:
    style = _COLOURS[part.id % len(_COLOURS)]
    reason, end = safe(part.reason), safe(f"ends: {end}") if end else ""
    head = f"{part.id} {safe(part.rule)}, {units.plural(len(part.nodes), 'node')}"
    said = [
        head,
        *([cost] if cost else []),
        *textwrap.wrap(end, WIDTH - 2),
        *textwrap.wrap(reason, WIDTH - 2),
    ]
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
        first = f"{head} ({cost}): {reason}" if cost else f"{head}: {reason}"
        below = tuple(t for t in (first, end) if t) if position == 0 else ()
        cells[node] = Beside(tuple(lines), below)
    return cells
