"""A graph in another precision, on paper: what would run, and move, under automatic mixed precision.

The rules are those of torch.autocast on CUDA (https://docs.pytorch.org/docs/stable/amp.html, "Op-specific
behavior"): contractions take and give the lower dtype; some operators are kept in float32; everything
else runs in the widest dtype that comes in. Where a dtype does not fit, a copy kernel converts it, and
parameters are converted once. A graph goes in, traced in float32, and a graph comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from opgraph.record.graph import Graph, Kernel, Node, Shape, Storage, Value, elements
from opgraph.record.units import item_size

Policy = Literal["lower", "float32", "float32-result", "first", "widest"]
"""What an operator does with floating-point inputs: converts them all to the lower dtype, or to
float32; reads them as they are and gives float32; follows the first; or runs in the widest of them."""

_LOWER = frozenset(
    "matmul convolution depthwise_convolution grouped_convolution attention recurrent".split()
)
_FLOAT32 = frozenset(
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus "
    "native_layer_norm native_group_norm nll_loss_forward nll_loss2d_forward mse_loss dist renorm "
    "_cdist_forward logsumexp upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d".split()
)
_FLOAT32_RESULT = frozenset(
    "_softmax _log_softmax _safe_softmax prod cumprod cumsum sum linalg_vector_norm norm".split()
)
_FIRST = frozenset(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
    "_native_batch_norm_legit_functional cudnn_batch_norm miopen_batch_norm _batch_norm_with_update "
    "_batch_norm_no_update grid_sampler_2d grid_sampler_3d".split()
)
_WHOLE = frozenset(
    "scaled_dot_product_attention linear matmul bmm mm addmm baddbmm addbmm mv dot chain_matmul prelu "
    "conv conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc".split()
)
"""Operators that autocast converts the inputs of and then leaves alone, whatever they are made of."""

_WIDTH = {"float8": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


def policy_of(kernel: Kernel) -> Policy:
    """The rule of autocast for an operator."""
    if kernel.category in _LOWER:
        return "lower"
    name = kernel.op.rpartition(".")[2].removesuffix("_")
    if name in _FLOAT32:
        return "float32"
    if name in _FIRST:
        return "first"
    return "float32-result" if name in _FLOAT32_RESULT else "widest"


def autocast(
    graph: Graph,
    lower: str = "float16",
    override: Callable[[Node, Kernel], Policy | None] | None = None,
) -> Graph:
    """The graph as autocast to the dtype `lower` would run it.

    `override` may give another policy for some kernels (a model that asks for its normalizations in
    the lower dtype).
    """
    run = _Run(graph, lower, override or (lambda *_: None))
    nodes = tuple(map(run.node, graph.nodes))
    return replace(graph, nodes=nodes, values=tuple(run.values()), storages=tuple(run.storages()))


class _Run:
    """One pass over the nodes, in order: the dtype of every value, and where each kernel went."""

    def __init__(
        self, graph: Graph, lower: str, override: Callable[[Node, Kernel], Policy | None]
    ) -> None:
        self.graph, self.lower, self.override = graph, lower, override
        self.dtypes: dict[int, str] = {}
        self.converted: set[str | None] = set()
        self.placing = Placing()

    def dtype(self, value: Value) -> str:
        return self.dtypes.get(value.id, value.dtype)

    def node(self, node: Node) -> Node:
        inputs = [self.graph.value[v] for v in node.inputs]
        floats = [v for v in inputs if _floating(v.dtype)]
        operands = _Operands(floats, [self.dtype(v) for v in floats])
        current = self.dtype(floats[0]) if floats else None
        kernels: list[Kernel] = []
        whole = node.op in _WHOLE
        if whole:
            for value in floats:
                self._convert(node, value, value.shape, self.dtype(value), self.lower, kernels)
            inside = "float32" if _in_full_precision(node, floats) else self.lower
            for value in floats:
                self._convert(node, value, value.shape, self.lower, inside, kernels)
            operands = _Operands(floats, [inside] * len(floats))
            current = inside if floats else None
        for kernel in node.kernels:
            if kernel.cost == "zero" or not _floating(kernel.dtype):
                self.placing.keep(kernel, kernels)
                operands.view(kernel)
                continue
            policy = "widest" if whole else self.override(node, kernel) or policy_of(kernel)
            current = self._run(node, kernel, policy, operands, current, kernels)
        if whole and floats:
            current = self.lower
        for v in node.outputs:
            value = self.graph.value[v]
            if current is not None and _floating(value.dtype):
                alias = value.alias_of
                same = alias is not None and not any(k.cost != "zero" for k in node.kernels)
                self.dtypes[v] = (
                    self.dtype(self.graph.value[alias]) if same and alias is not None else current
                )
        return replace(node, kernels=tuple(kernels))

    def _run(
        self, node: Node, kernel: Kernel, policy: Policy, operands: _Operands, current: str | None,
        kernels: list[Kernel],
    ) -> str:  # fmt: skip
        """Place a kernel, with the conversions before it; gives the dtype of its result."""
        found = [operands.take(shape, current or kernel.dtype) for shape in kernel.shapes]
        dtypes = [d for _, d in found if _floating(d)]
        wide = [
            d for s, (_, d) in zip(kernel.shapes, found, strict=True) if s and _floating(d)
        ] or dtypes
        result = max(wide, key=_width, default=kernel.dtype)
        if policy in ("lower", "float32"):
            target = self.lower if policy == "lower" else "float32"
            for shape, (value, dtype) in zip(kernel.shapes, found, strict=True):
                self._convert(node, value, shape, dtype, target, kernels)
            now = [target if _floating(d) else d for _, d in found]
            result = target
        else:
            now = [d for _, d in found]
            if policy == "float32-result":
                result = "float32"
            elif policy == "first" and dtypes:
                result = dtypes[0]
        if kernel.op.endswith("_") and found:
            result = now[0]
        before = [v.dtype if v is not None else kernel.dtype for v, _ in found]
        read = _scaled(kernel.read, kernel.shapes, before, now)
        written = _written(kernel, result)
        compute = result if policy != "float32-result" else "float32"
        now_run = replace(kernel, dtype=compute, read=read, written=written)
        self.placing.keep(now_run, kernels)
        return result

    def _convert(
        self, node: Node, value: Value | None, shape: Shape, dtype: str, target: str,
        kernels: list[Kernel],
    ) -> None:  # fmt: skip
        """A copy in another dtype, placed before the kernel that needs it; a parameter's is kept."""
        if not _floating(dtype) or _width(dtype) == _width(target):
            return
        if value is not None:
            shape = value.shape
        parameter = value is not None and value.kind == "parameter"
        if value is not None and parameter:
            if value.name in self.converted:
                return
            self.converted.add(value.name)
        count = elements(shape)
        size = count * item_size(target)
        copy = Kernel("aten._to_copy", "copy", target, read=count * item_size(dtype), written=size,
                      shapes=(shape,), out_shapes=(shape,))  # fmt: skip
        self.placing.add(copy, kernels, node.id, size, stays=parameter)

    def values(self) -> Iterator[Value]:
        for value in self.graph.values:
            dtype = self.dtypes.get(value.id)
            if dtype is None or dtype == value.dtype:
                yield value
            else:
                size = value.bytes * item_size(dtype) // item_size(value.dtype)
                yield replace(value, dtype=dtype, bytes=size)

    def storages(self) -> Iterator[Storage]:
        """The storages in their new sizes and at the new positions of their kernels, then the copies."""
        first: dict[int, Value] = {}
        for value in self.graph.values:
            if value.storage is not None:
                first.setdefault(value.storage, value)
        sizes = [storage.bytes for storage in self.graph.storages]
        for index, shown in first.items():
            if shown.id in self.dtypes:
                new, old = item_size(self.dtypes[shown.id]), item_size(shown.dtype)
                sizes[index] = sizes[index] * new // old
        return self.placing.storages(self.graph.storages, sizes)


class _Operands:
    """Which of a node's inputs each operand of its kernels is: they go by shape and order, and by the
    number of elements where a kernel sees a reshaped one."""

    def __init__(self, values: list[Value], dtypes: list[str]) -> None:
        self.left = list(zip(values, dtypes, strict=True))
        self.used: list[tuple[Value, str]] = []
        self.shown: dict[Shape, Shape] = {}

    def view(self, kernel: Kernel) -> None:
        """A kernel sees what a view made: the input under another shape."""
        if kernel.shapes and kernel.out_shapes:
            self.shown.setdefault(kernel.out_shapes[0], kernel.shapes[0])

    def take(self, shape: Shape, otherwise: str) -> tuple[Value | None, str]:
        """The input of that shape and its dtype, or None and the dtype of what the node made itself."""
        for _ in range(len(self.shown)):
            if shape not in self.shown or any(v.shape == shape for v, _ in self.left):
                break
            shape = self.shown[shape]
        size = elements(shape)
        for candidates, consume in ((self.left, True), (self.used, False)):
            for fits in (lambda v: v.shape == shape, lambda v: elements(v.shape) == size):
                for entry in candidates:
                    if fits(entry[0]):
                        if consume:
                            self.left.remove(entry)
                            self.used.append(entry)
                        return entry
        return None, otherwise


def _in_full_precision(node: Node, operands: list[Value]) -> bool:
    """Attention that is not fused (which takes four dimensions) computes in float32 inside, unless
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp says otherwise."""
    attention = node.op == "scaled_dot_product_attention"
    return attention and bool(operands) and len(operands[0].shape) != 4


def _floating(dtype: str) -> bool:
    return dtype in _WIDTH


def _width(dtype: str) -> int:
    return _WIDTH.get(dtype, 0)


def _written(kernel: Kernel, dtype: str) -> int:
    """The bytes written with results in another dtype; indices and statistics beside the first result
    stay as they are."""
    old, new = item_size(kernel.dtype), item_size(dtype)
    first = elements(kernel.out_shapes[0]) * old if kernel.out_shapes else kernel.written
    rest = kernel.written - first
    alike = rest == sum(map(elements, kernel.out_shapes[1:])) * old
    if rest <= 0 or (alike and kernel.category != "normalization"):
        return kernel.written * new // old
    return first * new // old + rest


def _scaled(total: int, shapes: tuple[Shape, ...], before: list[str], now: list[str]) -> int:
    """Bytes that scale with the sizes of the operands' elements."""
    old = sum(elements(s) * item_size(d) for s, d in zip(shapes, before, strict=True))
    new = sum(elements(s) * item_size(d) for s, d in zip(shapes, now, strict=True))
    return total * new // old if old else total


# Kernels put before others of a graph, and when the graph's storages live then: what every pass needs
# that adds kernels (conversions of mixed precision, the scaling of activations).


class Placing:
    """One pass over a graph's kernels in order: each of its own is kept, and others are added."""

    def __init__(self) -> None:
        self._moved: list[int] = []
        self._clock = 0
        self._added: list[Storage] = []

    def keep(self, kernel: Kernel, kernels: list[Kernel]) -> None:
        """Place a kernel that the graph has."""
        self._moved.append(self._clock)
        self._clock += 1
        kernels.append(kernel)

    def add(
        self, kernel: Kernel, kernels: list[Kernel], node: int, size: int, *, stays: bool = False
    ) -> None:
        """Place another before the next. What it makes has so many bytes, and lives until that next one is
        done, or `stays` to the end."""
        self._added.append(Storage(size, self._clock, None if stays else self._clock + 2, node))
        self._clock += 1
        kernels.append(kernel)

    def storages(self, storages: Sequence[Storage], sizes: Sequence[int]) -> Iterator[Storage]:
        """The graph's storages in these sizes and at the new positions of their kernels, then those that
        were added."""
        ends = [*self._moved, self._clock]
        for storage, size in zip(storages, sizes, strict=True):
            died = storage.died
            yield replace(
                storage,
                bytes=size,
                born=ends[storage.born],
                died=died if died is None else (ends[died - 1] + 1 if died else 0),
            )
        for storage in self._added:
            died = storage.died
            yield replace(storage, died=None if died is None else min(died, self._clock))
