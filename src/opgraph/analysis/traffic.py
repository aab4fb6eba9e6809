"""What the devices of a plan send to each other: the collectives of tensor parallelism, what goes from
stage to stage, and the gradients that several devices have parts of.

Sources: Shoeybi et al., "Megatron-LM", 2019 (all-reduces); Narayanan et al., "Efficient large-scale
language model training on GPU clusters using Megatron-LM", SC 2021, section 3.2 (bytes); Patarasuk and
Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009 (rings).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from opgraph.analysis.sharding import Exchange, Sharding
from opgraph.analysis.stages import Stage
from opgraph.graph import Graph
from opgraph.hardware import Device

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
                yield from _row(
                    phase, kind, [e.bytes for e in sent if e.kind == kind], tensor, device
                )
        back = [e.bytes for e in found.starts if stage.first <= e.node <= stage.last]
        yield from _row("backward", "all-reduce", back if trains else [], tensor, device)
    if number + 1 < len(cut):
        yield _send("forward", cut[number + 1].received, device)
    if number > 0 and trains:
        yield _send("backward", cut[number].received, device)


def of_gradients(cut: tuple[Stage, ...], data: int, device: Device | None) -> Iterator[Traffic]:
    """What a device sends after all micro-batches, at most: gradients of weights that several stages use
    (tied embeddings), and with copies of the model all of a stage's."""
    tied = max((s.shared for s in cut), key=lambda s: sum(size for size, _ in s))
    sizes = [ring("all-reduce", size, stages) for size, stages in tied]
    if sizes:
        yield _reduced("pipeline", len(sizes), sum(sizes), device)
    if data > 1:
        size = ring("all-reduce", max(s.trained for s in cut), data)
        yield _reduced("data", 1, size, device)


def _reduced(
    what: Literal["pipeline", "data"], times: int, size: int, device: Device | None
) -> Traffic:
    return Traffic(what, "optimizer", "all-reduce", times, size, _seconds(size, times, device))


def _send(phase: Phase, size: int, device: Device | None) -> Traffic:
    return Traffic("pipeline", phase, "send", 1, size, _seconds(size, 1, device))


def _row(
    phase: Phase, kind: Kind, sizes: list[int], tensor: int, device: Device | None
) -> Iterator[Traffic]:
    if sizes:
        sent = sum(ring(kind, size, tensor) for size in sizes)
        yield Traffic("tensor", phase, kind, len(sizes), sent, _seconds(sent, len(sizes), device))


def _seconds(size: int, times: int, device: Device | None) -> float | None:
    """Bytes at the link's bandwidth, and a launch for each collective."""
    if device is None or device.link_bandwidth is None:
        return None
    return size / device.link_bandwidth + times * device.launch_overhead
