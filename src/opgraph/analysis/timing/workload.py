"""What a device really runs for a graph: one piece of work after the other, with the sizes of its
contraction, the layout of what it reads, and how long ago that was last touched.

A trace on the CPU spells some operators as several kernels that an accelerator runs as one (attention
with a mask, RMS normalization): they are put together here. Allocations and views are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod
from typing import Literal

from opgraph.record.graph import Graph, Kernel, Node, Shape, Value
from opgraph.record.units import item_size

# Contractions by their sizes: every one as a batch of matrix products.

_CONVOLUTIONS = frozenset({"convolution", "depthwise_convolution", "grouped_convolution"})


@dataclass(frozen=True, slots=True)
class Contraction:
    """`batch` products of m x k by k x n.

    For a convolution, m are the positions of the result (of the input when transposed; batch included), n
    the output channels of a group, k the channels that one of them sums over times `window`, the area of
    the kernel, and the groups are the batch. The gradients of its input and of its weight are the same
    product with the sizes in other places, and have those of the forward. For attention, m and n are the
    lengths of query and key, and k the width of a head.
    """

    batch: int
    m: int
    n: int
    k: int
    window: int = 1

    def padding(self, m: int, n: int, k: int) -> float:
        """How much larger the work is when the sizes are rounded up to multiples of a tile's.

        The window of a convolution is not padded, the channels are.
        """
        channels = self.k / self.window
        return (
            (ceil(self.m / m) * m / self.m)
            * (ceil(self.n / n) * n / self.n)
            * (ceil(channels / k) * k / channels)
        )


def contraction_of(kernel: Kernel) -> Contraction | None:
    """The sizes of a contraction from the shapes of its operands; None where they are not known."""
    symbolic = any(isinstance(n, str) for s in (*kernel.shapes, *kernel.out_shapes) for n in s)
    if not kernel.flops or not kernel.out_shapes or symbolic:
        return None
    shapes = [tuple(int(n) for n in s) for s in kernel.shapes]
    out = tuple(int(n) for n in kernel.out_shapes[0])
    if kernel.category in _CONVOLUTIONS:
        backward = kernel.op.endswith("_backward")
        operands = shapes[:3] if backward else [out, *shapes[:2]]
        products = sum(s in operands[1:] for s in kernel.out_shapes) if backward else 1
        if len(operands) < 3 or not products:
            return None
        return _convolution(*operands, flops=kernel.flops // products)
    if kernel.category == "attention" and len(shapes) >= 2 and min(map(len, shapes[:2])) >= 2:
        query, key = shapes[0], shapes[1]
        return Contraction(prod(query[:-2]), query[-2], key[-2], query[-1])
    if len(out) >= 2 and 0 not in out:
        batch, m, n = prod(out[:-2]), out[-2], out[-1]
        return Contraction(batch, m, n, max(1, kernel.flops // (2 * batch * m * n)))
    return None


def _convolution(
    out: tuple[int, ...], x: tuple[int, ...], weight: tuple[int, ...], *, flops: int
) -> Contraction | None:
    """The groups follow from the shapes: a weight is [out, in / groups, ...], or [in, out / groups, ...]
    when transposed, and in * out is groups times the product of both either way."""
    if len(out) < 3 or not len(x) == len(weight) == len(out) or 0 in (*x, *weight, *out):
        return None
    groups = max(1, x[1] * out[1] // prod(weight[:2]))
    window = prod(weight[2:])
    n = max(1, out[1] // groups)
    k = max(1, x[1] // groups) * window
    return Contraction(groups, max(1, flops // (2 * groups * n * k)), n, k, window)


ONE_KERNEL = {
    "scaled_dot_product_attention": "attention",
    "rms_norm": "normalization",
    "lstm": "recurrent",
    "gru": "recurrent",
}
"""Operators that are one kernel on an accelerator however many the trace shows, and its category."""

PASSES = {"aten._safe_softmax": 22 / 8}
"""Operators that are several kernels although the trace shows one: their traffic in that of one. A safe
softmax is a softmax, a comparison, a reduction of its result and a choice: of four-byte elements 8 + 5 +
1 + 8 bytes instead of 8 (aten/src/ATen/native/SoftMax.cpp)."""

Layout = Literal["contiguous", "channels-last", "mixed"]
"""Channels-last is by the first operand. Mixed operands differ in shape, dtype or strides, so that an
element-wise kernel cannot run through all of them in step."""


@dataclass(frozen=True, slots=True)
class Work:
    """One kernel of a device, made by the node `node`.

    `reads` are pairs: bytes of an operand, and the bytes that were moved since it was last touched
    (its own included; None when it was not touched in this run: inputs and weights). `positions` are
    the results' elements in all dimensions but batch and channels.
    """

    node: int
    op: str
    kernel: str
    category: str
    dtype: str
    flops: int
    other_flops: int
    written: int
    reads: tuple[tuple[int, int | None], ...]
    contraction: Contraction | None = None
    layout: Layout = "contiguous"
    positions: int = 1

    @property
    def read(self) -> int:
        return sum(size for size, _ in self.reads)

    @property
    def bytes(self) -> int:
        return self.read + self.written

    def near(self, cache: float) -> int:
        """Bytes read that a cache of this size may still hold."""
        return sum(s for s, distance in self.reads if distance is not None and distance <= cache)


def workload(graph: Graph) -> tuple[Work, ...]:
    """The work of a graph in order of execution."""
    return tuple(_works(graph))


def _works(graph: Graph) -> Iterator[Work]:
    moved = 0
    touched: dict[object, int] = {}
    for node in graph.nodes:
        inputs = [graph.value[v] for v in node.inputs]
        kernels = list(_kernels(node, inputs))
        for position, kernel in enumerate(kernels, start=1):
            operands = list(_operands(kernel, inputs))
            reads = []
            for size, value in operands:
                last = moved if value is None else touched.get(_memory(value))
                reads.append((size, None if last is None else moved - last + size))
            moved += kernel.read + kernel.written
            known = [v for _, v in operands if v is not None]
            made = [graph.value[v] for v in node.outputs] if position == len(kernels) else []
            touched.update((_memory(v), moved) for v in (*known, *made))
            yield Work(
                node=node.id,
                op=node.op,
                kernel=kernel.op,
                category=kernel.category,
                dtype=kernel.dtype,
                flops=kernel.flops,
                other_flops=kernel.other_flops,
                written=int(kernel.written * PASSES.get(kernel.op, 1)),
                reads=tuple((int(s * PASSES.get(kernel.op, 1)), d) for s, d in reads),
                contraction=contraction_of(kernel),
                layout=_layout(kernel, [v for _, v in operands]),
                positions=_elements(kernel.out_shapes[0][2:]) if kernel.out_shapes else 1,
            )


def _kernels(node: Node, inputs: list[Value]) -> Iterator[Kernel]:
    """The kernels that do something, those of one operator put together. Fused attention takes four
    dimensions (batch, heads, tokens, width); with any other number it is really several kernels."""
    real = [k for k in node.kernels if k.read or k.written or k.flops]
    category = ONE_KERNEL.get(node.op)
    conversions = [k for k in real if k.op == "aten._to_copy"]
    work = [k for k in real if k.op != "aten._to_copy"]
    apart = category == "attention" and inputs and len(inputs[0].shape) != 4
    if category is None or len(work) < 2 or apart:
        yield from real
    else:
        yield from conversions
        yield _one(work, category)


def _one(kernels: list[Kernel], category: str) -> Kernel:
    """Several kernels as one: it reads what comes from outside and writes what the last one writes."""
    first, last = kernels[0], kernels[-1]
    read, shapes = first.read, first.shapes
    products = [k for k in kernels if k.category in ("matmul", "attention")]
    if len(products) >= 2:
        scores = products[0].written
        read = products[0].read + max(0, products[1].read - scores)
        query, key = products[0].shapes[-2:]
        shapes = (query, (*key[:-2], key[-1], key[-2]), products[1].shapes[-1])
    return Kernel(
        op=first.op,
        category=category,
        dtype=last.dtype,
        flops=sum(k.flops for k in kernels),
        other_flops=sum(k.other_flops for k in kernels),
        read=read,
        written=last.written,
        cost=first.cost,
        shapes=shapes,
        out_shapes=last.out_shapes,
    )


def _memory(value: Value) -> object:
    """What tells two pieces of memory apart."""
    return value.name if value.storage is None else value.storage


def _operands(kernel: Kernel, inputs: list[Value]) -> Iterator[tuple[int, Value | None]]:
    """The bytes of each operand, and the node's input that it is; None for what the node made itself.

    The kernel's bytes read are shared out over the operands by their sizes.
    """
    left = list(inputs)
    found = []
    for shape in kernel.shapes:
        size = _elements(shape)
        value = next((v for v in left if v.shape == shape), None) or next(
            (v for v in left if _elements(v.shape) == size), None
        )
        if value is not None:
            left.remove(value)
        found.append((size * item_size(kernel.dtype if value is None else value.dtype), value))
    total = sum(size for size, _ in found)
    for size, value in found:
        yield kernel.read * size // total if total else 0, value


def _layout(kernel: Kernel, operands: list[Value | None]) -> Layout:
    full = [
        (shape, value)
        for shape, value in zip(kernel.shapes, operands, strict=True)
        if _elements(shape) > 1
    ]
    if kernel.category in ("elementwise", "copy") and kernel.out_shapes:
        values = [v for _, v in full if v is not None]
        spread = any(shape != kernel.out_shapes[0] for shape, _ in full)
        unlike = len({(v.dtype, v.strides) for v in values}) > 1
        if unlike or (spread and kernel.category == "elementwise"):
            return "mixed"
    first = full[0][1] if full else None
    if first is None or first.strides is None or len(first.shape) < 3:
        return "contiguous"
    return "channels-last" if first.strides[1] == 1 and first.shape[1] != 1 else "contiguous"


def _elements(shape: Shape) -> int:
    return prod(n for n in shape if isinstance(n, int))
