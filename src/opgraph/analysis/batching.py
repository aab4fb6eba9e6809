"""The same graph for another batch, on paper: what every sequence needs is multiplied, and what all of
them share (weights, and what is made from weights alone) is not.

The first dimension of a tensor is taken for the batch, as generating models have it. Traces at both
batches agree with this to the byte where no operator treats sequences together; a router of experts does,
and there as many experts are read as there are rows, until all are.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from opgraph.record.graph import Graph, Kernel, Node, Shape, Storage, Value
from opgraph.record.units import item_size

_LOOKUPS = ("aten.embedding", "aten.index_select", "aten.index", "aten.gather")
"""Operators that read a few rows of a table: more of them for more sequences."""

_GROUPED = "aten._grouped_mm"


def at_batch(graph: Graph, times: int) -> Graph:
    """The graph of a run with so many times the batch."""
    if times == 1:
        return graph
    shared = _shared(graph)
    nodes = tuple(_node(graph, n, shared, times) for n in graph.nodes)
    values = tuple(v if v.id in shared else _value(v, times) for v in graph.values)
    return replace(
        graph,
        nodes=nodes,
        values=values,
        storages=tuple(_storage(graph, s, shared, times) for s in graph.storages),
    )


def _shared(graph: Graph) -> set[int]:
    """Values that are the same for every sequence."""
    found = {v.id for v in graph.values if v.kind in ("parameter", "buffer", "constant")}
    for node in graph.nodes:
        if node.kind != "input" and found.issuperset(node.inputs):
            found.update(node.outputs)
    return found


def _node(graph: Graph, node: Node, shared: set[int], times: int) -> Node:
    if node.kind == "input" or not node.kernels or shared.issuperset(node.inputs):
        return node
    value = graph.value
    ours = [value[v] for v in node.inputs if v in shared]
    theirs = {value[v].shape for v in node.inputs if v not in shared}
    kernels = tuple(_kernel(k, ours, theirs, times) for k in node.kernels)
    return replace(node, kernels=kernels)


def _kernel(kernel: Kernel, ours: list[Value], theirs: set[Shape], times: int) -> Kernel:
    """`ours` are the values of the node that all sequences share, `theirs` the shapes of the others."""
    still = [_weight(shape, ours, theirs) for shape in kernel.shapes]
    kept = 0 if kernel.op in _LOOKUPS else sum(_bytes(v) for v in still if v is not None)
    kept = min(kept, kernel.read)
    read = kept + (kernel.read - kept) * times
    if kernel.op == _GROUPED and len(kernel.shapes) >= 2 and still[1] is not None:
        read = _grouped(kernel, _bytes(still[1]), times)
    return replace(
        kernel,
        flops=kernel.flops * times,
        other_flops=kernel.other_flops * times,
        read=read,
        written=kernel.written * times,
        shapes=tuple(
            shape if value is not None else _longer(shape, times)
            for shape, value in zip(kernel.shapes, still, strict=True)
        ),
        out_shapes=tuple(_longer(shape, times) for shape in kernel.out_shapes),
    )


def _weight(shape: Shape, ours: list[Value], theirs: set[Shape]) -> Value | None:
    """The shared value that an operand of a kernel is: turned, perhaps, on its way there."""
    if shape in theirs:
        return None
    sizes = sorted(map(str, shape))
    return next((v for v in ours if sorted(map(str, v.shape)) == sizes), None)


def _grouped(kernel: Kernel, weights: int, times: int) -> int:
    """The bytes read by the experts of a mixture: those that have a row."""
    rows, experts = kernel.shapes[0][0], kernel.shapes[1][0]
    if not isinstance(rows, int) or not isinstance(experts, int):
        return kernel.read * times
    before = weights * min(rows, experts) // experts
    after = weights * min(rows * times, experts) // experts
    return (kernel.read - before) * times + after


def _bytes(value: Value) -> int:
    return prod(n for n in value.shape if isinstance(n, int)) * item_size(value.dtype)


def _longer(shape: Shape, times: int) -> Shape:
    first = shape[0] if shape else None
    return (first * times, *shape[1:]) if isinstance(first, int) else shape


def _value(value: Value, times: int) -> Value:
    return replace(value, shape=_longer(value.shape, times), bytes=value.bytes * times)


def _storage(graph: Graph, storage: Storage, shared: set[int], times: int) -> Storage:
    if storage.node is not None:
        node = graph.node(storage.node)
        if node.kind != "input" and shared.issuperset(node.inputs):
            return storage
    return replace(storage, bytes=storage.bytes * times)
