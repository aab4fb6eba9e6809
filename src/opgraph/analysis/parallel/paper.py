"""Parallelism on paper: the graph of a forward over several devices, split within operators (tensor),
between blocks (pipeline) and by the batch (data). What each device holds and computes, what collectives
move, and how long a step takes. It works on a saved profile; a step of training is traced instead, since
torch's tools split its last layer otherwise.

Sources: Shoeybi et al., "Megatron-LM", 2019 (which layers are split); Narayanan et al., "Efficient
large-scale language model training on GPU clusters using Megatron-LM", SC 2021, section 2.2 (bubble).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from math import ceil
from typing import Any, Literal

from opgraph.analysis.memory import live_bytes
from opgraph.analysis.parallel.sharding import Sharding, divisors, sharded, sharding
from opgraph.analysis.timing.collectives import collective_seconds, ring
from opgraph.analysis.timing.prediction import predict
from opgraph.hardware import Device
from opgraph.record.errors import RenderError
from opgraph.record.graph import Collective, Graph, Node, Parameter, Storage, around
from opgraph.record.kinds import CollectiveKind, Run
from opgraph.record.layout import Layout

# What the devices of a plan send to each other: the collectives of tensor parallelism, and what goes from
# stage to stage.


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one device sends in a step for one purpose: in `times` collectives of `bytes` altogether."""

    what: Literal["tensor", "pipeline"]
    kind: CollectiveKind
    times: int
    bytes: int
    seconds: float | None

    def repeated(self, times: int) -> Traffic:
        """So many times the same."""
        seconds = None if self.seconds is None else self.seconds * times
        return replace(self, times=self.times * times, bytes=self.bytes * times, seconds=seconds)


def of_a_micro_batch(
    found: Sharding, cut: tuple[Stage, ...], number: int, layout: Layout, device: Device | None
) -> Iterator[Traffic]:
    """What a device of a stage sends for one micro-batch. What goes from stage to stage goes over the
    network where any two stages are on different nodes: the pipeline waits for the slowest."""
    stage = cut[number]
    if layout.tensor > 1:
        mine = [e for e in found.exchanges if stage.first <= e.node <= stage.last]
        for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER):
            sizes = [(e.bytes, layout.tensor) for e in mine if e.kind == kind]
            yield from _row("tensor", kind, sizes, device)
    if number + 1 < len(cut):
        ahead = [(cut[number + 1].received, layout.pipeline)]
        apart = layout.tensor * layout.data
        yield from _row("pipeline", CollectiveKind.SEND, ahead, device, apart)


def _row(
    what: Literal["tensor", "pipeline"], kind: CollectiveKind,
    sizes: Sequence[tuple[int, int]], device: Device | None, stride: int = 1,
) -> Iterator[Traffic]:  # fmt: skip
    """The collectives over so many bytes, each among so many devices, if there are any. Devices are
    numbered by what shares an operator, then by copies, then by stages: those of a group are `stride`
    apart."""
    if sizes:
        moved = [Collective(kind, size, devices, stride) for size, devices in sizes]
        taken = None
        if device is not None and device.link_bandwidth is not None:
            taken = sum(collective_seconds(each, device) for each in moved)
        sent = sum(map(ring, moved))
        yield Traffic(what, kind, len(sizes), sent, taken)


PAPER = ("tensor", "pipeline", "data", "micro_batches")
"""What of a layout is worked out on paper."""


@dataclass(frozen=True, slots=True)
class Share:
    """One device of a stage: its weights, its activations, its part of the KV cache (of all micro-batches,
    whose sequences are others), and the FLOPs and seconds of a micro-batch."""

    stage: Stage
    weights: int
    activations: int
    cache: int
    flops: int
    seconds: float | None

    @property
    def memory(self) -> int:
        return self.weights + self.activations + self.cache


@dataclass(frozen=True)
class Plan:
    """A graph over a layout: the share of a device of each stage, the most that any of them sends for each
    purpose, and the time of a step (all micro-batches) where a device is named. `whole` is the share of
    a forward's FLOPs that tensor parallelism does not split, `padded` are tables whose rows do not
    divide."""

    layout: Layout
    shares: tuple[Share, ...]
    traffic: tuple[Traffic, ...]
    sharding: Sharding
    capacity: float | None = None
    seconds: float | None = None
    batch: int = 1
    whole: float = 0.0
    padded: tuple[str, ...] = ()

    @property
    def memory(self) -> int:
        """Bytes on the fullest device."""
        return max(s.memory for s in self.shares)

    @property
    def throughput(self) -> float | None:
        """Items of the batch a second, over all copies."""
        items = self.batch * self.layout.micro_batches * self.layout.data
        return items / self.seconds if self.seconds else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "layout": {n: getattr(self.layout, n) for n in PAPER}, "devices": self.layout.devices,
            "bubble": self.layout.bubble, "memory": self.memory, "seconds": self.seconds,
            "stages": [asdict(s) | {"memory": s.memory} for s in self.shares],
            "traffic": [asdict(t) for t in self.traffic],
        }  # fmt: skip


def parallel(
    graph: Graph, layout: Layout, device: Device | None = None, *,
    cache: int = 0, run: Run = Run.EAGER, found: Sharding | None = None,
) -> Plan:  # fmt: skip
    """Lay a graph out over devices. `cache` are the bytes of the KV cache that the graph reads or makes,
    `found` how the graph is split where that is known already.

    Raises `RenderError` where the model does not divide, with what does, and for a step of training.
    """
    if any(n.phase == "backward" for n in graph.nodes):
        raise RenderError(
            "a step of training is not laid out on paper",
            hint="opgraph profile MODEL --mode train --tensor-parallel N traces one rank of it",
        )
    for option in PAPER:
        if getattr(layout, option) < 1:
            raise RenderError(f"{option.replace('_', ' ')} takes a number of at least 1")
    if layout.devices > 1 and device is not None:
        device.linked()
    found = found or sharding(graph)
    part = sharded(graph, layout.tensor, found)
    cut = stages(part, layout.pipeline)
    timed = None if device is None else predict(part, device, run)
    paths = blocks(graph)
    split = any(v in found.values and v not in found.gathered for v in graph.outputs)
    shares, sent = [], []
    for number, stage in enumerate(cut):
        kept = ceil(cache * stage.blocks / max(1, len(paths)) / (layout.tensor if split else 1))
        traffic = tuple(of_a_micro_batch(found, cut, number, layout, device))
        seconds = None
        if timed is not None:
            seconds = sum(timed.by_limit.get(i, 0.0) for i in range(stage.first, stage.last + 1))
            seconds += sum(t.seconds or 0.0 for t in traffic)
        shares.append(
            Share(
                stage,
                weights=stage.weights,
                activations=max(stage.peak - kept, 0),
                cache=kept * layout.micro_batches,
                flops=stage.flops,
                seconds=seconds,
            )
        )
        sent.append(traffic)
    largest: dict[tuple[str, CollectiveKind], Traffic] = {}
    for t in (t for traffic in sent for t in traffic):
        key = (t.what, t.kind)
        largest[key] = max(largest.get(key, t), t, key=lambda t: t.bytes)
    traffic = tuple(t.repeated(layout.micro_batches) for t in largest.values())
    step = None
    if timed is not None and shares:
        rounds = layout.micro_batches + layout.pipeline - 1
        step = rounds * max(s.seconds or 0.0 for s in shares)
    batch = 1 if timed is None else timed.batch
    capacity = None if device is None else device.capacity - device.context
    whole = sum(n.flops for n in graph.nodes)
    left = sum(n.flops for n in graph.nodes if n.id not in found.nodes)
    padded = tuple(
        p.name for p in graph.parameters
        if p.name in found.weights and isinstance(p.shape[0], int)
        and all(n % layout.tensor for n in p.shape if isinstance(n, int) and n == max(p.shape))
    )  # fmt: skip
    return Plan(
        layout, tuple(shares), traffic, found, capacity, step, batch,
        left / whole if whole else 0.0, padded,
    )  # fmt: skip


def smallest(graph: Graph, device: Device, *, cache: int = 0, fewest: int = 1) -> Plan | None:
    """The layout of the fewest devices (`fewest` or more) on which a graph fits, and of those the one
    with the most tensor parallelism, which is at most a node's; None where none does."""
    found = sharding(graph)
    widths = [n for n in divisors(found) if n <= device.node] if found.sizes else [1]
    weights = sum(p.bytes for p in graph.parameters)
    least = max(fewest, ceil(weights / (device.capacity - device.context)))
    most = max(widths) * max(1, len(blocks(graph)))
    for devices in range(least, most + 1):
        for width in sorted(widths, reverse=True):
            if devices % width or devices // width > max(1, len(blocks(graph))):
                continue
            plan = parallel(graph, Layout(width, devices // width), cache=cache, found=found)
            if plan.memory <= device.capacity - device.context:
                return plan
    return None


# Cutting a graph into the stages of a pipeline: which nodes run where, what each stage holds, and what it
# hands on. Cuts are between repeated blocks (layers), as even in number as they can be.


@dataclass(frozen=True, slots=True)
class Stage:
    """The nodes of a stage by id (both ends inclusive), how many blocks they make up, the bytes of the
    weights they use, the peak of live memory while they run, and the bytes that come in from the stage
    before."""

    first: int
    last: int
    blocks: int
    weights: int
    peak: int
    received: int
    flops: int


def blocks(graph: Graph) -> tuple[str, ...]:
    """The paths of the outermost modules that are numbered and run, in the order in which they run."""
    running: dict[str, None] = {}
    for node in graph.nodes:
        path = ""
        for part in node.scope.split("."):
            path = f"{path}.{part}" if path else part
            if part.isdigit():
                running.setdefault(path)
                break
    return tuple(running)


def stages(graph: Graph, number: int) -> tuple[Stage, ...]:
    """The forward of a graph in that many stages; what does not divide makes the first ones longer by one.

    Raises `RenderError` when there are fewer blocks than stages.
    """
    paths = blocks(graph)
    if number > max(1, len(paths)):
        raise RenderError(
            f"{len(paths)} blocks (layers) cannot be cut into {number} stages",
            hint=f"--pipeline-parallel {max(1, len(paths))} or less",
        )
    sizes = [len(paths) // number + (i < len(paths) % number) for i in range(number)]
    owner = {
        path: stage
        for stage, (end, size) in enumerate(zip(accumulate(sizes), sizes, strict=True))
        for path in paths[end - size : end]
    }
    cut = _Cut(graph, _stages_of_nodes(graph, owner))
    return tuple(cut.stage(i, sizes[i]) for i in range(number))


def _stages_of_nodes(graph: Graph, owner: dict[str, int]) -> list[int]:
    """The stage of every node: that of its block, and between blocks that of the node before."""
    found, current = [], 0
    for node in graph.nodes:
        current = max(current, *(owner[p] for p in around(node.scope) if p in owner), 0)
        found.append(current)
    return found


class _Cut:
    """What each stage holds; `home` are the stages of the nodes."""

    def __init__(self, graph: Graph, home: Sequence[int]) -> None:
        self.graph, self.home = graph, home
        self.starts = [0, *accumulate(len(n.kernels) for n in graph.nodes)]
        self.learned = _depending_on_weights(graph)
        self.given = {graph.value[v].storage for v in graph.inputs}
        self.unread = self.given - self._read(graph.nodes)

    def stage(self, number: int, count: int) -> Stage:
        mine = self._nodes(number)
        first, last = mine[0].id, mine[-1].id
        weights = sum(p.bytes for p in self._weights(number).values())
        return Stage(first, last, count, weights, self._memory(mine, first, last),
                     self._received(first), sum(n.flops for n in mine))  # fmt: skip

    def _nodes(self, number: int) -> list[Node]:
        return [n for n, s in zip(self.graph.nodes, self.home, strict=True) if s == number]

    def _weights(self, number: int) -> dict[str, Parameter]:
        """Weights that a stage uses; those that nobody uses are with the first one."""
        used = {p.name: p for n in self._nodes(number) for p in self._parameters(n)}
        if number == 0:
            all_used = {p.name for n in self.graph.nodes for p in self._parameters(n)}
            used |= {p.name: p for p in self.graph.parameters if p.name not in all_used}
        return used

    def _parameters(self, node: Node) -> list[Parameter]:
        names = [self.graph.root(v).name for v in node.inputs]
        known = self.graph.parameter
        return [known[n] for n in (*names, *node.parameters) if n in known]

    def _received(self, first: int) -> int:
        """Activations made before a node and used from it on, each piece of memory once. What follows
        from the inputs alone (masks, positions) is made again rather than sent."""
        crossing: dict[object, int] = {}
        for node in self.graph.nodes[: first - 1]:
            for v in node.outputs:
                value = self.graph.value[v]
                users = self.graph.users.get(v, ())
                later = any(first <= u.id and u.kind != "output" for u in users)
                if later and v in self.learned and self.graph.root(v).kind == "activation":
                    key = value.id if value.storage is None else ("storage", value.storage)
                    crossing[key] = max(crossing.get(key, 0), value.bytes)
        return sum(crossing.values())

    def _memory(self, nodes: Sequence[Node], first: int, last: int) -> int:
        """The peak of what is live while these nodes run. An input is where it is read (the cache of a
        layer with that layer), one that nobody reads with the first."""
        begin, end = self.starts[first - 1], self.starts[last]
        read = self._read(nodes)
        mine = []
        for number, s in enumerate(self.graph.storages):
            died = self.starts[-1] if s.died is None else s.died
            own = begin <= s.born < end
            if number in self.given:
                own = number in read or (own and number in self.unread)
            if own or (number in read and s.born < begin):
                mine.append(Storage(s.bytes, max(0, s.born - begin), min(died, end) - begin))
        live = live_bytes([s for s in mine if s.died is not None and s.died > s.born], end - begin)
        return max(live, default=0)

    def _read(self, nodes: Sequence[Node]) -> set[int | None]:
        """The memory that some nodes work on. What the model returns stays where it was made."""
        return {self.graph.value[v].storage for n in nodes if n.kind != "output" for v in n.inputs}


def _depending_on_weights(graph: Graph) -> set[int]:
    found = {v.id for v in graph.values if v.kind == "parameter"}
    for node in graph.nodes:
        if any(v in found for v in node.inputs):
            found.update(node.outputs)
    return found
