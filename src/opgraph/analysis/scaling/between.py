"""The profile at a batch between two that were traced, where everything in them is a line in the batch.

Two traces have the same operators in the same order, the same tensors and the same life of every piece of
memory, or there is nothing to go between. Then each size of a tensor has to be the same in both or grow as
the batch does, one of a shape at most; and each count (of bytes, of FLOPs) has to be a line with whole
coefficients of which neither is negative, and what goes by the lesser of two by the same one at both ends.
What is not, as similarities of all items of a batch with one another, the rows of a table that many tokens
share, or n log n, is refused: it has to be traced."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from opgraph.costs import formulas as _formulas  # noqa: F401  (they register)
from opgraph.costs.registry import regime
from opgraph.record.graph import Dim, Graph, Kernel, Node, Shape, Storage, Value, maker
from opgraph.record.profile import Attempt, ProfileRecord, Tracing

_NUMBER = re.compile(r"(\d+)")
_value, _storage = maker(Value), maker(Storage)
T = TypeVar("T")


class _Bent(Exception):
    """Something is no line."""


DERIVED = "derived"
"""What stands for a tracer where nothing was traced."""


def between(
    low: ProfileRecord, high: ProfileRecord, batches: tuple[int, int], batch: int
) -> ProfileRecord | None:
    """The profile at a `batch` between the `batches` of two of one model; None where that has to be
    traced."""
    facts = (replace(p, graph=_NONE, tracing=_tracing(p, p.tracing.tracer)) for p in (low, high))
    try:
        _same(*facts)
        graph = _Lines(*batches, batch).graph(low.graph, high.graph)
    except _Bent:
        return None
    return replace(high, graph=graph, tracing=_tracing(high, DERIVED))


_NONE = Graph((), (), ())


def _tracing(profile: ProfileRecord, tracer: str) -> Tracing:
    """How it was found, by this in the end, and without the seconds that it took."""
    *failed, last = profile.tracing.attempts
    return Tracing((*failed, Attempt(tracer, last.tensors)))


class _Lines:
    """What goes through two points, at a batch between them."""

    def __init__(self, least: int, most: int, batch: int) -> None:
        self._least, self._most, self._batch = least, most, batch
        self._kernels: dict[tuple[int, int], Kernel] = {}

    def graph(self, low: Graph, high: Graph) -> Graph:
        _same(*((g.scopes, g.parameters, g.inputs, g.outputs, g.breaks) for g in (low, high)))
        return replace(
            low,
            nodes=tuple(self._node(*pair) for pair in _pairs(low.nodes, high.nodes)),
            values=tuple(self._value(*pair) for pair in _pairs(low.values, high.values)),
            storages=tuple(self._storage(*pair) for pair in _pairs(low.storages, high.storages)),
        )

    def _node(self, a: Node, b: Node) -> Node:
        _same(*((n.id, n.kind, n.op, n.name, n.scope, n.target, n.inputs, n.outputs, n.parameters, n.file,
                n.line, n.fragment, n.phase, n.error, n.forward) for n in (a, b)))  # fmt: skip
        kernels = tuple(self._kernel(*pair) for pair in _pairs(a.kernels, b.kernels))
        return replace(a, kernels=kernels, arguments=self._text(a.arguments, b.arguments))

    def _kernel(self, a: Kernel, b: Kernel) -> Kernel:
        key = id(a), id(b)
        found = self._kernels.get(key)
        if found is None:
            _same(
                *(
                    (
                        k.op,
                        k.category,
                        k.dtype,
                        k.cost,
                        k.collective,
                        k.share,
                        k.launches,
                        regime(k.op, k.shapes, k.out_shapes, k.read - k.written),
                    )
                    for k in (a, b)
                )
            )
            found = self._kernels[key] = replace(
                a,
                flops=self._count(a.flops, b.flops),
                other_flops=self._count(a.other_flops, b.other_flops),
                read=self._count(a.read, b.read),
                written=self._count(a.written, b.written),
                shapes=tuple(self._shape(*pair) for pair in _pairs(a.shapes, b.shapes)),
                out_shapes=tuple(self._shape(*pair) for pair in _pairs(a.out_shapes, b.out_shapes)),
            )
        return found

    def _value(self, a: Value, b: Value) -> Value:
        _same(*((v.id, v.dtype, v.kind, v.name, v.alias_of, v.storage) for v in (a, b)))
        return _value(a.id, self._shape(a.shape, b.shape), a.dtype, self._count(a.bytes, b.bytes), a.kind,
                      a.name, a.alias_of, a.storage, self._strides(a, b))  # fmt: skip

    def _strides(self, a: Value, b: Value) -> tuple[int, ...] | None:
        """Where the batch is one, how far its items are apart says nothing, and a tensor may be contiguous
        that is not with more. The dimension that is the batch has one stride in all batches."""
        if a.strides == b.strides or b.strides is None:
            _same(a.strides, b.strides)
            return b.strides
        given = a.strides or _contiguous(a.shape)
        rows = _pairs(_pairs(a.shape, b.shape), _pairs(given, b.strides))
        return tuple(
            y if m != n else self._size(x, y)  # type: ignore[misc]
            for (m, n), (x, y) in rows
        )

    def _storage(self, a: Storage, b: Storage) -> Storage:
        _same(*((s.born, s.died, s.node) for s in (a, b)))
        return _storage(self._count(a.bytes, b.bytes), a.born, a.died, a.node)

    def _count(self, a: int, b: int) -> int:
        if a == b:
            return a
        slope, rest = divmod(b - a, self._most - self._least)
        if rest or slope < 0 or a < slope * self._least:
            raise _Bent
        return a + slope * (self._batch - self._least)

    def _shape(self, a: Shape, b: Shape) -> Shape:
        if a == b:
            return a
        if sum(x != y for x, y in _pairs(a, b)) > 1:
            raise _Bent
        return tuple(self._size(x, y) for x, y in zip(a, b, strict=True))

    def _size(self, a: Dim, b: Dim) -> Dim:
        if a == b:
            return a
        if isinstance(a, str) or isinstance(b, str) or a * self._most != b * self._least:
            raise _Bent
        found, rest = divmod(a * self._batch, self._least)
        if rest:
            raise _Bent
        return found

    def _text(self, a: str, b: str) -> str:
        """Arguments as they are written: numbers in them that differ are sizes."""
        if a == b:
            return a
        parts = _pairs(_NUMBER.split(a), _NUMBER.split(b))
        return "".join(
            x if x == y else str(self._size(*(_whole(n) for n in (x, y)))) for x, y in parts
        )


def _contiguous(shape: Shape) -> tuple[int, ...]:
    """The strides of a tensor that lies in memory as its shape is read."""
    steps = [1]
    for size in reversed(shape[1:]):
        steps.append(steps[-1] * int(size))
    return tuple(reversed(steps))


def _same(a: object, b: object) -> None:
    if a != b:
        raise _Bent


def _pairs(a: Sequence[T], b: Sequence[T]) -> list[tuple[T, T]]:
    if len(a) != len(b):
        raise _Bent
    return list(zip(a, b, strict=True))


def _whole(text: str) -> int:
    if not text.isdigit():
        raise _Bent
    return int(text)
