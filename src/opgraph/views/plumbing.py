"""Which nodes the page does not draw until it is asked to, and a picture for a place not at all: those that
only look at data differently."""

from __future__ import annotations

from collections.abc import Container, Sequence

from opgraph.record.graph import Graph, Node

NOTHING = 0.001
"""Of all bytes moved: what ends in nothing and moves less is no part of the model's work."""


def plumbing(
    graph: Graph, reads: Sequence[Sequence[int]], removed: Container[int], branches: Container[int]
) -> list[bool]:
    """By node whether it does no work, has no weights and no error; or steers, or is of constants; or is
    worked out for such nodes alone (a mask that is summed up to choose a branch).

    `reads` are the ids of the nodes that make what each reads, `removed` those that are only in another
    graph, `branches` those at which data decided: they are drawn.
    """
    hidden = [_looks_only(node) for node in graph.nodes]
    if not any(node.kind == "output" for node in graph.nodes):
        return hidden
    little = NOTHING * sum(node.bytes for node in graph.nodes)
    used: set[int] = set()
    for at in reversed(range(len(hidden))):
        node = graph.nodes[at]
        ends = node.kind == "call" and node.id not in used and node.id not in removed
        if node.id in branches:
            hidden[at] = False
        elif ends and _only_computes(node) and node.bytes < little:
            hidden[at] = True
        elif not hidden[at] or node.id in used:
            used.update(reads[at])
    return hidden


def _looks_only(node: Node) -> bool:
    if node.kind in ("input", "output") or node.error:
        return False
    if node.kind in ("control", "constant"):
        return True
    return not node.parameters and all(kernel.cost == "zero" for kernel in node.kernels)


def _only_computes(node: Node) -> bool:
    """In the forward, without an error, without weights, and into nothing that there is already."""
    writes = node.op.endswith("_")
    return node.phase == "forward" and not (node.error or node.parameters or writes)
