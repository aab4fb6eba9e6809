"""Where dimensions of a value are in a result: what a view, a copy, element-wise work or a sum makes of
them."""

from __future__ import annotations

from math import prod

from opgraph.graph import Value

Dims = frozenset[int]
"""The dimensions of a value that come from the split one; empty where every device has the whole."""


def sizes(value: Value) -> list[int]:
    """The sizes of all dimensions."""
    return [size(n) for n in value.shape]


def size(n: int | str) -> int:
    """The size of a dimension; 0 of one that is a symbol."""
    return n if isinstance(n, int) else 0


def _strides(value: Value, *, logical: bool) -> list[int]:
    if value.strides is not None and not logical:
        return list(value.strides)
    shape = sizes(value)
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def moved(source: Value, out: Value, dims: Dims, *, alias: bool, copied: bool) -> set[int]:
    """Where split dimensions are in a result.

    In a view a dimension is where its memory is: between its stride and its stride times its size. (A
    copy that reshapes keeps the logical order instead.) In other work dimensions are aligned from the
    right; one that changes its size (joined along it) is no longer one piece.
    """
    if not alias:
        shift = len(out.shape) - len(source.shape)
        return {
            d + shift for d in dims if d + shift >= 0 and out.shape[d + shift] == source.shape[d]
        }
    before, after = _strides(source, logical=copied), _strides(out, logical=copied)
    spans = [(before[d], before[d] * size(source.shape[d])) for d in dims]
    return {
        d
        for d, (stride, n) in enumerate(zip(after, sizes(out), strict=True))
        if n > 1 and any(max(stride, low) < min(stride * n, high) for low, high in spans)
    }


def reduced(source: Value, shape: tuple[int | str, ...]) -> Dims | None:
    """The dimensions that are summed up, from what became of them; None where that is not clear."""
    if shape == source.shape:
        return frozenset({len(shape) - 1})
    if len(shape) == len(source.shape):
        return frozenset(
            d for d, (a, b) in enumerate(zip(source.shape, shape, strict=True)) if a != b
        )
    if shape == source.shape[:-1]:
        return frozenset({len(shape)})
    return None
