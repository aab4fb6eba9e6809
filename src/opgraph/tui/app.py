"""The full-screen explorer: modules with cost bars at the left, nodes at the centre, details at the right.
It reads a profile and draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import DataTable, Footer, HelpPanel, Input, Static, Tree
from textual.widgets.tree import TreeNode

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.fusion.partition import Subgraph
from opgraph.analysis.nodes import NodeView
from opgraph.analysis.tree import Item, ItemKind
from opgraph.analysis.tree import Tree as CallTree
from opgraph.record import units
from opgraph.record.graph import Graph, Kernel, Node
from opgraph.views.marks import BOUNDS
from opgraph.views.terminal import bar, bound, safe

MOST_ROWS = 2000
"""Nodes listed at once; a module or a text narrows the list."""

_COLUMNS = ("#", "operator", "FLOPs", "bytes", "FLOPs/byte", "bound", "name", "makes")


class Explorer(App[None]):
    """The explorer of one profile."""

    CSS = """
    Screen { layers: base; }
    #title { height: 1; padding: 0 1; background: $primary-background; text-style: bold; }
    #modules { width: 22%; min-width: 24; border-right: solid $panel; }
    #middle { width: 1fr; }
    #state { height: 1; padding: 0 1; color: $text-muted; }
    #search { display: none; height: 3; }
    #search.open { display: block; }
    #side { width: 24%; min-width: 26; padding: 0 1; border-left: solid $panel; }
    DataTable { height: 1fr; }
    .-narrow #side { dock: bottom; width: 100%; height: 9; border-left: none; border-top: solid $panel; }
    .-narrow HelpPanel { width: 40%; }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (130, "-wide")]  # noqa: RUF012 (as it is declared)
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", key_display="/"),
        Binding("s", "sort", "sort"),
        Binding("i", "jump('inputs')", "input"),
        Binding("u", "jump('users')", "user"),
        Binding("b", "return", "back", show=False),
        Binding("f", "fold", "fold"),
        Binding("c", "colour", "colour"),
        Binding("tab", "app.focus_next", "pane", show=True),
        Binding("escape", "clear", "all", show=True),
        Binding("question_mark", "keys", "keys", key_display="?"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, costed: CostedRecord) -> None:
        super().__init__()
        self.costed, self.profile = costed, costed.profile
        self.members = Membership.of(costed)
        self.rows = [NodeView(costed, node) for node in costed.graph.nodes]
        self.orders = [s for s in SORTS if s not in ("time", "host") or costed.device is not None]
        self.operators = list(dict.fromkeys(r.op for r in self.rows))
        self.shown: list[NodeView] = []
        self.calls = costed.tree
        self.module = self.calls.root
        self.text = ""
        self.sort = self.orders[0]
        self.colour = COLOURS[0]
        self.folded = True
        self.current: int | None = None
        self.history: list[int] = []

    def compose(self) -> ComposeResult:
        totals = self.costed.totals
        yield Static(
            f"{safe(self.profile.model.name)}   {units.plural(totals.nodes, 'node')}   "
            f"{units.count(totals.parameters)} parameters   {units.flops(totals.flops)}   "
            f"{units.size(totals.bytes)} moved",
            id="title",
            markup=False,
        )
        with Horizontal():
            yield Tree[int]("", id="modules")
            with Vertical(id="middle"):
                yield Input(placeholder="operator, name, class or source", id="search")
                yield Static("", id="state", markup=False)
                yield DataTable[Text](id="nodes", cursor_type="row", zebra_stripes=True)
            with VerticalScroll(id="side"):
                yield Static("", id="details", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        table = self.table
        for head in _COLUMNS:
            table.add_column(Text(head, style="bold"), key=head)
        self._plant()
        self._list()
        table.focus()

    @property
    def table(self) -> DataTable[Text]:
        return self.query_one("#nodes", DataTable)

    def _plant(self) -> None:
        """The calls of modules, folded or not."""
        self.calls = self.costed.tree if self.folded else self.costed.tree_of(fold=False)
        tree = self.query_one("#modules", Tree)
        root = self.calls.root
        tree.reset(_module_label(root, self.calls), root.id)
        _grow(tree.root, root, self.calls)
        tree.root.expand()

    def _list(self) -> None:
        """The nodes that module, search and order ask for; the cursor stays on its node."""
        inside = {n.id for n in self.calls.nodes_of(self.module)}
        found = listed(self.rows, inside, self.text, self.sort)
        self.shown = found[:MOST_ROWS]
        table = self.table
        table.clear()
        for row in self.shown:
            style = style_of(row, self.colour, self.members, self.operators)
            table.add_row(*_cells(row, style), key=str(row.id))
        ids = [r.id for r in self.shown]
        if self.current in ids:
            table.move_cursor(row=ids.index(self.current))
        elif self.shown:
            self._show(self.shown[0])
        more = len(found) - len(self.shown)
        parts = [
            f"{units.plural(len(found), 'node')} of {safe(self.calls.title(self.module)) or 'the model'}",
            *([f"matching “{safe(self.text)}”"] if self.text else []),
            f"by {self.sort}",
            f"coloured by {self.colour}",
            *([f"first {MOST_ROWS:,} shown"] if more > 0 else []),
        ]
        self.query_one("#state", Static).update("  ·  ".join(parts))

    def _show(self, row: NodeView) -> None:
        self.current = row.id
        part = self.members.subgraphs.get(row.id)
        end = self.members.ends.get(part.id, "") if part is not None else ""
        self.query_one("#details", Static).update(details(row, part, end))

    @on(DataTable.RowHighlighted)
    def _moved(self, event: DataTable.RowHighlighted) -> None:
        if event.row_key is not None and event.row_key.value is not None:
            self._show(self.rows[int(event.row_key.value) - 1])

    @on(Tree.NodeSelected)
    @on(Tree.NodeHighlighted)
    def _chosen(self, event: Tree.NodeSelected[int] | Tree.NodeHighlighted[int]) -> None:
        item = self.calls.items[event.node.data or 0]
        if item is not self.module:
            self.module = item
            self._list()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self.text = event.value
        self._list()

    @on(Input.Submitted)
    def _done_typing(self) -> None:
        self.table.focus()

    def action_keys(self) -> None:
        """Show what the keys do, or put that away again."""
        if self.screen.query(HelpPanel):
            self.action_hide_help_panel()
        else:
            self.action_show_help_panel()

    def action_search(self) -> None:
        """Open the search field."""
        field = self.query_one("#search", Input)
        field.add_class("open")
        field.focus()

    def action_clear(self) -> None:
        """Show everything again: no search, the whole model."""
        field = self.query_one("#search", Input)
        field.remove_class("open")
        field.value = ""
        self.text, self.module = "", self.calls.root
        self._list()
        self.table.focus()

    def action_sort(self) -> None:
        """The next order of the list."""
        self.sort = _next(self.orders, self.sort)
        self._list()

    def action_colour(self) -> None:
        """The next colouring: bottleneck, operator, fusion."""
        self.colour = _next(list(COLOURS), self.colour)
        self._list()

    def action_fold(self) -> None:
        """Fold repeated modules, or list them one by one."""
        self.folded = not self.folded
        self._plant()
        self.module = self.calls.root
        self._list()

    def action_jump(self, direction: str) -> None:
        """Go to the first node that this one reads, or that reads it."""
        if self.current is None:
            return
        target = neighbour(self.costed.graph, self.costed.graph.node(self.current), direction)
        if target is None:
            self.notify(f"no {direction}", timeout=2)
            return
        self.history.append(self.current)
        self._go(target)

    def action_return(self) -> None:
        """Go where the last jump came from."""
        if self.history:
            self._go(self.history.pop())

    def _go(self, node: int) -> None:
        self.current = node
        if node not in {r.id for r in self.shown}:
            self.module, self.text = self.calls.root, ""
            self.query_one("#search", Input).value = ""
        self._list()
        self._show(self.rows[node - 1])


def explore(costed: CostedRecord) -> None:
    """Run the explorer until the person leaves it; on a device there are predicted times."""
    Explorer(costed).run()


def _grow(at: TreeNode[int], item: Item, calls: CallTree) -> None:
    for child in item.member.children:
        one = child.member
        if one.node and not one.path:
            continue
        label = _module_label(child, calls)
        if one.node:
            at.add_leaf(label, data=child.id)
        else:
            _grow(at.add(label, data=child.id, expand=child.level < 4), child, calls)


def _module_label(item: Item, calls: CallTree) -> Text:
    """The name of a module and its share of the whole, with all its repetitions."""
    share = calls.share(calls.metric, item)
    label = Text(safe(item.label or item.cls), no_wrap=True)
    if item.kind is ItemKind.FOLD:
        label.append(f" × {item.count}", style="magenta")
    label.append(" ")
    label.append_text(bar(share.share, 5))
    label.append(f" {units.percent(share.share)}" if share.total else "", style="dim")
    return label


def _cells(row: NodeView, style: str) -> tuple[Text, ...]:
    makes = "" if row.shape is None else units.shape(row.shape)
    name = safe(row.name)
    figures = (
        units.count(row.flops) if row.flops else "",
        units.size(row.bytes) if row.bytes else "",
        units.intensity(row.arithmetic_intensity) if row.bytes else "",
    )
    return (
        Text(str(row.id), style="dim", justify="right"),
        Text(safe(row.op, 18), style=style),
        *(Text(figure, justify="right") for figure in figures),
        Text(row.bound or "no work", style=style),
        Text(name if len(name) <= 36 else "…" + name[-35:]),
        Text(safe(makes, 20), style="dim"),
    )


def _next(options: list[str], current: str) -> str:
    return options[(options.index(current) + 1) % len(options)]


# Everything about one node, for the pane at the right of the full-screen explorer.


# What the full-screen explorer lists: nodes below a module, filtered, sorted, coloured. Plain functions,
# without a screen.

SORTS: dict[str, Callable[[NodeView], float]] = {
    "execution": lambda r: r.id,
    "FLOPs": lambda r: -r.flops,
    "bytes": lambda r: -r.bytes,
    "parameters": lambda r: -r.elements,
    "intensity": lambda r: -(r.arithmetic_intensity or 0.0),
    "time": lambda r: -(r.seconds or 0.0),
    "host": lambda r: -(r.host_seconds or 0.0),
}
"""Orders of the list, by the name that is shown; ties keep the order of execution."""

COLOURS = ("bottleneck", "operator", "fusion")
_PALETTE = (
    "#7aa2f7", "#9ece6a", "#e0af68", "#f7768e", "#bb9af7", "#7dcfff", "#ff9e64", "#73daca",
    "#c0caf5", "#db4b4b", "#b4f9f8", "#9d7cd8",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Membership:
    """Which subgraph every node is in, by node id, and why each ends, by its own."""

    subgraphs: dict[int, Subgraph]
    ends: dict[int, str]

    @classmethod
    def of(cls, costed: CostedRecord) -> Membership:
        return cls({n: part for part in costed.parts for n in part.nodes}, dict(costed.barriers))


def listed(
    rows: Sequence[NodeView], inside: AbstractSet[int], text: str, sort: str
) -> list[NodeView]:
    """The rows of some nodes, by their ids, in which a text occurs, in an order."""
    wanted = text.casefold().strip()
    found = [r for r in rows if r.id in inside]
    if wanted:
        found = [r for r in found if any(wanted in t.casefold() for t in _texts(r))]
    return sorted(found, key=SORTS[sort])


def _texts(row: NodeView) -> tuple[str, ...]:
    return row.op, row.name, row.cls, row.place


def style_of(row: NodeView, colour: str, members: Membership, operators: Sequence[str]) -> str:
    """The style of a row under a colouring; the same thing is in words in a column or in the details."""
    if colour == "bottleneck":
        return BOUNDS[row.bound].style if row.bound else "dim"
    if colour == "operator":
        return _PALETTE[operators.index(row.op) % len(_PALETTE)]
    part = members.subgraphs.get(row.id)
    return "dim" if part is None else _PALETTE[part.id % len(_PALETTE)]


def neighbour(graph: Graph, node: Node, direction: str) -> int | None:
    """The id of the first node that this one reads ("inputs") or that reads it ("users")."""
    if direction == "inputs":
        return next(iter(graph.reads(node)), None)
    return next((u.id for v in node.outputs for u in graph.users.get(v, ())), None)


MOST = 8


def details(row: NodeView, part: Subgraph | None, end: str = "") -> Text:
    """What a node is, reads, makes and costs, where it stands in the source, and its subgraph with why
    that ends."""
    from rich.text import Text

    text = Text()
    text.append(f"{row.id}  {safe(row.op)}\n", style="bold")
    text.append(f"{safe(row.name)}\n\n", style="dim")
    for label, value in _facts(row):
        text.append(f"{label:<11}", style="dim")
        text.append(f"{value}\n")
    text.append(f"{'bound':<11}", style="dim")
    text.append_text(bound(row.bound))
    text.append("\n")
    if row.error is not None:
        text.append(f"\n{safe(row.error, 400)}\n", style="red")
    for title, lines in _lists(row, part, end):
        if lines:
            text.append(f"\n{title}\n", style="bold")
            text.append("".join(f"  {line}\n" for line in lines[:MOST]))
            if len(lines) > MOST:
                text.append(f"  … and {len(lines) - MOST} more\n", style="dim")
    return text


def _facts(row: NodeView) -> Iterator[tuple[str, str]]:
    yield "module", f"{safe(row.module) or '(root)'}  {safe(row.cls)}"
    if row.place:
        yield "source", safe(row.place)
    if row.arguments:
        yield "arguments", safe(row.arguments, 300)
    yield "parameters", units.integer(row.elements)
    yield "FLOPs", f"{units.flops(row.flops)}, {units.flops(row.other_flops)} other"
    yield "bytes", units.size(row.bytes)
    yield "intensity", f"{units.intensity(row.arithmetic_intensity)} FLOPs/byte"
    if row.seconds is not None:
        yield "predicted", units.seconds(row.seconds)
    if row.host_seconds:
        yield "host", f"{units.seconds(row.host_seconds)} to launch it"


def _lists(row: NodeView, part: Subgraph | None, end: str) -> Iterator[tuple[str, list[str]]]:
    yield "Reads (i)", list(map(_named, row.sources))
    yield "Used by (u)", list(map(_named, row.users))
    yield "Makes", [f"{units.shape(v.shape)} {v.dtype}" for v in row.outputs]
    yield "Parameters", [safe(p.rpartition(".")[2]) for p in row.parameters]
    yield "Kernels", [_kernel(k) for k in row.kernels]
    if part is not None:
        saved = f"{units.size(part.cost.bytes)} → {units.size(part.fused_bytes)}"
        yield (
            "Subgraph",
            [
                f"{part.id}: {safe(part.rule)}, {units.plural(len(part.nodes), 'node')}",
                safe(part.reason),
                f"nodes {part.nodes[0]} to {part.nodes[-1]}",
                *([f"ends: {safe(end)}"] if end else []),
                f"bytes fused {saved}",
            ],
        )


def _named(node: NodeView) -> str:
    return f"{node.id}  {safe(node.op)}"


def _kernel(kernel: Kernel) -> str:
    if kernel.cost == "unknown":
        return f"{safe(kernel.op)}  cost unknown"
    if not kernel.bytes:
        return f"{safe(kernel.op)}  no work"
    return f"{safe(kernel.op)}  {units.flops(kernel.flops)}, {units.size(kernel.bytes)}"
