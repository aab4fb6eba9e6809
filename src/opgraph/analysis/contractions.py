"""Contractions by their sizes: every one as a batch of matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from opgraph.graph import Kernel

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
