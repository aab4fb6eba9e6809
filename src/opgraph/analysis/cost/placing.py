"""Kernels put before others of a graph, and when the graph's storages live then: what every pass needs that
adds kernels (conversions of mixed precision, the scaling of activations)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from opgraph.record.graph import Kernel, Storage


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
