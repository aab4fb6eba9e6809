"""Everything about one node, for the pane at the right of the full-screen explorer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.fusion.partition import Subgraph
from opgraph.analysis.selection import sources
from opgraph.record import units
from opgraph.record.graph import Graph, Kernel, Node
from opgraph.record.profile import ProfileRecord
from opgraph.views.marks import BOUNDS
from opgraph.views.terminal import bound, safe
from opgraph.views.text.nodes import NodeRow

if TYPE_CHECKING:
    from rich.text import Text


# What the full-screen explorer lists: nodes below a module, filtered, sorted, coloured. Plain functions,
# without a screen.

SORTS: dict[str, Callable[[NodeRow], float]] = {
    "execution": lambda r: r.id,
    "FLOPs": lambda r: -r.flops,
    "bytes": lambda r: -r.bytes,
    "parameters": lambda r: -r.parameters,
    "intensity": lambda r: -(r.intensity or 0.0),
    "time": lambda r: -(r.seconds or 0.0),
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
    rows: Sequence[NodeRow], inside: AbstractSet[int], text: str, sort: str
) -> list[NodeRow]:
    """The rows of some nodes, by their ids, in which a text occurs, in an order."""
    wanted = text.casefold().strip()
    found = [r for r in rows if r.id in inside]
    if wanted:
        found = [r for r in found if any(wanted in t.casefold() for t in _texts(r))]
    return sorted(found, key=SORTS[sort])


def _texts(row: NodeRow) -> tuple[str, ...]:
    return row.op, row.name, row.cls, row.place


def style_of(row: NodeRow, colour: str, members: Membership, operators: Sequence[str]) -> str:
    """The style of a row under a colouring; the same thing is in words in a column or in the details."""
    if colour == "bottleneck":
        return BOUNDS[row.bottleneck].style if row.bottleneck else "dim"
    if colour == "operator":
        return _PALETTE[operators.index(row.op) % len(_PALETTE)]
    part = members.subgraphs.get(row.id)
    return "dim" if part is None else _PALETTE[part.id % len(_PALETTE)]


def neighbour(graph: Graph, node: Node, direction: str) -> int | None:
    """The id of the first node that this one reads ("inputs") or that reads it ("users")."""
    if direction == "inputs":
        return next(iter(sources(graph, node)), None)
    return next((u.id for v in node.outputs for u in graph.users.get(v, ())), None)


MOST = 8


def details(profile: ProfileRecord, row: NodeRow, part: Subgraph | None, end: str = "") -> Text:
    """What a node is, reads, makes and costs, where it stands in the source, and its subgraph with why
    that ends."""
    from rich.text import Text

    node = profile.graph.node(row.id)
    text = Text()
    text.append(f"{row.id}  {safe(row.op)}\n", style="bold")
    text.append(f"{safe(row.name)}\n\n", style="dim")
    for label, value in _facts(row, node):
        text.append(f"{label:<11}", style="dim")
        text.append(f"{value}\n")
    text.append(f"{'bound':<11}", style="dim")
    text.append_text(bound(row.bottleneck))
    text.append("\n")
    if row.error is not None:
        text.append(f"\n{safe(row.error, 400)}\n", style="red")
    for title, lines in _lists(profile, row, node, part, end):
        if lines:
            text.append(f"\n{title}\n", style="bold")
            text.append("".join(f"  {line}\n" for line in lines[:MOST]))
            if len(lines) > MOST:
                text.append(f"  … and {len(lines) - MOST} more\n", style="dim")
    return text


def _facts(row: NodeRow, node: Node) -> Iterator[tuple[str, str]]:
    yield "module", f"{safe(row.module) or '(root)'}  {safe(row.cls)}"
    if row.place:
        yield "source", safe(row.place)
    if node.arguments:
        yield "arguments", safe(node.arguments, 300)
    yield "parameters", units.integer(row.parameters)
    yield "FLOPs", f"{units.flops(row.flops)}, {units.flops(row.other_flops)} other"
    yield "bytes", units.size(row.bytes)
    yield "intensity", f"{units.intensity(row.intensity)} FLOPs/byte"
    if row.seconds is not None:
        yield "predicted", units.seconds(row.seconds)


def _lists(
    profile: ProfileRecord, row: NodeRow, node: Node, part: Subgraph | None, end: str
) -> Iterator[tuple[str, list[str]]]:
    graph = profile.graph
    yield "Reads (i)", [_named(graph.node(i)) for i in row.reads]
    yield "Used by (u)", [_named(graph.node(i)) for i in row.users]
    yield (
        "Makes",
        [f"{units.shape(graph.value[v].shape)} {graph.value[v].dtype}" for v in node.outputs],
    )
    yield "Parameters", [safe(p.rpartition(".")[2]) for p in node.parameters]
    yield "Kernels", [_kernel(k) for k in node.kernels]
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


def _named(node: Node) -> str:
    return f"{node.id}  {safe(node.op)}"


def _kernel(kernel: Kernel) -> str:
    if kernel.cost == "unknown":
        return f"{safe(kernel.op)}  cost unknown"
    if not kernel.bytes:
        return f"{safe(kernel.op)}  no work"
    return f"{safe(kernel.op)}  {units.flops(kernel.flops)}, {units.size(kernel.bytes)}"
