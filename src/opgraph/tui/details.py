"""Everything about one node, for the pane at the right of the full-screen explorer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from opgraph import units
from opgraph.analysis.fusion import Subgraph
from opgraph.document import Profile
from opgraph.graph import Kernel, Node
from opgraph.views.nodes import NodeRow
from opgraph.views.terminal import bound, safe

if TYPE_CHECKING:
    from rich.text import Text

MOST = 8


def details(profile: Profile, row: NodeRow, part: Subgraph | None, end: str = "") -> Text:
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
    yield "traffic", units.size(row.bytes)
    yield "intensity", f"{units.intensity(row.intensity)} FLOPs/byte"
    if row.seconds is not None:
        yield "predicted", units.seconds(row.seconds)


def _lists(
    profile: Profile, row: NodeRow, node: Node, part: Subgraph | None, end: str
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
                f"traffic fused {saved}",
            ],
        )


def _named(node: Node) -> str:
    return f"{node.id}  {safe(node.op)}"


def _kernel(kernel: Kernel) -> str:
    if kernel.cost == "unknown":
        return f"{safe(kernel.op)}  cost unknown"
    if not kernel.bytes:
        return f"{safe(kernel.op)}  free"
    return f"{safe(kernel.op)}  {units.flops(kernel.flops)}, {units.size(kernel.bytes)}"
