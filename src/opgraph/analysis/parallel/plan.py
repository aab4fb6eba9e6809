"""Parallelism on paper: a graph over several devices, split within operators (tensor), between blocks
(pipeline) and by the batch (data). What each device holds and computes, what collectives move, and how
long a step takes. It works on a saved profile.

Sources: Shoeybi et al., "Megatron-LM", 2019 (which layers are split); Narayanan et al., "Efficient
large-scale language model training on GPU clusters using Megatron-LM", SC 2021, section 2.2 (bubble,
one-forward-one-backward).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any, Literal

from opgraph.analysis.cost.training import training, working
from opgraph.analysis.parallel.sharding import Exchange, Sharding, divisors, sharded, sharding
from opgraph.analysis.parallel.stages import Stage, blocks, stages
from opgraph.analysis.timing.prediction import predict
from opgraph.hardware import Device
from opgraph.record.errors import RenderError
from opgraph.record.graph import Graph
from opgraph.record.kinds import Run

# What the devices of a plan send to each other: the collectives of tensor parallelism, what goes from
# stage to stage, and the gradients that several devices have parts of.

Kind = Literal["all-reduce", "all-gather", "send"]
Phase = Literal["forward", "recompute", "backward", "optimizer"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one device sends in a step for one purpose: in `times` collectives of `bytes` altogether."""

    what: Literal["tensor", "pipeline", "data"]
    phase: Phase
    kind: Kind
    times: int
    bytes: int
    seconds: float | None

    def repeated(self, times: int) -> Traffic:
        """So many times the same."""
        seconds = None if self.seconds is None else self.seconds * times
        return replace(self, times=self.times * times, bytes=self.bytes * times, seconds=seconds)


def ring(kind: Kind, size: int, devices: int) -> int:
    """The bytes that each of some devices sends for a collective over `size` bytes: a ring all-reduce is
    2 (n - 1) / n of them, an all-gather (n - 1) / n (Patarasuk and Yuan)."""
    if kind == "send":
        return size
    return ceil((2 if kind == "all-reduce" else 1) * size * (devices - 1) / devices)


def of_a_micro_batch(
    graph: Graph,
    found: Sharding,
    cut: tuple[Stage, ...],
    number: int,
    tensor: int,
    device: Device | None,
) -> Iterator[Traffic]:
    """What a device of a stage sends for one micro-batch. What runs again sends again."""
    stage = cut[number]
    again = {(n.scope, n.op) for n in graph.nodes if n.phase == "recompute"}
    trains = any(n.phase == "backward" for n in graph.nodes)
    if tensor > 1:
        mine = [e for e in found.exchanges if stage.first <= e.node <= stage.last]
        twice = [e for e in mine if (graph.node(e.node).scope, graph.node(e.node).op) in again]
        passes: dict[Phase, list[Exchange]] = {"forward": mine, "recompute": twice}
        for phase, sent in passes.items():
            for kind in ("all-reduce", "all-gather"):
                sizes = [(e.bytes, tensor) for e in sent if e.kind == kind]
                yield from _row("tensor", phase, kind, sizes, device)
        back = [(e.bytes, tensor) for e in found.starts if stage.first <= e.node <= stage.last]
        yield from _row("tensor", "backward", "all-reduce", back if trains else [], device)
    if number + 1 < len(cut):
        yield from _row("pipeline", "forward", "send", [(cut[number + 1].received, 2)], device)
    if number > 0 and trains:
        yield from _row("pipeline", "backward", "send", [(cut[number].received, 2)], device)


def of_gradients(cut: tuple[Stage, ...], data: int, device: Device | None) -> Iterator[Traffic]:
    """What a device sends after all micro-batches, at most: gradients of weights that several stages use
    (tied embeddings), and with copies of the model all of a stage's."""
    tied = max((s.shared for s in cut), key=lambda s: sum(size for size, _ in s))
    yield from _row("pipeline", "optimizer", "all-reduce", tied, device)
    if data > 1:
        trained = max(s.trained for s in cut)
        yield from _row("data", "optimizer", "all-reduce", [(trained, data)], device)


def _row(
    what: Literal["tensor", "pipeline", "data"], phase: Phase, kind: Kind,
    sizes: Sequence[tuple[int, int]], device: Device | None,
) -> Iterator[Traffic]:  # fmt: skip
    """The collectives over so many bytes, each among so many devices, if there are any."""
    if sizes:
        sent = sum(ring(kind, size, devices) for size, devices in sizes)
        taken = None
        if device is not None and device.link_bandwidth is not None:
            taken = sum(collective(kind, size, devices, device) for size, devices in sizes)
        yield Traffic(what, phase, kind, len(sizes), sent, taken)


def collective(kind: Kind, size: int, devices: int, device: Device) -> float:
    """The seconds of a collective over `size` bytes among some devices that are all linked.

    A ring of `2 (n - 1)` steps for an all-reduce, `n - 1` for an all-gather, one for a send. Of two
    protocols the quicker one is taken, as a library would: words with a flag each, which take half of the
    link and have short steps, or blocks, which take all of it. The figures are those by which NCCL chooses
    (src/graph/tuning.cc, Apache-2.0).
    """
    steps = {"all-reduce": 2 * (devices - 1), "all-gather": devices - 1, "send": 1}[kind]
    moving = ring(kind, size, devices) / device.link_reached
    latency = steps * device.link_latency
    return min(WORDS + latency + 2 * moving, BLOCKS + BLOCK_STEP * latency + moving)


WORDS, BLOCKS = 6.6e-6, 8.4e-6
"""Seconds in which a collective of each protocol starts."""

BLOCK_STEP = 5.7
"""A step with a block, in the time of one with a word."""


NODE = 8
"""Devices that share a fast link: tensor parallelism is not searched for beyond."""

_RETURNING = ("recompute", "backward")


@dataclass(frozen=True, slots=True)
class Layout:
    """How many devices share each operator, how many stages there are, and how many copies of it all.
    The graph is one micro-batch of one copy."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    micro_batches: int = 1

    @property
    def devices(self) -> int:
        return self.tensor * self.pipeline * self.data

    @property
    def bubble(self) -> float:
        """The share of a step in which a device waits for the pipeline: (p - 1) / (m + p - 1) (Narayanan
        et al., 2.2, who give it against the ideal time, (p - 1) / m)."""
        return (self.pipeline - 1) / (self.micro_batches + self.pipeline - 1)


@dataclass(frozen=True, slots=True)
class Share:
    """One device of a stage: its weights, gradients and optimizer state, its activations (the most that is
    alive beside these in any phase, of all micro-batches in flight), its part of the KV cache (of all
    micro-batches, whose sequences are others), and the FLOPs and seconds of a micro-batch."""

    stage: Stage
    weights: int
    gradients: int
    optimizer_state: int
    activations: int
    cache: int
    flops: int
    seconds: float | None

    @property
    def memory(self) -> int:
        return self.weights + self.gradients + self.optimizer_state + self.activations + self.cache


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
            "layout": asdict(self.layout), "devices": self.layout.devices,
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

    Raises `RenderError` where the model does not divide, with what does.
    """
    for option in ("tensor", "pipeline", "data", "micro_batches"):
        if getattr(layout, option) < 1:
            raise RenderError(f"{option.replace('_', ' ')} takes a number of at least 1")
    if layout.devices > 1 and device is not None and device.link_bandwidth is None:
        raise RenderError(
            f"the file of {device.name} has no link to other devices",
            hint="add [link] to a copy of it",
        )
    found = found or sharding(graph)
    part = sharded(graph, layout.tensor, found)
    cut = stages(part, layout.pipeline)
    trains = any(n.phase == "backward" for n in graph.nodes)
    timed = None if device is None else predict(part, device, run)
    most = working(part) if trains else {}
    beyond = max(0, *(most.get(p, 0) for p in _RETURNING)) - sum(s.saved for s in cut)
    trained = max(1, training(part).gradients)
    state = _state_of_a_gradient(graph) if trains else 0.0
    flops = max(1, sum(s.flops for s in cut))
    paths = blocks(graph)
    split = any(v in found.values and v not in found.gathered for v in graph.outputs)
    shares, sent = [], []
    for number, stage in enumerate(cut):
        in_flight = min(layout.micro_batches, layout.pipeline - number)
        kept = ceil(cache * stage.blocks / max(1, len(paths)) / (layout.tensor if split else 1))
        traffic = tuple(of_a_micro_batch(graph, found, cut, number, layout.tensor, device))
        seconds = None
        if timed is not None:
            seconds = sum(timed.by_node.get(i, 0.0) for i in range(stage.first, stage.last + 1))
            seconds += _phase(part, timed.by_node, *_RETURNING) * stage.flops / flops
            seconds += sum(t.seconds or 0.0 for t in traffic)
        shares.append(
            Share(
                stage,
                weights=stage.weights,
                gradients=stage.trained,
                optimizer_state=round(stage.trained * state),
                activations=max(
                    stage.peak - kept,
                    stage.saved * in_flight + max(0, beyond),
                    most.get("optimizer", 0),
                ),
                cache=kept * layout.micro_batches,
                flops=stage.flops + int(_flops(part, *_RETURNING) * stage.flops / flops),
                seconds=seconds,
            )
        )
        sent.append(traffic)
    largest: dict[tuple[str, str, str], Traffic] = {}
    for t in (t for traffic in sent for t in traffic):
        key = (t.what, t.phase, t.kind)
        largest[key] = max(largest.get(key, t), t, key=lambda t: t.bytes)
    traffic = tuple(t.repeated(layout.micro_batches) for t in largest.values())
    last = tuple(of_gradients(cut, layout.data, device)) if trains else ()
    step = None
    if timed is not None and shares:
        rounds = layout.micro_batches + layout.pipeline - 1
        step = rounds * max(s.seconds or 0.0 for s in shares) + sum(t.seconds or 0.0 for t in last)
        step += _phase(part, timed.by_node, "optimizer") * max(s.trained for s in cut) / trained
    batch = 1 if timed is None else timed.batch
    capacity = None if device is None else device.capacity
    forward_flops = _flops(graph, "forward")
    left = sum(n.flops for n in graph.nodes if n.phase == "forward" and n.id not in found.nodes)
    padded = tuple(
        p.name for p in graph.parameters
        if p.name in found.weights and isinstance(p.shape[0], int)
        and all(n % layout.tensor for n in p.shape if isinstance(n, int) and n == max(p.shape))
    )  # fmt: skip
    return Plan(
        layout, tuple(shares), traffic + last, found, capacity, step, batch,
        left / forward_flops if forward_flops else 0.0, padded,
    )  # fmt: skip


def _phase(graph: Graph, by_node: Mapping[int, float], *phases: str) -> float:
    return sum(by_node.get(n.id, 0.0) for n in graph.nodes if n.phase in phases)


def _state_of_a_gradient(graph: Graph) -> float:
    """Bytes that the optimizer keeps for each byte of gradients."""
    whole = training(graph)
    return whole.optimizer_state / max(1, whole.gradients)


def _flops(graph: Graph, *phases: str) -> int:
    return sum(n.flops for n in graph.nodes if n.phase in phases)


def smallest(graph: Graph, device: Device, *, cache: int = 0) -> Plan | None:
    """The layout of the fewest devices on which a graph fits, and of those the one with the most tensor
    parallelism, which is at most `NODE`; None where none does."""
    found = sharding(graph)
    widths = [n for n in divisors(found) if n <= NODE] if found.sizes else [1]
    weights = sum(p.bytes for p in graph.parameters)
    least = max(1, ceil(weights / device.capacity))
    most = max(widths) * max(1, len(blocks(graph)))
    for devices in range(least, most + 1):
        for width in sorted(widths, reverse=True):
            if devices % width or devices // width > max(1, len(blocks(graph))):
                continue
            plan = parallel(graph, Layout(width, devices // width), cache=cache, found=found)
            if plan.memory <= device.capacity:
                return plan
    return None
