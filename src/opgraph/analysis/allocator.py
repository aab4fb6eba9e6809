"""What torch's caching allocator takes of a GPU for the storages of a run: the blocks that it hands out,
and the memory that it reserves for them and keeps.

Sizes and rules are those of c10/cuda/CUDACachingAllocator.cpp (torch 2.15, settings untouched). Sizes are
rounded up to 512 bytes. Blocks of up to 1 MiB come out of segments of 2 MiB, those of less than 10 MiB
out of
segments of 20 MiB, and larger ones have segments of their own, in steps of 2 MiB. Of the free blocks the
smallest that fits is taken, and split where enough is left; neighbours that are free become one; nothing
goes back to the device.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opgraph.record.graph import Storage

BLOCK = 512
_SMALL = 1 << 20
_SMALL_SEGMENT = 2 << 20
_MEDIUM = 10 << 20
_MEDIUM_SEGMENT = 20 << 20


@dataclass(frozen=True, slots=True)
class Reserved:
    """The most bytes in blocks that are handed out, and in all segments together."""

    allocated: int
    reserved: int


def rounded(size: int) -> int:
    """The bytes of a block for so many bytes."""
    return -(-size // BLOCK) * BLOCK


def reserve(kept: Iterable[int], storages: Sequence[Storage], kernels: int) -> Reserved:
    """What a run of so many kernels takes, beside what is `kept` all along (weights), in bytes."""
    births: list[list[int]] = [[] for _ in range(kernels + 1)]
    deaths: list[list[int]] = [[] for _ in range(kernels + 1)]
    for index, storage in enumerate(storages):
        births[storage.born].append(index)
        if storage.died is not None:
            deaths[storage.died].append(index)
    pool = _Pool()
    for size in kept:
        pool.take(size)
    held: dict[int, _Block] = {}
    for at in range(kernels + 1):
        for index in deaths[at]:
            if index in held:
                pool.give(held.pop(index))
        for index in births[at]:
            block = pool.take(storages[index].bytes)
            if block is not None and storages[index].died == at:
                pool.give(block)
            elif block is not None:
                held[index] = block
    return Reserved(pool.most, pool.reserved)


class _Block:
    __slots__ = ("address", "after", "before", "free", "size", "small")

    def __init__(self, address: int, size: int, *, small: bool) -> None:
        self.address, self.size, self.small = address, size, small
        self.before: _Block | None = None
        self.after: _Block | None = None
        self.free = False


class _Pool:
    def __init__(self) -> None:
        self.reserved = self.most = self._allocated = 0
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._at: dict[int, _Block] = {}

    def take(self, asked: int) -> _Block | None:
        if not asked:
            return None
        size = rounded(asked)
        small = size <= _SMALL
        free = self._free[small]
        at = bisect_left(free, (size, 0))
        if at < len(free):
            block = self._at[free.pop(at)[1]]
            block.free = False
        else:
            block = self._segment(size, small=small)
        rest = block.size - size
        if rest >= BLOCK if small else rest > _SMALL:
            left = _Block(block.address + size, rest, small=small)
            left.before, left.after = block, block.after
            if block.after is not None:
                block.after.before = left
            block.after, block.size = left, size
            self._release(left)
        self._allocated += block.size
        self.most = max(self.most, self._allocated)
        return block

    def give(self, block: _Block) -> None:
        self._allocated -= block.size
        for other in (block.before, block.after):
            if other is not None and other.free:
                free = self._free[other.small]
                free.pop(bisect_left(free, (other.size, other.address)))
                first, second = (other, block) if other is block.before else (block, other)
                first.size += second.size
                first.after = second.after
                if second.after is not None:
                    second.after.before = first
                block = first
        self._release(block)

    def _segment(self, size: int, *, small: bool) -> _Block:
        if small:
            whole = _SMALL_SEGMENT
        elif size < _MEDIUM:
            whole = _MEDIUM_SEGMENT
        else:
            whole = -(-size // _SMALL_SEGMENT) * _SMALL_SEGMENT
        block = _Block(self.reserved, whole, small=small)
        self.reserved += whole
        return block

    def _release(self, block: _Block) -> None:
        block.free = True
        self._at[block.address] = block
        insort(self._free[block.small], (block.size, block.address))
