"""What an operator of a trace, or the name of a kernel, may be in a graph: by its name and the shapes of
its tensors, by its name alone, or by what kernels of its class are called."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from opgraph.record.graph import Graph, Kernel, Node
from opgraph.record.names import canonical
from opgraph.traces.events import FUSED, Call, Shapes

_CONVOLUTION = re.compile(
    "^(?!.*nchwtonhwc|.*nhwctonchw).*(?:conv|cudnn|miopen|igemm|winograd|implicit)"
)

_CALLED = {
    "matmul": re.compile("gemm|gemv|cutlass|cijk_|xmma|nvjet|cublas|wgmma"),
    "convolution": _CONVOLUTION,
    "grouped_convolution": _CONVOLUTION,
    "depthwise_convolution": _CONVOLUTION,
    "attention": re.compile("flash|fmha|attn|attention"),
    "normalization": re.compile("norm|rowwisemoments|bn_fw"),
    "softmax": re.compile("softmax"),
    "pooling": re.compile("pool"),
    "copy": re.compile("copy_kernel|copy_device|memcpy"),
}
"""What kernels of a class of work are called in cuBLAS, cuDNN, CUTLASS, hipBLASLt, MIOpen, Composable
Kernel, Triton and torch's own sources."""

_ALSO = {
    "relu": "(?:relu|clamp)",
    "eq": "(?:eq|compareeq)",
    "all": "(?:all|and)_kernel",
    "embedding": "index",
    "arange": "elementwise_kernel_with_index",
}

Signature = tuple[str, Shapes]


@lru_cache(maxsize=4096)
def canonical_name(name: str) -> str:
    """One name of an operator ("add" for "aten::add_" and "aten.add.Tensor"), on any device: for attention,
    and without `foreach`, whose loop over the weights is the same work."""
    found = canonical(name.rpartition("::")[2].removeprefix("aten.").partition(".")[0])
    if found.startswith("scaled_dot_product") and "attention" in found:
        return f"scaled_dot_product_attention{'_backward' if found.endswith('_backward') else ''}"
    return found.removeprefix("foreach_")


def _ordered(shapes: Iterable[tuple[int | str, ...]]) -> Shapes:
    """The shapes of all tensors that have any sizes, in one order."""
    return tuple(sorted(s for s in shapes if s and all(isinstance(d, int) for d in s)))  # type: ignore[misc]


@dataclass
class Positions:
    """The graph as a sequence of what does work, and what each signature may be in it: apart for the
    backward, whose products look like those of the forward."""

    nodes: list[Node]
    signatures: tuple[dict[Signature, int], dict[Signature, int]]
    names: tuple[dict[str, int], dict[str, int]]
    forward: dict[int, list[int]]
    kernels: list[Kernel | None]
    works: int
    """How many nodes do work, and are no views."""
    meant: dict[str, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> Positions:
        nodes: list[Node] = []
        found: tuple[dict[Signature, int], ...] = ({}, {})
        names: tuple[dict[str, int], ...] = ({}, {})
        forward: dict[int, list[int]] = {}
        done: list[Kernel | None] = []

        def note(side: int, op: str, shapes: Iterable[tuple[int | str, ...]], at: int) -> None:
            key = (op, _ordered(shapes))
            found[side][key] = found[side].get(key, 0) | 1 << at
            names[side][op] = names[side].get(op, 0) | 1 << at

        for node in graph.nodes:
            if node.kind != "call":
                continue
            if node.forward is not None:
                forward.setdefault(node.forward, []).append(len(nodes))
            backward = node.phase in ("backward", "recompute")
            # What the backward begins with is called from outside of autograd's engine.
            sides = (0, 1) if backward and node.forward is None else (int(backward),)
            inputs = [graph.value[v].shape for v in node.inputs]
            kernels = [k for k in node.kernels if k.cost != "zero"]
            for side in sides:
                note(side, canonical_name(node.op), inputs, len(nodes))
                note(side, canonical_name(node.target.rpartition(".")[2]), inputs, len(nodes))
                for i, kernel in enumerate(kernels):
                    op, at = canonical_name(kernel.op), len(nodes) + i
                    note(side, op, kernel.shapes, at)
                    note(side, op, kernel.shapes + kernel.out_shapes, at)  # `out=` is an input, too
            nodes += [node] * max(1, len(kernels))
            done += kernels or [None]
        works = len({n.id for n, k in zip(nodes, done, strict=True) if k is not None})
        return cls(nodes, (found[0], found[1]), (names[0], names[1]), forward, done, works)

    def mask(self, call: Call, *, backward: bool, shaped: bool) -> int:
        """The positions that a call of the host may have."""
        op = canonical_name(call.name)
        if not shaped:
            return self.names[backward].get(op, 0)
        if call.shapes is None:
            return 0
        return self.signatures[backward].get((op, _ordered(call.shapes)), 0)

    def kernel_mask(self, name: str) -> int | None:
        """The positions whose kernels a name may mean; None for a name that says nothing."""
        if name not in self.meant:
            text, mask = name.lower(), 0
            if FUSED.match(name):
                return None
            alike = {k: _means(text, k) for k in set(self.kernels) if k is not None}
            for at, kernel in enumerate(self.kernels):
                if kernel is not None and alike[kernel]:
                    mask |= 1 << at
            self.meant[name] = mask or None
        return self.meant[name]


def _means(name: str, kernel: Kernel) -> bool:
    """Whether the name of a device's kernel (in lower case) is that of an operator's work: by what kernels
    of its class are called in the libraries of all makers, or by the operator's own name in it."""
    op = canonical_name(kernel.op)
    if op == "cat" or "catarray" in name:
        return op == "cat" and "catarray" in name
    called = _CALLED.get(kernel.category)
    if called is not None:
        return called.search(name) is not None
    return re.search(rf"(?<![a-z]){_ALSO.get(op) or re.escape(op)}", name) is not None


def worked(node: Node) -> list[str]:
    """The operators of a node's kernels, as they stand in the name of a compiled kernel."""
    found = (k.op.removeprefix("aten.").partition(".")[0] for k in node.kernels if k.cost != "zero")
    return [op.rstrip("_") for op in found]
