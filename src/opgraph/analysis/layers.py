"""The contractions of a graph as the layers that designers of accelerators map: loops over images, groups,
filters, channels, positions and a window. What is no contraction, or has no such loops, is listed apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from opgraph.analysis.timing.workload import contraction_of
from opgraph.record.graph import Graph, Kernel, Node
from opgraph.record.kinds import Category

_WINDOWED = (Category.CONVOLUTION, Category.GROUPED_CONVOLUTION, Category.DEPTHWISE_CONVOLUTION)


Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Loops:
    """The nest of a contraction: `images` x `groups` x `filters` (of a group) x `channels` (of a group) x
    `positions` (rows, columns of the result) x `window` (rows, columns).

    A product of m x k by k x n has m positions, n filters, k channels and a window of one; a batch of
    products with operands of their own is as many groups. `size` are rows and columns of a convolution's
    input, `padding` is what is put before them.
    """

    images: int
    groups: int
    filters: int
    channels: int
    positions: Pair
    window: Pair = (1, 1)
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    padding: Pair = (0, 0)
    size: Pair = (0, 0)

    @property
    def macs(self) -> int:
        return (self.images * self.groups * self.filters * self.channels
                * prod(self.positions) * prod(self.window))  # fmt: skip

    @property
    def read(self) -> Pair:
        """Rows and columns of the input that the window passes over, with padding."""
        rows, columns = (
            (p - 1) * s + (w - 1) * d + 1
            for p, s, w, d in zip(
                self.positions, self.stride, self.window, self.dilation, strict=True
            )
        )
        return rows, columns

    @property
    def padding_after(self) -> Pair:
        """What is put behind the last row and column that the window reaches."""
        rows, columns = (
            max(0, read - size - before)
            for read, size, before in zip(self.read, self.size, self.padding, strict=True)
        )
        return rows, columns

    @property
    def is_product(self) -> bool:
        """Whether it is a (batch of) matrix products, without a window."""
        return self.window == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0)

    def unfolded(self) -> Loops:
        """The same work as one matrix product a group, of the unfolded input (im2col)."""
        rows = self.images * prod(self.positions)
        return Loops(1, self.groups, self.filters, self.channels * prod(self.window), (rows, 1))


@dataclass(frozen=True, slots=True)
class Layer:
    """A contraction that runs `count` times: its loops, its dtype, the first node that runs it, and a name
    in which the numbers of repeated modules are stars."""

    name: str
    op: str
    node: int
    dtype: str
    loops: Loops
    count: int = 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all its runs."""
        return self.count * self.loops.macs


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a graph in their order, and what is none: operators by how many kernels they run, and
    MACs of contractions whose loops are not known."""

    layers: tuple[Layer, ...]
    others: tuple[tuple[str, int], ...] = ()
    lost: tuple[tuple[str, int], ...] = ()

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all layers; with those of `lost`, the graph's."""
        return sum(layer.macs for layer in self.layers)

    @property
    def runs(self) -> tuple[Layer, ...]:
        """The layers one by one, each as often as it runs."""
        return tuple(replace(x, count=1) for x in self.layers for _ in range(x.count))


def layers(graph: Graph) -> Layers:
    """The contractions of a graph; those with equal loops in modules that repeat are one layer."""
    found: Counter[Layer] = Counter()
    first: dict[tuple[str, str, str, Loops], Layer] = {}
    others: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for node in graph.nodes:
        for kernel in node.kernels:
            if not kernel.flops:
                if kernel.bytes or kernel.other_flops or kernel.cost == "unknown":
                    others[kernel.op.removeprefix("aten.")] += 1
                continue
            nests = tuple(_loops(node, kernel))
            if sum(n.macs for n in nests) != kernel.macs:
                lost[kernel.op.removeprefix("aten.")] += kernel.macs
                continue
            for nest in nests:
                key = (_starred(node), node.op, kernel.dtype, nest)
                layer = first.setdefault(key, Layer(key[0], node.op, node.id, kernel.dtype, nest))
                found[layer] += 1
    return Layers(
        tuple(replace(layer, count=count) for layer, count in found.items()),
        tuple(others.most_common()),
        tuple(lost.most_common()),
    )


def _starred(node: Node) -> str:
    """The module and operator of a node; numbers of its path are stars."""
    path = re.sub(r"(?<![^.])\d+(?![^.])", "*", node.scope)
    last = path.rsplit(".", 1)[-1]
    phase = "" if node.phase == "forward" else f".{node.phase}"
    own = node.op in _OWN and last not in ("", "*")
    return f"{path}{phase}" if own else f"{path}.{node.op}{phase}".lstrip(".")


_OWN = ("linear", "conv1d", "conv2d", "conv3d", "addmm")
"""Operators that are all that a module does, whose name then says enough."""


def _loops(node: Node, kernel: Kernel) -> Iterator[Loops]:
    """The loops of what a kernel contracts, one nest a product; none where they cannot be told."""
    if any(isinstance(n, str) for s in (*kernel.shapes, *kernel.out_shapes) for n in s):
        return
    shapes = [tuple(int(n) for n in s) for s in kernel.shapes]
    outs = [tuple(int(n) for n in s) for s in kernel.out_shapes]
    if kernel.category == Category.ATTENTION:
        yield from _attention(kernel, shapes)
    elif kernel.category in _WINDOWED and not kernel.op.endswith("_backward"):
        nest = _convolution(node, shapes, outs[0])
        yield from _products(kernel) if nest is None else (nest,)
    else:
        yield from _products(kernel)


def _attention(kernel: Kernel, shapes: list[tuple[int, ...]]) -> Iterator[Loops]:
    """Queries by keys, and their softmax by values. The backward does the first again, and has two more
    products for each of the two."""
    if kernel.op.endswith("_backward"):
        shapes = shapes[1:]  # the first is the gradient of the result
    if len(shapes) < 3 or min(map(len, shapes[:3])) < 3:
        return
    query, key, value = shapes[:3]
    groups, rows, columns = prod(query[:-2]), query[-2], key[-2]
    scores = Loops(1, groups, columns, query[-1], (rows, 1))
    mixed = Loops(1, groups, value[-1], columns, (rows, 1))
    yield scores
    if not kernel.op.endswith("_backward"):
        yield mixed
        return
    yield Loops(1, groups, columns, value[-1], (rows, 1))  # gradient of the scores
    yield Loops(1, groups, value[-1], rows, (columns, 1))  # of the values
    yield Loops(1, groups, query[-1], columns, (rows, 1))  # of the queries
    yield Loops(1, groups, query[-1], rows, (columns, 1))  # of the keys


def _convolution(node: Node, shapes: list[tuple[int, ...]], out: tuple[int, ...]) -> Loops | None:
    """The loops of a convolution over one or two dimensions, whose stride and padding the node says; None
    for others, and where what it says does not lead from the input's size to the result's."""
    if "transpose" in node.op or len(shapes) < 2 or len(out) not in (3, 4):
        return None
    x, weight = shapes[0], shapes[1]
    if len(x) != len(out) or len(weight) != len(out) or len(node.kernels) != 1:
        return None
    size = len(out) - 2
    stride, dilation = _said(node, "stride", size, 1), _said(node, "dilation", size, 1)
    window = weight[2:]
    taken = zip(out[2:], stride, window, dilation, strict=True)
    spans = [(p - 1) * s + (w - 1) * d + 1 for p, s, w, d in taken]
    padding = _said(node, "padding", size, 0)
    if re.search(r"\bpadding='?same", node.arguments):
        padding = tuple((span - n) // 2 for span, n in zip(spans, x[2:], strict=True))
    elif not all(
        0 <= n + 2 * p - span < s
        for n, p, span, s in zip(x[2:], padding, spans, stride, strict=True)
    ):
        return None
    groups = max(1, x[1] // weight[1])

    def pair(sizes: tuple[int, ...], fill: int) -> Pair:
        rows, columns = ((fill,) * 2 + sizes)[-2:]
        return rows, columns

    # A convolution over one dimension has one row, at which any stride and dilation are the same.
    return Loops(out[0], groups, out[1] // groups, weight[1], pair(out[2:], 1), pair(window, 1),
                 pair(stride, stride[0]), pair(dilation, dilation[0]), pair(padding, 0),
                 pair(x[2:], 1))  # fmt: skip


def _said(node: Node, name: str, size: int, default: int) -> tuple[int, ...]:
    """The sizes of an argument of a node, for each dimension."""
    found = re.search(rf"\b{name}=\(?(\d+(?:, \d+)*)", node.arguments)
    sizes = [int(n) for n in found[1].split(", ")] if found else [default]
    return tuple((sizes * size)[:size] if len(sizes) < size else sizes[:size])


def _products(kernel: Kernel) -> Iterator[Loops]:
    """A kernel as (batches of) matrix products, of the unfolded input where it is a convolution: one, or
    two where a backward computes the gradients of both operands. A product with a vector has one filter;
    rows that groups share as evenly as they can (the gradient of experts) are one more for some of them."""
    if (sizes := contraction_of(kernel)) is not None:
        nest = Loops(1, sizes.batch, sizes.n, sizes.k, (sizes.m, 1))
        if kernel.category != Category.MATMUL:
            yield from (nest,) * (kernel.macs // max(1, nest.macs))
            return
        channels, more = divmod(kernel.macs // max(1, sizes.m * sizes.n), sizes.batch)
        for groups, each in ((sizes.batch - more, channels), (more, channels + 1)):
            if groups and each:
                yield replace(nest, groups=groups, channels=each)
    elif kernel.category == Category.MATMUL and len(kernel.out_shapes[0]) < 2:
        rows = prod(int(n) for n in kernel.out_shapes[0])
        yield Loops(1, 1, 1, kernel.macs // max(1, rows), (rows, 1))
