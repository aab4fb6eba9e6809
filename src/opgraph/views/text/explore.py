"""The explorer's list of nodes: what each is and costs, with the edges between them in a gutter. A line a
node; a long list says also what it reads and makes and where it is called, on one more line where there is
room for its columns, on two where there is not."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from opgraph.analysis.cost.totals import classify, cost_of, total_seconds
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.fusion.partition import Subgraph
from opgraph.analysis.nodes import NodeView
from opgraph.analysis.selection import Edge, Selection, edges
from opgraph.analysis.tree import Metric
from opgraph.record import units
from opgraph.record.graph import Graph, Node, Value
from opgraph.views.headline import whole_of
from opgraph.views.marks import BOUNDS, NO_WORK
from opgraph.views.terminal import Cut, bar, bound, draw, fit, fit_tail, safe

if TYPE_CHECKING:
    from opgraph.analysis.timing.roofline import RooflinePoint

SIDE_BY_SIDE = 120
"""Columns from which subgraphs stand beside the nodes of a long list instead of below."""

ROOMY = 100
"""Columns from which a long list has names on the first line of a node."""

_NARROWEST, _SHORTEST, _LONGEST, _SPARE = 20, 14, 28, 8
"""Characters that names have before a figure does, those that are left of the column of operators, its
most, and those that are left of a name beside a longer one."""

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
        lanes = 10 if room >= 140 else 8 if room >= ROOMY else 5 if long else 3
        edges = _gutter(costed.graph, selection, lanes)
        layout = _Layout.fitting(
            costed, rows, room, max(len(g.line) for g in edges.values()), long=long
        )
        cells = beside((r.id for r in rows), parts, costed, layout.height)
        shown += ["", *layout.header()]
        for at, row in enumerate(rows):
            cell = cells.get(row.id)
            lines = layout.lines(at, row, edges[row.id], None if side else cell)
            if side and cell is not None:
                for line, bracket in zip(lines, cell.lines, strict=False):
                    line.pad_right(max(0, layout.width + 2 - line.cell_len))
                    line.append_text(bracket)
            shown += lines
        shown += ["", *layout.legend, *_footer(costed, selection, rows)]
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


class _Column(NamedTuple):
    """What is said of nodes, a cell each. Where names need the room, columns with the highest `spared` go
    first; those with none stay."""

    head: str
    cells: tuple[Text, ...]
    spared: int = 0
    justify: Literal["left", "right"] = "right"

    @property
    def width(self) -> int:
        return max(len(self.head), *(cell.cell_len for cell in self.cells))

    def cell(self, text: Text) -> Text:
        """One of its cells, or its head, as wide as the column, behind a space."""
        text = text.copy()
        text.align(self.justify, self.width)
        return Text(" ").append_text(text)


_COSTS: tuple[tuple[Metric, str, Callable[[NodeView], float | None], Callable[[Any], str]], ...] = (
    (Metric.PARAMETERS, "params", lambda r: r.elements, units.count),
    (Metric.FLOPS, "FLOPs", lambda r: r.flops, units.count),
    (Metric.BYTES, "bytes", lambda r: r.bytes, units.size),
    (Metric.SECONDS, "time", lambda r: r.seconds, units.seconds),
    (Metric.MEASURED, "measured", lambda r: r.measured, units.seconds),
)
"""What a node costs: its figure, and how that is written where it is not zero."""


def _figures(costed: CostedRecord, rows: Sequence[NodeView]) -> list[_Column]:
    """The columns behind the names; behind the figure that the costliest are known by, a bar of it."""
    found = []
    for metric, head, figure, written in _COSTS:
        values = [figure(r) or 0 for r in rows]
        if (metric is Metric.SECONDS and not costed.device) or (
            metric is Metric.MEASURED and not costed.measurement
        ):
            continue
        spared = 4 if metric is Metric.PARAMETERS else 0
        found.append(_Column(head, tuple(Text(written(v) if v else "") for v in values), spared))
        if metric is costed.metric:
            most = max(figure(NodeView(costed, n)) or 0 for n in costed.graph.nodes) or 1
            found.append(_Column("", tuple(bar(v / most, 6) for v in values), 1, "left"))
        if metric is Metric.BYTES:
            rates = (units.intensity(r.arithmetic_intensity) if r.bytes else "" for r in rows)
            found.append(_Column("FLOPs/byte", tuple(map(Text, rates)), 3))
    return [*found, _Column("bound", tuple(_bound(r) for r in rows), 2, "left")]


def _bound(row: NodeView) -> Text:
    """The word for what bounds a node, behind its sign."""
    idle = Text(f"{NO_WORK.sign} {NO_WORK.meaning}" if row.kind == "call" else "", style="dim")
    return idle if row.bound is None else bound(row.bound)


def _around(row: NodeView) -> str:
    """The name without the operator with which it ends: `h.0.attn.…`."""
    scope, _, last = row.name.rpartition(".")
    return f"{scope}.…" if scope and last.startswith(row.op) else row.name


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where everything stands on the lines of one node, in characters of which there are `room`."""

    room: int
    gutter: int
    id: int
    op: int
    name: int
    cut: Cut
    around: Cut
    figures: tuple[_Column, ...]
    legend: tuple[Text, ...]
    long: bool

    @classmethod
    def fitting(
        cls, costed: CostedRecord, rows: Sequence[NodeView], room: int, gutter: int, *, long: bool
    ) -> _Layout:
        """With the figures beside which names can be told apart: what is spared goes, bounds shrink to
        their signs, which a legend explains then, and operators are cut."""
        number = max(len(str(r.id)) for r in rows)
        op = max(8, *(cell_len(safe(w)) for r in rows for w in (r.op, r.cls if long else "")))
        op = min(op, _LONGEST)
        cut, around = Cut(r.name for r in rows), Cut(map(_around, rows))
        longest = max(4, *(cell_len(safe(r.name)) for r in rows))
        named = not long or room >= ROOMY
        needed = min(longest, max(cut.least, _NARROWEST)) if named else 0
        figures = _figures(costed, rows)
        legend: tuple[Text, ...] = ()

        def left() -> int:
            return room - gutter - number - op - 5 - sum(1 + c.width for c in figures)

        for column in sorted(figures, key=lambda c: -c.spared):
            given = max(0, op - _SHORTEST) if column.spared < 3 else 0
            if not column.spared or left() + given >= needed:
                continue
            if column.head == "bound":
                said = dict.fromkeys(c.plain for c in column.cells if c.plain)
                legend = (Text("  ".join(said), style="dim"), Text())
                figures[-1] = column._replace(head="", cells=tuple(c[:1] for c in column.cells))
            else:
                figures.remove(column)
        op = max(min(op, _SHORTEST), op - max(0, needed - left()))
        name = min(left(), max(longest, 40 if long else 0)) if named else left()
        return cls(
            room, gutter, number, op, max(0, name), cut, around, tuple(figures), legend, long
        )

    @property
    def named(self) -> bool:
        """Whether names stand on the first line."""
        return not self.long or self.room >= ROOMY

    @property
    def indent(self) -> int:
        """Where what is said of a node starts, behind its number."""
        return self.gutter + 1 + self.id + 2

    @property
    def width(self) -> int:
        """That of the first line."""
        return self.indent + self.op + 2 + self.name + sum(1 + c.width for c in self.figures)

    @property
    def height(self) -> int:
        """The lines of a node."""
        return 1 if not self.long else 2 if self.named else 3

    def header(self) -> list[Text]:
        line = Text(" " * (self.gutter + 1) + "#".rjust(self.id) + "  " + "operator".ljust(self.op))
        line.append("  " + ("name" if self.named else "").ljust(self.name))
        for column in self.figures:
            line.append_text(column.cell(Text(column.head)))
        line.stylize("bold")
        return [line, Text("─" * self.width)]

    def lines(self, at: int, row: NodeView, beside: GutterRow, cell: Beside | None) -> list[Text]:
        """The lines of a node, the one `at` this place in the list, with its subgraph's cell."""
        first = self._gutter(beside.line, beside.dot, row)
        first.append(f" {row.id:>{self.id}}  ", style="dim")
        op, name = self._called(row)
        first.append(op, style="bold" if row.bytes or row.flops else "")
        first.append("  " + name)
        for column in self.figures:
            first.append_text(column.cell(column.cells[at]))
        lines = [first]
        if self.long:
            lines += self._more(row, beside)
        for number, words in enumerate(() if cell is None else cell.below[: self.height]):
            room = self.room - self.indent
            lead = "  " if number else "subgraph "
            for said in _wrapped(lead + words, room, "    "):
                line = self._gutter(beside.below)
                line.append(" " * (self.indent - self.gutter) + said, style="cyan")
                lines.append(line)
        if row.error is not None:
            failed = self._gutter(beside.below)
            failed.append(" " * (self.indent - self.gutter) + safe(row.error, 300), style="red")
            lines.append(failed)
        return lines

    def _called(self, row: NodeView) -> tuple[str, str]:
        """The operator and the name: an operator that is wider than its column takes what the name can
        spare, which leaves it out where it ends with it."""
        op = max(self.op, min(cell_len(safe(row.op)), self.op + self.name - _SPARE))
        room, name, cut = self.name - op + self.op, row.name, self.cut
        if op > self.op and not cut(name, room):
            name, cut = _around(row), self.around
        return fit(row.op, op), fit_tail(name if self.named else "", room, cut)

    def _more(self, row: NodeView, beside: GutterRow) -> list[Text]:
        """What a long list says of a node: its class, what it reads and makes, where it is called."""
        flow, place = _flow(row), safe(row.place)
        if not self.named:
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
        if self.named:
            room = self.width - self.indent - self.op - 2 - 24
            line.append(fit(right, self.op) + "  " + fit(left, room), style="dim")
        else:
            room = self.width - self.indent - 2 - len(right)
            line.append(fit(left, room) + "  " + right, style="dim")
        return line


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
    of = f" of {whole_of(costed, Metric.SECONDS)}" if costed.hosted else ""
    timed = (
        f", {units.seconds(taken)} ({units.percent(taken / whole)}{of})" if taken and whole else ""
    )
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
    ends, and why its nodes go together (once for all that go together so, where a node has a line).
    Nodes that do nothing by themselves have none."""
    ends = costed.barriers
    points = {p.subgraph: p for p in costed.roofline} if costed.device else {}
    wanted = set(nodes)
    found: dict[int, Beside] = {}
    told: set[str] = set()
    listed = [(p, [i for i in p.nodes if i in wanted]) for p in parts
              if p.rule not in ("boundary", "view")]  # fmt: skip
    for part, ids in sorted((each for each in listed if each[1]), key=lambda each: each[1][0]):
        cost = _fused_cost(part, costed.ridge, points.get(part.id))
        reason = "" if height == 1 and part.reason in told else safe(part.reason)
        told.add(part.reason)
        found |= _cells(part, cost, ends.get(part.id, ""), reason, ids, height)
    return found


def _fused_cost(part: Subgraph, ridge: float, point: RooflinePoint | None) -> str:
    """What a subgraph costs as one kernel: FLOPs, bytes, FLOPs/byte, what that waits for, and its time;
    none is broken where lines are."""
    timed = [] if point is None else [units.seconds(point.predicted)]
    flops = part.cost.flops + part.cost.other_flops
    if not part.fused_bytes:
        return ""
    found = [units.size(part.fused_bytes), *timed]
    if flops:
        intensity = flops / part.fused_bytes
        waits = classify(intensity, ridge) if point is None else point.bound
        mark = BOUNDS[waits].sign if waits else ""
        rate = f"{units.intensity(intensity)} {mark}".strip()
        found = [units.count(flops), found[0], rate, *timed]
    return ", ".join(figure.replace(" ", _UNBROKEN) for figure in found)


_UNBROKEN = "\N{NO-BREAK SPACE}"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Text in lines of so many characters, those after the first behind an indent."""
    lines = textwrap.wrap(text, max(width, 20), subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace(_UNBROKEN, " ") for line in lines]


def _cells(
    part: Subgraph, cost: str, end: str, reason: str, listed: Sequence[int], height: int
) -> dict[int, Beside]:
    style = _COLOURS[part.id % len(_COLOURS)]
    end = safe(f"ends: {end}") if end else ""
    head = f"{part.id} {safe(part.rule)}, {units.plural(len(part.nodes), 'node')}"
    said = [
        head,
        *_wrapped(cost, WIDTH - 2),
        *_wrapped(end, WIDTH - 2),
        *_wrapped(reason, WIDTH - 2),
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
        first = ": ".join(t for t in (f"{head} ({cost})" if cost else head, reason) if t)
        below = tuple(t for t in (first, end) if t) if position == 0 else ()
        cells[node] = Beside(tuple(lines), below)
    return cells
