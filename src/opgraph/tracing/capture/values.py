"""The values of a run: which tensor is known as what, which memory it shares, and who wrote it last."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from opgraph.costs.count import dtype_name, sizes_of, touched_bytes
from opgraph.costs.formulas.linalg import SPARSE
from opgraph.record.graph import NodeKind, Shape, Value, ValueKind, maker
from opgraph.record.identity import identity
from opgraph.sources.locations import Location
from opgraph.sources.ranks import local, parts_of
from opgraph.tracing.capture.kernels import KernelCapture, is_wrapper, storage_key
from opgraph.tracing.capture.scopes import Call
from opgraph.tracing.fake.weights import Weights


@dataclass(slots=True)
class Record:
    """A node in the making."""

    kind: NodeKind
    op: str
    target: str
    call: Call
    arguments: str = ""
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    first: int = 0
    last: int = 0
    location: Location = (None, None)
    fragment: int = 0
    phase: str = "forward"
    error: str | None = None
    exception: BaseException | None = None
    name: str | None = None
    forward: Record | None = None
    number: int = 0


Look = tuple[Shape, str, int, tuple[int, ...] | None]
"""The shape of a tensor, its dtype, its bytes, and its strides where it is not contiguous."""


def _look(tensor: Tensor) -> Look:
    shape = sizes_of(tensor)
    try:
        full = tensor.layout not in SPARSE
        size = prod(shape) * tensor.dtype.itemsize if full else touched_bytes(tensor)
    except RuntimeError:
        size = 0
    return shape, dtype_name(tensor.dtype), size, _strides(tensor)


_value = maker(Value)


class ValueTable:
    """Values in the order in which they were made, and the tensors that they are known by.

    A tensor is known by its identity; a write into its memory, through whichever view, makes whoever
    reads it afterwards depend on the writer too.
    """

    def __init__(self, weights: Weights, capture: KernelCapture) -> None:
        self.values: list[Value] = []
        self._weights = weights
        self._capture = capture
        self._bindings: dict[int, tuple[Any, int, int | None, int]] = {}
        self._versions: dict[int, int] = {}
        self._writers: dict[int, int] = {}
        self._looks: dict[Look, Look] = {}

    def add(
        self, tensor: Tensor, kind: ValueKind = "activation", name: str | None = None,
        alias_of: int | None = None, storage: int | None = None, look: Look | None = None,
    ) -> int:  # fmt: skip
        """A new value for a tensor, from now on what the tensor is known as."""
        if type(tensor) is not FakeTensor:
            tensor = local(tensor)
        if look is None:
            look = _look(tensor)
            look = self._looks.setdefault(look, look)
        shape, dtype, size, strides = look
        id_ = len(self.values)
        self.values.append(_value(id_, shape, dtype, size, kind, name, alias_of, storage, strides))
        version = self._versions.get(storage, 0) if storage is not None else 0
        self._bindings[identity(tensor)] = (weakref.ref(tensor), id_, storage, version)
        return id_

    def looks(self, values: list[int]) -> tuple[Look, ...]:
        """What is known of some values whatever tensors they are known by."""
        found = (self.values[v] for v in values)
        return tuple((v.shape, v.dtype, v.bytes, v.strides) for v in found)

    def bound(self, tensor: Tensor) -> int | None:
        """The value a tensor is known as, if it is."""
        tensor = local(tensor)
        entry = self._bindings.get(identity(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def read(self, tensor: Tensor, into: list[int]) -> None:
        """Note that a tensor is read: its value, and the last write into its memory since then."""
        if type(tensor) is not FakeTensor:
            tensor = local(tensor)
        entry = self._bindings.get(identity(tensor))
        if entry is None or entry[0]() is not tensor:
            parts = self._parts(tensor)
            for part in parts:
                self.read(part, into)
            if not parts:
                with torch._C.DisableTorchFunctionSubclass():
                    into.append(self._found(tensor))
            return
        _, value, storage, version = entry
        into.append(value)
        anew = self._capture.memory.anew
        while storage in anew:
            storage, version = anew[storage], 0
        if storage is not None and self._versions.get(storage, 0) > version:
            into.append(self._writers[storage])

    def _parts(self, tensor: Tensor) -> list[Tensor]:
        """The tensors that another is made of, as scaled ones in eight bits are of numbers and a scale,
        where this run made one of them."""
        cls: Any = type(tensor)
        if cls is FakeTensor or not is_wrapper(cls):
            return []
        parts = list(map(local, parts_of(tensor).values()))
        memory = self._capture.memory
        made = any(
            self._parts(p) or self.bound(p) is not None or memory.find(p) is not None for p in parts
        )
        return parts if made else []

    def _found(self, tensor: Tensor) -> int:
        """A tensor that no node made: a weight, a view of something known, or a constant."""
        weight = self._weights.name_of(tensor)
        if weight is not None:
            return self.add(tensor, weight.kind, weight.name)
        storage = self._capture.memory.find(tensor)
        if storage is not None:
            return self.add(tensor, storage=storage)
        return self.add(
            tensor, "constant", storage=self._capture.memory.see(tensor, len(self._capture.kernels))
        )

    def forget(self) -> None:
        """Keep nothing of tensors that exist no more."""
        known = self._bindings.items()
        self._bindings = {key: entry for key, entry in known if entry[0]() is not None}

    def alive(self) -> set[int]:
        """The values whose tensors still exist."""
        return {entry[1] for entry in self._bindings.values() if entry[0]() is not None}

    def known(self, things: Any) -> tuple[int, ...]:
        """The values that the tensors in a structure are known as."""
        if type(things) is tuple and len(things) == 1:
            things = things[0]
        if isinstance(things, Tensor):
            found = self.bound(things)
            return () if found is None else (found,)
        values = (self.bound(t) for t in tensors_in(things))
        return tuple(dict.fromkeys(v for v in values if v is not None))

    def produce(
        self, tensor: Tensor, record: Record, index: int,
        fresh: int | None = None, look: Look | None = None,
    ) -> None:  # fmt: skip
        """A result: new memory (`fresh` where that is known), a view of what was known, or the very tensor
        that went in."""
        memory = self._capture.memory
        kind: ValueKind = "constant" if record.kind == "constant" else "activation"
        if fresh is not None:
            record.outputs.append(self.add(tensor, kind, None, None, fresh, look))
            return
        with torch._C.DisableTorchFunctionSubclass():  # its class is not told
            tensor = local(tensor)
            parts = self._parts(tensor)
            for part in parts:
                self.produce(part, record, index)
            if parts:
                return
            before = self.bound(tensor)
            storage = memory.see(tensor, max(record.first, record.last - 1))
            alias = before
            if alias is None and storage is not None:
                alias = next(
                    (v for v in reversed(record.inputs) if self.values[v].storage == storage), None
                )
            elif alias is None:
                alias = self._weight_alias(tensor, record)
            record.outputs.append(self.add(tensor, kind, None, alias, storage, look))
            self.own(record.outputs[-1], index)

    def _weight_alias(self, tensor: Tensor, record: Record) -> int | None:
        """The weight whose memory a result shares (`weight.t()`)."""
        for v in reversed(record.inputs):
            name = self.values[v].name
            if name is not None and self.values[v].kind in ("parameter", "buffer"):
                weight = self._weights.tensor(name)
                if weight is not None and storage_key(weight) == storage_key(tensor) is not None:
                    return v
        return None

    def own(self, value: int, index: int) -> None:
        storage = self.values[value].storage
        if storage is not None and self._capture.memory.owner[storage] is None:
            self._capture.memory.owner[storage] = index

    def written(self) -> dict[int, Tensor]:
        """The storages that the kernels since the last node wrote in place; a new version of each."""
        found: dict[int, Tensor] = {}
        for tensor in self._capture.writes:
            storage = self._capture.memory.find(tensor)
            if storage is not None and storage not in found:
                found[storage] = tensor
                self._versions[storage] = self._versions.get(storage, 0) + 1
        self._capture.writes.clear()
        return found

    def wrote(self, storage: int, tensor: Tensor, record: Record) -> None:
        """Whoever reads this memory from now on depends on this node."""
        writer = next((v for v in record.outputs if self.values[v].storage == storage), None)
        if writer is None:
            before = next((v for v in record.inputs if self.values[v].storage == storage), None)
            writer = self.add(tensor, alias_of=before, storage=storage)
            record.outputs.append(writer)
        self._writers[storage] = writer


def tensors_in(thing: Any, depth: int = 6) -> list[Tensor]:
    """All tensors of a result, once each, through containers, dataclasses and cache objects."""
    found: dict[int, Tensor] = {}
    _walk(thing, depth, found)
    return list(found.values())


def _walk(item: Any, depth: int, found: dict[int, Tensor]) -> None:
    # Not a function inside of `tensors_in`: one that calls itself is a cycle, which would keep the
    # tensors alive, and with them their storages, until the garbage is collected.
    if isinstance(item, Tensor):
        found.setdefault(identity(item), item)
    elif depth == 0 or item is None or isinstance(item, (str, bytes, int, float, type)):
        return
    elif isinstance(item, dict):
        for part in item.values():
            _walk(part, depth - 1, found)
    elif isinstance(item, (list, tuple, set, frozenset)):
        for part in item:
            _walk(part, depth - 1, found)
    elif not isinstance(item, torch.nn.Module) and hasattr(item, "__dict__"):
        for part in list(vars(item).values()):
            _walk(part, depth - 1, found)


_NUMBERS = frozenset({int})


def _strides(tensor: Tensor) -> tuple[int, ...] | None:
    """The strides of a tensor that is not contiguous, where it has any in numbers."""
    try:
        strides = None if tensor.is_contiguous() else tensor.stride()
        return strides if strides is None or _NUMBERS.issuperset(map(type, strides)) else None
    except (RuntimeError, TypeError, NotImplementedError):
        return None
