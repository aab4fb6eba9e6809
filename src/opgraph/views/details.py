"""What an operator does in a few characters, for the second line of its box: Conv2d *7×7 /2*, Linear
*768→3072*, Embedding *50257×768*; and where the data decided which way the model went."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from opgraph.record.graph import Graph, Node
from opgraph.record.kinds import Category

_CONVOLUTIONS = (Category.CONVOLUTION, Category.GROUPED_CONVOLUTION, Category.DEPTHWISE_CONVOLUTION)
_PRODUCTS = ("linear", "addmm", "mm", "matmul", "bilinear")
_STRIDE = re.compile(r"\bstride=\(?(\d+)(?:, (\d+))?(?:, (\d+))?")
_WINDOW = re.compile(r"(?:^|\bkernel_size=)\(?(\d+)(?:, (\d+)\))?")
_GROUPS = re.compile(r"\bgroups=(\d+)")


def details(graph: Graph, node: Node) -> str:
    """The window and stride of a convolution or a pooling, features in and out of a product with a weight,
    and rows and columns of a table; empty for all else."""
    kinds = {kernel.category for kernel in node.kernels}
    weights = [graph.parameter[name].shape for name in node.parameters if name in graph.parameter]
    weight = max(weights, key=len, default=())
    if kinds.intersection(_CONVOLUTIONS) and len(weight) > 2:
        groups = " depthwise" if Category.DEPTHWISE_CONVOLUTION in kinds else ""
        if not groups and (found := _GROUPS.search(node.arguments)) and found[1] != "1":
            groups = f" {found[1]} groups"
        return f"{'×'.join(map(str, weight[2:]))}{_stride(node)}{groups}"
    if (
        Category.POOLING in kinds
        and (window := _WINDOW.search(node.arguments))
        and "pool" in node.op
    ):
        return "" if "adaptive" in node.op else f"{_square(*window.groups())}{_stride(node)}"
    if node.op == "embedding" and len(weight) == 2:
        return f"{weight[0]}×{weight[1]}"
    if node.op in _PRODUCTS and len(weight) == 2 and node.outputs:
        made = graph.value[node.outputs[0]].shape[-1:]
        if made and made[0] in weight:
            return f"{weight[1] if weight[0] == made[0] else weight[0]}→{made[0]}"
    return ""


def branches(graph: Graph) -> dict[int, str]:
    """By the id of a node at which Python code got to know what depends on weights or on numbers that come
    in: the branch that it took by whether something holds ("branch taken: True"), or that a value was read,
    on which one may hang. What hangs on masks and shapes alone is not in it."""
    depends = {v for v in graph.inputs if "float" in graph.value[v].dtype}
    found = {}
    for node in graph.nodes:
        if node.parameters or not depends.isdisjoint(node.inputs):
            depends.update(node.outputs)
            if node.target.endswith("__bool__"):
                found[node.id] = f"branch taken: {node.arguments.lstrip('→ ') or 'not recorded'}"
            elif node.op == "item" and node.phase == "forward":
                found[node.id] = "value read by Python"
    return found


def _square(first: str, second: str | None) -> str:
    return f"{first}×{second or first}"


def _stride(node: Node) -> str:
    found = _STRIDE.search(node.arguments)
    sizes = [size for size in found.groups() if size] if found else []
    if not sizes or set(sizes) == {"1"}:
        return ""
    return f" /{sizes[0]}" if len(set(sizes)) == 1 else f" /{'×'.join(sizes)}"


# Which nodes the page does not draw until it is asked to, and a picture for a place not at all: those
# that only look at data differently.


NOTHING = 0.001
"""Of all bytes moved: what ends in nothing and moves less is no part of the model's work."""


def plumbing(
    graph: Graph, reads: Sequence[Sequence[int]], removed: Container[int], branches: Container[int]
) -> list[bool]:
    """By node whether it does no work, has no weights and no error; or steers, or is of constants; or is
    worked out for such nodes alone (a mask that is summed up to choose a branch), or an input that only
    they read.

    `reads` are the ids of the nodes that make what each reads, `removed` those that are only in another
    graph, `branches` those at which data decided: they are drawn.
    """
    hidden = [looks_only(node) for node in graph.nodes]
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
    followed: set[int] = set()
    for at in reversed(range(len(hidden))):
        node = graph.nodes[at]
        if node.kind == "input":
            hidden[at] = node.id not in followed and node.id not in removed
        elif not hidden[at] or node.id in followed:
            followed.update(reads[at])
    return hidden


def looks_only(node: Node) -> bool:
    """Whether it does no work on data: a view of it, a constant, or what steers the program."""
    if node.kind in ("input", "output") or node.error:
        return False
    if node.kind in ("control", "constant"):
        return True
    return not node.parameters and all(kernel.cost == "zero" for kernel in node.kernels)


def _only_computes(node: Node) -> bool:
    """In the forward, without an error, without weights, and into nothing that there is already."""
    writes = node.op.endswith("_")
    return node.phase == "forward" and not (node.error or node.parameters or writes)
