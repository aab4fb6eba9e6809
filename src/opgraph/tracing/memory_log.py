"""The memory that is made and freed while a model is recorded, in numbers of kernels."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor

from opgraph.graph import Storage


class MemoryLog:
    """Follows storages: when each was made and freed, in numbers of kernels."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._index: dict[int, int] = {}
        self._references: list[Any] = []
        self.bytes: list[int] = []
        self.born: list[int] = []
        self.died: list[int | None] = []
        self.owner: list[int | None] = []
        self._weights: set[int] = set()

    def ignore(self, tensor: Tensor) -> None:
        """The storage of a weight: it is not an activation."""
        key = _storage_key(tensor)
        if key is not None:
            self._weights.add(key)

    def find(self, tensor: Tensor) -> int | None:
        """The index of the storage of a tensor that is known."""
        key = _storage_key(tensor)
        return None if key is None else self._index.get(key)

    def see(self, tensor: Tensor, born: int) -> int | None:
        """The index of the tensor's storage, noting it as made by the kernel `born` if it is new.

        None for weights and for tensors without a storage.
        """
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None
        key = storage._cdata
        index = self._index.get(key)
        if index is not None or key in self._weights:
            return index
        index = self._index[key] = len(self.bytes)
        self.bytes.append(storage.nbytes())
        self.born.append(born)
        self.died.append(None)
        self.owner.append(None)

        def freed(_: Any, index: int = index, key: int = key) -> None:
            self.died[index] = self._clock()
            self._index.pop(key, None)

        self._references.append(weakref.ref(storage, freed))
        return index

    def close(self) -> tuple[Storage, ...]:
        """All storages; from here on nothing is followed any more."""
        end = self._clock()  # a branch that was not kept had kernels that are no more
        born = [min(b, end) for b in self.born]
        died = [None if d is None else min(d, end) for d in self.died]
        self._references.clear()
        return tuple(map(Storage, self.bytes, born, died, self.owner))


def _storage_key(tensor: Tensor) -> int | None:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return None
