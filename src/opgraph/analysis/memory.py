"""Live memory after each kernel, its peak, and whether it fits.

The graph's storages say when each piece of memory was made and freed, as eager PyTorch does it: a
tensor goes when its last reference goes, a view keeps its base alive, and an in-place result reuses it.
Weights and buffers of the model are not among them; inputs are. What is kept in the host's memory counts
there.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil
from typing import Any

from opgraph.hardware import Device
from opgraph.record.graph import Graph, Node, Storage, around


@dataclass(frozen=True, slots=True)
class Alive:
    """Live bytes at the peak, by module and operator, and pieces."""

    scope: str
    op: str
    bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """Live memory over a run.

    `live` has the bytes after each kernel; `peak` is the largest of them, in `peak_kernel` (0-based),
    which `peak_node` ran. `alive` is what was live then, the largest first.
    """

    live: tuple[int, ...]
    peak: int
    peak_kernel: int | None
    peak_node: int | None
    alive: tuple[Alive, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "peak_bytes": self.peak,
            "peak_kernel": self.peak_kernel,
            "peak_node": self.peak_node,
            "alive": [[a.scope, a.op, a.bytes, a.count] for a in self.alive],
            "live": list(self.live),
        }


def memory(graph: Graph, *, before: bool = True) -> MemoryTimeline:
    """The memory of the run that the graph was traced from; without what was there `before` it if asked."""
    kernels = sum(len(n.kernels) for n in graph.nodes)
    storages = [s for s in graph.on_device if before or not graph.was_there(s)]
    live = live_bytes(storages, kernels)
    if not live:
        held = sum(s.bytes for s in storages)
        return MemoryTimeline((), held, None, None, _alive(graph, storages))
    peak = max(live)
    at = live.index(peak)
    present = [s for s in storages if s.born <= at and (s.died is None or at < s.died)]
    return MemoryTimeline(tuple(live), peak, at, _node_at(graph, at).id, _alive(graph, present))


def on_host(graph: Graph) -> int:
    """The most bytes that are in the host's memory at once: weights, and what else is kept there."""
    there = graph.on_host
    weights = sum(p.bytes for p in graph.parameters if p.name in there.parameters)
    live = live_bytes(
        [graph.storages[i] for i in there.storages], sum(len(n.kernels) for n in graph.nodes)
    )
    return weights + max(live, default=0)


def live_bytes(storages: Sequence[Storage], kernels: int) -> list[int]:
    """Bytes live after each kernel, what it frees left out."""
    changes = [0] * (kernels + 1)
    for storage in storages:
        changes[storage.born] += storage.bytes
        if storage.died is not None:
            changes[storage.died] -= storage.bytes
    return list(accumulate(changes[:kernels]))


def peaks(graph: Graph) -> dict[str, int]:
    """The most bytes live while a module runs, by its path.

    After any kernel of it or of what is below it; "" is the whole. Modules that run nothing are not
    there.
    """
    live = live_bytes(graph.on_device, sum(len(n.kernels) for n in graph.nodes))
    found: dict[str, int] = {}
    start = 0
    for node in graph.nodes:
        end = start + len(node.kernels)
        if end > start:
            found[node.scope] = max(found.get(node.scope, 0), *live[start:end])
        start = end
    for path in sorted(found, key=lambda path: path.count("."), reverse=True):
        for above in around(path):
            found[above] = max(found.get(above, 0), found[path])
    return found


def _node_at(graph: Graph, kernel: int) -> Node:
    """The node that ran a kernel, by its position in the run."""
    for node in graph.nodes:
        kernel -= len(node.kernels)
        if kernel < 0:
            return node
    raise IndexError("the graph has fewer kernels")


def _alive(graph: Graph, storages: Sequence[Storage]) -> tuple[Alive, ...]:
    groups: dict[tuple[str, str], list[int]] = {}
    for storage in storages:
        if storage.bytes:
            node = None if storage.node is None else graph.node(storage.node)
            key = ("", "temporary") if node is None else (node.scope, node.op)
            groups.setdefault(key, []).append(storage.bytes)
    found = (Alive(*key, sum(sizes), len(sizes)) for key, sizes in groups.items())
    return tuple(sorted(found, key=lambda a: (-a.bytes, a.scope, a.op)))


# Does it fit? Weights and the peak of live memory against a device's capacity.


WORKSPACE = {
    **dict.fromkeys(("9.", "10.", "11.", "12."), 32 << 20),
    "gfx94": 128 << 20,
    "gfx95": 128 << 20,
    "gfx": 32 << 20,
    "": 8_519_680,
}
"""Bytes of cuBLAS's or hipBLAS's workspace by how the capability of a device begins
(aten/src/ATen/cuda/CublasHandlePool.cpp, `parseChosenWorkspaceSize`, as torch 2.15 has it), out of
the caching allocator with the first product of a thread."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes that a run needs, and the bytes there are.

    On devices that torch calls "cuda" blocks are larger than what is in them (`rounding`), and products
    have a `workspace` in each thread that runs some; the caching allocator would keep `reserved` bytes if
    there is room, and gives free ones back where there is none. The driver's `context` is what the device's
    file says of it.
    """

    weights: int
    peak: int
    capacity: float
    rounding: int = 0
    workspace: int = 0
    reserved: int | None = None
    context: int = 0

    @property
    def needed(self) -> int:
        return self.weights + self.peak + self.rounding + self.workspace + self.context

    @property
    def fits(self) -> bool:
        return self.needed <= self.capacity

    @property
    def devices(self) -> int:
        """The fewest such devices that hold it; 0 where none do.

        The weights are split evenly, and each has the whole rest.
        """
        room = self.capacity - (self.needed - self.weights)
        return ceil(self.weights / room) if room > 0 and self.weights else int(room > 0)


class Footprint:
    """What a graph needs wherever it runs, worked out once for all devices."""

    def __init__(self, graph: Graph, live: MemoryTimeline | None = None) -> None:
        self._graph = graph
        self._kept = [p.bytes for p in graph.parameters if p.name not in graph.on_host.parameters]
        self.weights = sum(self._kept)
        self.peak = (live or memory(graph)).peak

    @cached_property
    def taken(self) -> Reserved:
        """What torch's caching allocator takes for it."""
        kernels = sum(len(n.kernels) for n in self._graph.nodes)
        return reserve(self._kept, self._graph.on_device, kernels)

    @cached_property
    def workspaces(self) -> int:
        """How many threads run products, which take a workspace in each: a backward, and what is computed
        again in it, runs in a thread of autograd."""
        multiplying = (
            n.phase in ("backward", "recompute")
            for n in self._graph.nodes
            if any(k.category == "matmul" for k in n.kernels)
        )
        return len(set(multiplying))

    def on(self, device: Device) -> Fit:
        """Whether weights, live memory and the allocator's share fit.

        Weights and buffers count once, however many names they have.
        """
        weights, peak = self.weights, self.peak
        if device.kind == "cpu" and self._graph.on_host.nodes:  # it is all in one memory
            kernels = sum(len(n.kernels) for n in self._graph.nodes)
            weights = sum(p.bytes for p in self._graph.parameters)
            peak = max(live_bytes(self._graph.storages, kernels))
        if not device.target.startswith("cuda"):
            return Fit(weights, peak, device.capacity, context=int(device.context))
        beginning = next(known for known in WORKSPACE if device.capability.startswith(known))
        workspace = WORKSPACE[beginning] * self.workspaces
        rounding = self.taken.allocated - self.weights - self.peak
        return Fit(
            self.weights, self.peak, device.capacity, rounding, workspace, self.taken.reserved,
            int(device.context),
        )  # fmt: skip


def fit(graph: Graph, device: Device, live: MemoryTimeline | None = None) -> Fit:
    """What a run needs of a device's memory, and what there is."""
    return Footprint(graph, live).on(device)


# What torch's caching allocator takes of a GPU for the storages of a run: the blocks that it hands out, and
# the memory that it reserves for them and keeps.


BLOCK = 512
_SMALL = 1 << 20
_SMALL_SEGMENT = 2 << 20
_MEDIUM = 10 << 20
_MEDIUM_SEGMENT = 20 << 20


@dataclass(frozen=True, slots=True)
class Reserved:
    """The most bytes handed out, and in all segments."""

    allocated: int
    reserved: int


def rounded(size: int) -> int:
    """The bytes of a block for so many bytes."""
    return -(-size // BLOCK) * BLOCK


def reserve(kept: Iterable[int], storages: Sequence[Storage], kernels: int) -> Reserved:
    """What the allocator takes for a run, in bytes.

    `kept` are the sizes of what is there all along (weights).
    """
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
