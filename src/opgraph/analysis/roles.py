"""What part a node plays in fusion, by its operator and by the kernels it ran."""

from __future__ import annotations

from typing import Literal

from opgraph.graph import Graph, Node

Role = Literal[
    "boundary", "contraction", "attention", "normalization", "scale", "softmax", "reduction",
    "elementwise", "movement", "view", "other",
]  # fmt: skip
"""Boundary is an input, an output or a constant; scale is a normalization whose statistics are given,
which is element-wise work; movement is copying, gathering and joining."""

_OF_CATEGORY: dict[str, Role] = {
    "matmul": "contraction",
    "convolution": "contraction",
    "depthwise_convolution": "contraction",
    "grouped_convolution": "contraction",
    "attention": "attention",
    "normalization": "normalization",
    "softmax": "softmax",
    "reduction": "reduction",
    "pooling": "reduction",
    "elementwise": "elementwise",
    "copy": "movement",
    "indexing": "movement",
    "interpolation": "movement",
}
_OF_OPERATOR: dict[str, Role] = {
    "scaled_dot_product_attention": "attention",
    "multi_head_attention_forward": "attention",
    "rms_norm": "normalization",
    "softmax": "softmax",
    "to": "elementwise",
    "clone": "elementwise",
    "contiguous": "elementwise",
    "reshape": "elementwise",
    "masked_fill": "elementwise",
    "where": "elementwise",
    "copy": "elementwise",
}
RANK: tuple[Role, ...] = (
    "attention", "other", "contraction", "softmax", "normalization", "reduction", "movement",
    "elementwise", "view",
)  # fmt: skip
"""Of a node with several kernels, the first of these that occurs is its role."""


def roles_of(graph: Graph) -> tuple[Role, ...]:
    """The roles of all nodes, in order."""
    return tuple(map(role_of, graph.nodes))


def role_of(node: Node) -> Role:
    """The role of a node."""
    if node.kind != "call":
        return "boundary"
    working = [k for k in node.kernels if k.cost != "zero" and (k.bytes or k.flops)]
    if not working:
        return "view"
    if node.op in _OF_OPERATOR:
        return _OF_OPERATOR[node.op]
    if node.op == "batch_norm" and not any(_has_statistics(k.out_shapes) for k in working):
        return "scale"
    roles = {_OF_CATEGORY.get(k.category, "other") for k in working}
    return next(r for r in RANK if r in roles)


def _has_statistics(out_shapes: tuple[tuple[int | str, ...], ...]) -> bool:
    """A batch norm in training gives the mean and the variance of the batch; otherwise they are empty."""
    return len(out_shapes) > 1 and bool(out_shapes[1]) and out_shapes[1] != (0,)
