"""What a run took beside what it should take: the seconds of each node, what the device reached of its
peaks, the nodes that cost more than they should, and where predictions are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import exp, log
from typing import TYPE_CHECKING, Any

from opgraph.analysis.memory import memory
from opgraph.analysis.timing.fitting import MeasuredKernel
from opgraph.analysis.timing.workload import Task, workload
from opgraph.analysis.tree import Tree
from opgraph.record.graph import Graph, Node
from opgraph.record.run import RunRecord, median

if TYPE_CHECKING:
    from opgraph.analysis.costed import CostedRecord
    from opgraph.hardware import Device


@dataclass(frozen=True, slots=True)
class Excess:
    """What takes longer than it has to: the path of an operator in all repetitions of its module, its
    nodes, their measured seconds, those of the roof above them (the longer of arithmetic at the peak and of
    traffic at the bandwidth), and those predicted."""

    path: str
    op: str
    nodes: tuple[int, ...]
    measured: float
    attainable: float
    predicted: float

    @property
    def seconds(self) -> float:
        """What could be gained at most."""
        return self.measured - self.attainable


@dataclass(frozen=True, slots=True)
class Residual:
    """How wrong the prediction is for a class of work: how many of its nodes were measured, the seconds of
    both, and the median of measured by predicted."""

    category: str
    nodes: int
    measured: float
    predicted: float
    ratio: float


@dataclass(frozen=True, eq=False)
class Measurement:
    """What was measured of a profile, against the device that it is costed on."""

    costed: CostedRecord = field(repr=False)
    run: RunRecord

    @cached_property
    def by_node(self) -> Mapping[int, float]:
        """The seconds of each node in one step of one device, by its id. Those of a kernel that is several
        nodes are shared out by the bytes that these move. On a CPU, what Python takes before an operator
        belongs to its node, so that the nodes add up to the step."""
        nodes, found = self.costed.graph.nodes, dict[int, float]()
        for event in self.run.events:
            if not (self.run.works(event) or (event.kind == "python" and not self.run.accelerated)):
                continue
            seconds = event.seconds / self.run.steps / self.run.ranks
            weights = [nodes[i - 1].bytes for i in event.nodes]
            whole = sum(weights)
            for i, weight in zip(event.nodes, weights, strict=True):
                share = weight / whole if whole else 1 / len(weights)
                found[i] = found.get(i, 0.0) + seconds * share
        return found

    @cached_property
    def predicted(self) -> Mapping[int, float]:
        """The seconds that the device itself was predicted to need for each node: what stands against those
        of kernels, which wait for no launch. None are known without a device."""
        return self.costed.seconds_by_node or {}

    @cached_property
    def allocated(self) -> Allocated | None:
        """What the run allocated, beside what was traced; None where that was not written down."""
        return allocated(self.costed.graph, self.costed.tree, self.run)

    @property
    def elsewhere(self) -> tuple[tuple[str, float], ...]:
        """What the device did for no node, with the seconds of a step, the longest first: by the operators
        that launched it, or the kernels of which that is not known."""
        found: dict[str, float] = {}
        for event in self.run.events:
            if self.run.works(event) and not event.nodes:
                name = (event.host if self.run.accelerated else "") or event.name
                found[name] = found.get(name, 0.0) + event.seconds
        each = 1 / self.run.steps / self.run.ranks
        return tuple(sorted(((n, s * each) for n, s in found.items()), key=lambda i: -i[1]))

    @property
    def flops(self) -> int:
        """FLOPs of matrix products and convolutions that the model needs: without those that a backward
        runs again (checkpointing)."""
        return sum(n.flops for n in self.costed.graph.nodes if n.phase != "recompute")

    @cached_property
    def mfu(self) -> float | None:
        """Model FLOPs utilization: the FLOPs that the model needs, over what the device could compute in
        the measured time at its peak in the main dtype; None without a device.

        Source: Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", 2022, appendix B.
        """
        costed = self.costed
        if costed.device is None or not self.run.seconds:
            return None
        return self.flops / self.run.seconds / costed.device.matrix_peak(costed.main_dtype)

    @cached_property
    def mbu(self) -> float | None:
        """Model bandwidth utilization: the bytes of weights and of the KV cache, which every step must read
        once, over what the device could move in the measured time; None without a device, and for training.

        Source: Databricks, "LLM Inference Performance Engineering: Best Practices", 2023.
        """
        costed = self.costed
        if costed.device is None or costed.profile.mode == "train" or not self.run.seconds:
            return None
        cache = 0 if costed.profile.cache is None else costed.profile.cache.bytes
        moved = costed.totals.weight_bytes + cache
        return moved / self.run.seconds / costed.device.bandwidth

    @cached_property
    def excess(self) -> tuple[Excess, ...]:
        """The operators by what they take above the device's roof, the most first; those of repeated
        modules together.

        Raises `RenderError` without a device.
        """
        costed, device = self.costed, self.costed.named_device("what a node should take")
        tree, found = costed.tree, list[Excess]()
        for leaf in tree.root.shown():
            nodes = tree.nodes_of(leaf) if leaf.node else []
            if any(n.id in self.by_node for n in nodes):
                found.append(
                    Excess(
                        tree.title(leaf), nodes[0].op, tuple(n.id for n in nodes),
                        sum(self.by_node.get(n.id, 0.0) for n in nodes),
                        sum(_attainable(n, device) for n in nodes),
                        sum(self.predicted.get(n.id, 0.0) for n in nodes),
                    )
                )  # fmt: skip
        return tuple(sorted(found, key=lambda e: -e.seconds))

    @cached_property
    def residuals(self) -> tuple[Residual, ...]:
        """The prediction against the measurement by class of work, the most seconds apart first; empty
        without a device."""
        groups: dict[str, list[tuple[float, float]]] = {}
        for node in self.costed.graph.nodes:
            pair = self.by_node.get(node.id, 0.0), self.predicted.get(node.id, 0.0)
            if all(pair) and node.kernels:
                groups.setdefault(main_category(node), []).append(pair)
        found = (
            Residual(
                category, len(pairs), sum(m for m, _ in pairs), sum(p for _, p in pairs),
                exp(median([log(m / p) for m, p in pairs])),
            )
            for category, pairs in groups.items()
        )  # fmt: skip
        return tuple(sorted(found, key=lambda r: -abs(r.measured - r.predicted)))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        run = self.run
        return {
            "seconds": run.seconds, "spread": run.spread, "uncertainty": run.uncertainty,
            "attributed": run.attributed, "mfu": self.mfu, "mbu": self.mbu,
            "by_node": {str(k): v for k, v in self.by_node.items()},
            **({} if self.allocated is None else {"memory": self.allocated.to_dict()}),
            **({} if not run.clocks else {
                "clocks": [[c.rank, c.ahead, c.spread, c.count] for c in run.clocks],
                "exchanges": [
                    [e.name, e.count, e.seconds, e.waiting, e.last, e.times] for e in run.exchanges
                ],
            }),
        }  # fmt: skip


def main_category(node: Node) -> str:
    """The class of work of a node that runs kernels: that of the one with most FLOPs, or bytes."""
    return max(node.kernels, key=lambda k: (k.flops, k.bytes)).category


def _attainable(node: Node, device: Device) -> float:
    """The least seconds that a device needs for a node: of each kernel the longer of its arithmetic at the
    peak and its traffic at the bandwidth."""
    seconds = 0.0
    for k in node.kernels:
        peak = (
            device.matrix_peak(device.multiplies(k.multiplied))
            if k.flops
            else device.vector_peak(k.dtype)
        )
        seconds += max((k.flops + k.other_flops) / peak, k.bytes / device.bandwidth)
    return seconds


def kernels_of(costed: CostedRecord) -> list[MeasuredKernel]:
    """The kernels that were measured one by one, with their seconds: what a device can be fitted to. Those
    of nodes that run several are left out, since only their sum is known.

    Raises `RenderError` for a profile without a measurement.
    """
    measurement = costed.named_measurement()
    tasks: dict[int, list[Task]] = {}
    for work in workload(costed.graph):
        tasks.setdefault(work.node, []).append(work.task)
    seconds: dict[int, float] = {}
    for event in measurement.run.events:
        if measurement.run.works(event) and len(event.nodes) == 1:
            seconds[event.nodes[0]] = seconds.get(event.nodes[0], 0.0) + event.seconds
    each = 1 / measurement.run.steps / measurement.run.ranks
    return [
        MeasuredKernel(found[0], seconds[node] * each, cold=bool(found[0].flops))
        for node, found in tasks.items()
        if len(found) == 1 and seconds.get(node) and (found[0].flops or found[0].bytes)
    ]


# The memory that a run allocated, beside what was traced: both peaks, and the difference between them by
# module and operator.


Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Alive:
    """Bytes that an operator holds, in all repetitions of its module, at the peak that was measured and at
    the one traced. Without a path it is what has no node, by the operator that asked for it."""

    path: str
    op: str
    measured: int
    traced: int

    @property
    def difference(self) -> int:
        return self.measured - self.traced


@dataclass(frozen=True, slots=True)
class Allocated:
    """What a step allocates at its peak, measured and traced, in bytes: the peaks, what was there before
    (`before`, where the allocator counts it; `traced_before` with the weights), and the node at which each
    is. `alive` is where they differ, most first: the differences add up to that of the peaks."""

    measured: int
    traced: int
    before: int
    traced_before: int
    node: int | None
    traced_node: int | None
    alive: tuple[Alive, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        rows = [[a.path, a.op, a.measured, a.traced] for a in self.alive]
        return asdict(self) | {"alive": rows}


def curve(graph: Graph, run: RunRecord) -> list[tuple[int, int]]:
    """By node in the order in which they ran, the most bytes that were allocated in it; what was there
    before the step is what the graph says was there."""
    there = sum(s.bytes for s in graph.storages if graph.was_there(s))
    before = (run.peak_memory or 0) - sum(held.bytes for held in run.held) - there
    found: dict[int, int] = {}
    for (_, held), node in zip(run.memory, run.memory_nodes, strict=False):
        if node:
            found[node] = max(found.get(node, 0), held - before)
    return sorted(found.items())


def allocated(graph: Graph, tree: Tree, run: RunRecord) -> Allocated | None:
    """The memory of a run beside that of its graph; None where none was written down."""
    if run.peak_memory is None or not run.held:
        return None
    step = memory(graph, before=False)
    paths = {
        n.id: tree.title(leaf)
        for leaf in tree.root.shown()
        if leaf.node
        for n in tree.nodes_of(leaf)
    }
    rows: dict[Key, list[int]] = {}

    def place(node: Node) -> Key:
        return paths.get(node.id, node.name), node.op

    for held in run.held:
        node = graph.node(held.nodes[0]) if held.nodes else None
        key = ("", held.name) if node is None else place(node)
        rows.setdefault(key, [0, 0])[0] += held.bytes
    makers = [n for n in graph.nodes for _ in n.kernels]
    at = step.peak_kernel or 0
    for s in graph.storages:
        if s.born <= at and (s.died is None or at < s.died) and not graph.was_there(s):
            node = graph.node(s.node) if s.node else makers[s.born] if makers else None
            key = ("", "") if node is None else place(node)
            rows.setdefault(key, [0, 0])[1] += s.bytes
    found = (Alive(*key, *both) for key, both in rows.items())
    ordered = sorted(found, key=lambda a: (-abs(a.difference), -a.measured, a.path, a.op))
    own = sum(held.bytes for held in run.held)
    weights = sum(p.bytes for p in graph.parameters)
    there = sum(s.bytes for s in graph.storages if graph.was_there(s))
    return Allocated(
        own, step.peak, run.peak_memory - own, weights + there,
        next(iter(run.peak_nodes), None), step.peak_node, tuple(ordered),
    )  # fmt: skip


# When an accelerator had nothing to do in a run: how long, what the host did then, which share of it was
# waiting for launches, and how much of the communication ran beside other work.


QUEUE = "queue"
"""What the host of a gap is called whose kernel had been launched before the gap began."""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Idle:
    """The time of one step in which a device had nothing to do between kernels, in seconds: because the
    next was not launched yet (`launching`), or although it was (`queued`: for another stream, or the start
    itself). `hosts` are what the host did while the device waited for a launch, the longest first."""

    launching: float
    queued: float
    hosts: tuple[tuple[str, float], ...]

    @property
    def seconds(self) -> float:
        return self.launching + self.queued


def idle(run: RunRecord) -> Idle:
    """How long one device of a run waited in one step, and for what."""
    each = 1 / run.steps / run.ranks
    hosts: dict[str, float] = {}
    for gap in run.gaps:
        hosts[gap.host] = hosts.get(gap.host, 0.0) + gap.seconds * each
    queued = hosts.pop(QUEUE, 0.0)
    ordered = sorted(hosts.items(), key=lambda item: -item[1])
    return Idle(sum(hosts.values()), queued, tuple(ordered))


@dataclass(frozen=True, slots=True)
class Overlap:
    """The communication of the step that the timeline shows, in seconds: all of it, and what of that ran
    while no other kernel did."""

    seconds: float
    exposed: float

    @property
    def hidden(self) -> float:
        """The share that ran beside other work."""
        return 1 - self.exposed / self.seconds if self.seconds else 0.0


def overlap(run: RunRecord) -> Overlap:
    """How much of the communication of one device ran beside its other kernels: the mean of those shown."""
    kinds = [e.kind for e in run.events]
    ranks: dict[int, tuple[list[Interval], list[Interval]]] = {}
    for piece in run.timeline:
        kind = kinds[piece.event]
        if kind in ("communication", "kernel" if run.accelerated else "operator"):
            sides = ranks.setdefault(piece.rank, ([], []))
            sides[kind == "communication"].append((piece.start, piece.start + piece.seconds))
    whole = exposed = 0.0
    for other, moving in ranks.values():
        whole += length(union(moving)) / len(ranks)
        exposed += (length(union([*moving, *other])) - length(union(other))) / len(ranks)
    return Overlap(whole, exposed)


def union(spans: Iterable[Interval]) -> list[Interval]:
    """Times that any of some intervals has, as intervals that do not touch."""
    found: list[Interval] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def length(spans: Iterable[Interval]) -> float:
    """The sum of some intervals that do not touch."""
    return sum(end - begin for begin, end in spans)
