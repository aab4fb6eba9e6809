"""What a device really runs for a graph: one piece of work after the other, with the sizes of its
contraction, the layout of what it reads, and how long ago that was last touched.

Kernels are those of the trace, which is made for a target; where another device runs several of them as one
they were put together before (`opgraph.analysis.targets`). Allocations and views are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, NamedTuple

from opgraph.analysis.cost.conventions import LOOK_UP, is_causal, is_masked, pairs_left
from opgraph.record.graph import Collective, Graph, Kernel, Node, Value, elements
from opgraph.record.units import element_size

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


PASSES = {
    "aten._safe_softmax": 22 / 8,
    "aten.native_batch_norm": 3 / 2,
    "aten.native_batch_norm_backward": 5 / 3,
}
"""Operators that are several kernels, or several passes over their data, although the trace shows one:
their traffic in that of one. A safe softmax is a softmax, a comparison, a reduction of its result and a
choice: of four-byte elements 8 + 5 + 1 + 8 bytes instead of 8 (aten/src/ATen/native/SoftMax.cpp). Batch
normalization in training reads all for the statistics before it reads and writes, and its gradient reads
its two operands for two sums first (aten/src/ATen/native/cuda/Normalization.cuh)."""


def _passes(kernel: Kernel) -> float:
    """The traffic of an operator in that of one pass. Where nothing is learned, batch normalization keeps
    no statistics."""
    if kernel.op == "aten.native_batch_norm" and not any(map(elements, kernel.out_shapes[1:])):
        return 1.0
    return PASSES.get(kernel.op, 1.0)


QUANTIZED = "quantized."
SCALING = f"{QUANTIZED}scale_"
"""What the names of kernels begin with that read weights in fewer bits, and of those that scale the rows
that such weights are multiplied with."""

Layout = Literal["contiguous", "channels-last", "mixed"]
"""Channels-last is by the first operand, and of convolutions by any: cuDNN brings the others into that
layout (aten/src/ATen/native/ConvUtils.h, `cudnn_conv_suggest_memory_format`). Mixed operands differ in
shape, dtype or strides, so that an element-wise kernel cannot run through all of them in step."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one kernel does, wherever in a graph it runs: `sizes` are the bytes of its operands, `positions`
    the results' elements in all dimensions but batch and channels. Kernels that do the same share one. Of a
    kernel that is divided over modules it is the part with this `share`. Weights in fewer bits than
    they are multiplied in are `packed` to this part of their bytes. It runs on the device, or `on_host`.
    Its products are `multiplied` in another dtype than its own where one is given, and the device has units
    for it."""

    kernel: str
    category: str
    dtype: str
    flops: int
    other_flops: int
    written: int
    sizes: tuple[int, ...]
    contraction: Contraction | None = None
    layout: Layout = "contiguous"
    positions: int = 1
    collective: Collective | None = None
    share: float = 1.0
    packed: float = 1.0
    on_host: bool = False
    multiplied: str = ""

    @property
    def products(self) -> str:
        """The dtype that its products are to be computed in."""
        return self.multiplied or self.dtype

    @property
    def read(self) -> int:
        return sum(self.sizes)

    @property
    def beside(self) -> bool:
        """Whether it is exchanged in a queue beside the kernels: not what a product exchanges by pieces,
        and not what autograd saves in the host's memory."""
        each = self.collective
        return each is not None and not self.flops and each.group != SAVED

    @property
    def bytes(self) -> int:
        return self.read + self.written


SAVED = "saved"
"""The group of what autograd keeps in the host's memory: its copies are in the queue of kernels."""

NOTHING = Task("", "view", "", 0, 0, 0, ())
"""What an operator does that launches nothing, as views do: it takes the host's time alone."""


class Work(NamedTuple):
    """A task that the node `node` runs.

    `distances` are, for each operand, the bytes that were moved since it was last touched (its own
    included; None when it was not touched in this run: inputs and weights). The host makes `calls` calls of
    operators and `modules` calls of modules for it: of a node's tasks, the first has them, and what
    multiplies rows that are scaled before has a call of its own. The views of a
    backward are not called: autograd makes them in C++ (torch/csrc/autograd), beside what it calls. What a
    part of a kernel reads is near to nothing: the other parts come between.
    """

    node: int
    task: Task
    distances: tuple[int | None, ...] = ()
    calls: int = 1
    modules: int = 0

    def near(self, cache: float) -> int:
        """Bytes read that a cache of this size still holds."""
        found = 0
        for size, distance in zip(self.task.sizes, self.distances, strict=True):
            if distance is not None and distance <= cache:
                found += size
        return found


def workload(graph: Graph) -> tuple[Work, ...]:
    """The work of a graph in order of execution."""
    return tuple(_works(graph))


@dataclass(frozen=True, slots=True)
class _Step:
    """A task of a node, the place among the node's inputs of each operand, and the bytes it moves."""

    task: Task
    operands: tuple[int | None, ...]
    moves: int


def _works(graph: Graph) -> Iterator[Work]:
    known: dict[object, tuple[_Step, ...]] = {}
    launching: dict[
        tuple[int, ...], tuple[bool, bool, int | None]
    ] = {}  # no work; only views; launches if divided
    alike: dict[Task, Task] = {}  # equal ones are one, whether or not their kernels are one object
    moved = 0
    touched: dict[object, int] = {}
    scope = ""
    value, on_host = graph.value, graph.on_host.nodes
    for node in graph.nodes:
        kernels = tuple(map(id, node.kernels))
        if kernels not in launching:
            divided = any(k.share < 1 for k in node.kernels)
            launching[kernels] = (not any(map(_works_at_all, node.kernels)),
                                  all(k.category == "view" for k in node.kernels),
                                  sum(k.launches for k in node.kernels) if divided else None)  # fmt: skip
        idle, views, launches = launching[kernels]
        called = node.kind == "call" and not (views and node.phase == "backward")
        calls, modules = int(called), 0
        if called and node.scope != scope:
            modules, scope = _entered(scope, node.scope), node.scope
        if launches is not None:
            calls, modules = launches, 0
        if idle:
            if called:
                yield Work(node.id, NOTHING, (), calls, modules)
            continue
        inputs = [value[v] for v in node.inputs]
        causal, there = is_causal(node), node.id in on_host
        like = (
            node.op,
            kernels,
            causal,
            there,
            tuple([(v.shape, v.dtype, v.strides) for v in inputs]),
        )
        steps = known.get(like)
        if steps is None:
            made = list(_steps(node, inputs))
            tasks = (replace(s.task, on_host=True) if there else s.task for s in made)
            made = [
                replace(s, task=alike.setdefault(t, t)) for s, t in zip(made, tasks, strict=True)
            ]
            steps = known[like] = tuple(made)
        places = [v.name if v.storage is None else v.storage for v in inputs]
        for step in steps:
            distances: list[int | None] = []
            for size, operand in zip(step.task.sizes, step.operands, strict=True):
                last = moved if operand is None else touched.get(places[operand])
                near = None if last is None or step.task.share < 1 else moved - last + size
                distances.append(near)
            moved += step.moves
            for operand in step.operands:
                if operand is not None:
                    touched[places[operand]] = moved
            yield Work(node.id, step.task, tuple(distances), calls, modules)
            modules = 0  # what multiplies rows that were scaled before is called apart
            calls = int(called and launches is None and step.task.kernel.startswith(SCALING))
        for v in node.outputs:
            place = value[v]
            touched[place.name if place.storage is None else place.storage] = moved


def _entered(before: str, now: str) -> int:
    """Modules that were called between two operators, by the paths of the modules they are in."""
    if not now:
        return 0
    old, new = before.split("."), now.split(".")
    pairs = enumerate(zip(old, new, strict=False))
    return len(new) - next((i for i, (a, b) in pairs if a != b), min(len(old), len(new)))


def _steps(node: Node, inputs: list[Value]) -> Iterator[_Step]:
    for kernel in filter(_works_at_all, node.kernels):
        masked = is_masked(node, kernel)
        left = left_by_mask(kernel) if masked else float(kernel.op != LOOK_UP)  # however counted
        operands = list(_operands(kernel, inputs))
        values = [None if place is None else inputs[place] for _, place in operands]
        passes = _passes(kernel)
        task = Task(
            kernel=kernel.op,
            category=kernel.category,
            dtype=kernel.dtype,
            flops=round(kernel.flops * left),
            other_flops=round(kernel.other_flops * left),
            written=int(kernel.written * passes),
            sizes=tuple(int(size * passes) for size, _ in operands),
            contraction=contraction_of(kernel),
            layout=_layout(kernel, values),
            positions=elements(kernel.out_shapes[0][2:]) if kernel.out_shapes else 1,
            collective=kernel.collective,
            share=kernel.share,
            packed=packed_of(kernel, values),
            multiplied=kernel.multiplied,
        )
        yield _Step(task, tuple(place for _, place in operands), kernel.read + kernel.written)


def left_by_mask(kernel: Kernel) -> float:
    """The share of its FLOPs that fused causal attention computes: it passes over blocks of which the mask
    leaves nothing (Dao 2023, section 3.1.1)."""
    sizes = contraction_of(kernel) if kernel.category == "attention" else None
    return 1.0 if sizes is None else pairs_left(sizes.m, sizes.n) / (sizes.m * sizes.n)


def packed_of(kernel: Kernel, operands: Sequence[Value | None]) -> float:
    """What an element of a quantized weight takes of one that the product computes with."""
    if not kernel.op.startswith(QUANTIZED):
        return 1.0
    sizes = (element_size(v.dtype) for v in operands if v is not None and v.kind != "input")
    return min(1.0, *sizes, 1.0) / element_size(kernel.dtype)


def _works_at_all(kernel: Kernel) -> bool:
    return bool(kernel.read or kernel.written or kernel.flops)


def _operands(kernel: Kernel, inputs: list[Value]) -> Iterator[tuple[int, int | None]]:
    """The bytes of each operand, and which of the node's inputs it is; None for what the node made itself.

    The kernel's bytes read are shared out over the operands by their sizes.
    """
    left = list(range(len(inputs)))
    found = []
    for shape in kernel.shapes:
        size = elements(shape)
        place = next((i for i in left if inputs[i].shape == shape), None)
        if place is None:
            place = next((i for i in left if elements(inputs[i].shape) == size), None)
        if place is not None:
            left.remove(place)
        dtype = kernel.dtype if place is None else inputs[place].dtype
        found.append((int(size * element_size(dtype)), place))
    total = sum(size for size, _ in found)
    for size, place in found:
        yield kernel.read * size // total if total else 0, place


def _layout(kernel: Kernel, operands: list[Value | None]) -> Layout:
    full = [
        (shape, value)
        for shape, value in zip(kernel.shapes, operands, strict=True)
        if elements(shape) > 1
    ]
    if kernel.category in ("elementwise", "copy") and kernel.out_shapes:
        values = [v for _, v in full if v is not None]
        spread = any(shape != kernel.out_shapes[0] for shape, _ in full)
        unlike = len({(v.dtype, v.strides) for v in values}) > 1
        if unlike or (spread and kernel.category == "elementwise"):
            return "mixed"
    deciding = full if kernel.category.endswith("convolution") else full[:1]
    return "channels-last" if any(_channels_last(v) for _, v in deciding) else "contiguous"


def _channels_last(value: Value | None) -> bool:
    if value is None or value.strides is None or len(value.shape) < 3:
        return False
    return value.strides[1] == 1 and value.shape[1] != 1
