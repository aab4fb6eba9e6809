"""A step of training by its phases: what each computes and moves, and what the memory goes to."""

from __future__ import annotations

from dataclasses import dataclass

from opgraph.analysis.cost.totals import Cost, cost_of
from opgraph.analysis.memory import live_bytes, memory, on_host
from opgraph.record.graph import GRADIENT, Graph

PHASES = ("forward", "recompute", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Training:
    """Costs by phase, and bytes: weights with buffers, gradients, what the optimizer keeps between steps,
    the activations that are alive when the forward is done, and the peak with the weights on the
    device, beside what is kept in the host's memory, of which the most is `on_host`."""

    phases: dict[str, Cost]
    weights: int
    gradients: int
    optimizer_state: int
    saved_activations: int
    peak: int
    on_host: int = 0


def training(graph: Graph) -> Training:
    """The phases of a graph that was traced in the mode "train"."""
    phases = {p: cost_of(n for n in graph.nodes if n.phase == p) for p in PHASES}
    ends: dict[str, int] = {}
    clock = 0
    for node in graph.nodes:
        clock += len(node.kernels)
        if node.kernels:
            ends[node.phase] = clock
    storages, away = graph.on_device, graph.on_host.parameters
    live = live_bytes(storages, clock)
    after_forward = ends.get("forward", 0)
    state = sum(graph.storages[s].bytes for s in optimizer_state(graph))
    there = sum(storages[s].bytes for s in _kept(graph))  # from a step before
    saved = live[after_forward - 1] - there if after_forward else 0
    names = updated(graph)
    return Training(
        phases=phases,
        weights=sum(p.bytes for p in graph.parameters),
        gradients=sum(p.bytes for p in graph.parameters if p.name in names),
        optimizer_state=state,
        saved_activations=saved,
        peak=sum(p.bytes for p in graph.parameters if p.name not in away) + memory(graph).peak,
        on_host=on_host(graph),
    )


def updated(graph: Graph) -> frozenset[str]:
    """The names of the weights that the optimizer updates: those that have a gradient."""
    return frozenset(name for n in graph.nodes if n.phase == "optimizer" for name in n.parameters)


def working(graph: Graph) -> dict[str, int]:
    """The most bytes alive in each phase beside gradients and what the optimizer keeps."""
    state = optimizer_state(graph)
    gradients = training(graph).gradients
    phases = [n.phase for n in graph.nodes for _ in n.kernels]
    passing = [s for i, s in enumerate(graph.on_device) if i not in state]
    made = [s for s in passing if s.died is None and s.born < len(phases)]
    live = live_bytes(passing, len(phases))
    held = live_bytes([s for s in made if phases[s.born] == "backward"], len(phases))
    most: dict[str, int] = {}
    for phase, now, kept in zip(phases, live, held, strict=True):
        most[phase] = max(most.get(phase, 0), now - min(kept, gradients))
    return most


def optimizer_state(graph: Graph) -> frozenset[int]:
    """The storages that the optimizer keeps from step to step, by index."""
    return _kept(graph, without=GRADIENT)


def _kept(graph: Graph, without: str | None = None) -> frozenset[int]:
    """The storages that are there from a step before: values that have a name without being weights or
    inputs."""
    return frozenset(
        v.storage
        for v in graph.values
        if v.kind == "activation" and v.name not in (None, without) and v.storage is not None
    )
