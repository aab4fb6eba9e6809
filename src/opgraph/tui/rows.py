"""What the full-screen explorer lists: nodes below a module, filtered, sorted, coloured. Plain functions,
without a screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opgraph.analysis.edges import sources
from opgraph.analysis.endings import endings
from opgraph.analysis.fusion import Subgraph
from opgraph.analysis.selection import matches
from opgraph.graph import Graph, Node
from opgraph.views.nodes import NodeRow
from opgraph.views.terminal import BOUND_STYLES

SORTS: dict[str, Callable[[NodeRow], float]] = {
    "execution": lambda r: r.id,
    "FLOPs": lambda r: -r.flops,
    "traffic": lambda r: -r.bytes,
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
    def of(cls, graph: Graph, parts: Sequence[Subgraph]) -> Membership:
        return cls({node: part for part in parts for node in part.nodes}, endings(graph, parts))


def listed(rows: Sequence[NodeRow], module: str, text: str, sort: str) -> list[NodeRow]:
    """The rows below a module (a path, or one with folded numbers) in which a text occurs, in an order."""
    wanted = text.casefold().strip()
    found = [r for r in rows if not module or matches(module, r.module)]
    if wanted:
        found = [r for r in found if any(wanted in t.casefold() for t in _texts(r))]
    return sorted(found, key=SORTS[sort])


def _texts(row: NodeRow) -> tuple[str, ...]:
    return row.op, row.name, row.cls, row.place


def style_of(row: NodeRow, colour: str, members: Membership, operators: Sequence[str]) -> str:
    """The style of a row under a colouring; the same thing is in words in a column or in the details."""
    if colour == "bottleneck":
        return BOUND_STYLES.get(row.bottleneck or "", "dim")
    if colour == "operator":
        return _PALETTE[operators.index(row.op) % len(_PALETTE)]
    part = members.subgraphs.get(row.id)
    return "dim" if part is None else _PALETTE[part.id % len(_PALETTE)]


def neighbour(graph: Graph, node: Node, direction: str) -> int | None:
    """The id of the first node that this one reads ("inputs") or that reads it ("users")."""
    if direction == "inputs":
        return next(iter(sources(graph, node)), None)
    return next((u.id for v in node.outputs for u in graph.users.get(v, ())), None)
