"""What an operator does in a few characters, for the second line of its box: Conv2d *7×7 /2*, Linear
*768→3072*, Embedding *50257×768*; and where the data decided which way the model went."""

from __future__ import annotations

import re

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
    """By the id of a node that asked whether something holds which depends on weights or on numbers that
    come in: what was taken ("branch taken: True"). What hangs on masks and shapes alone is not in it."""
    depends = {v for v in graph.inputs if "float" in graph.value[v].dtype}
    found = {}
    for node in graph.nodes:
        if node.parameters or not depends.isdisjoint(node.inputs):
            depends.update(node.outputs)
            if node.target.endswith("__bool__"):
                found[node.id] = f"branch taken: {node.arguments.lstrip('→ ') or 'not recorded'}"
    return found


def _square(first: str, second: str | None) -> str:
    return f"{first}×{second or first}"


def _stride(node: Node) -> str:
    found = _STRIDE.search(node.arguments)
    sizes = [size for size in found.groups() if size] if found else []
    if not sizes or set(sizes) == {"1"}:
        return ""
    return f" /{sizes[0]}" if len(set(sizes)) == 1 else f" /{'×'.join(sizes)}"
