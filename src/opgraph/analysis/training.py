"""A step of training by its phases: what each computes and moves, and what the memory goes to."""

from __future__ import annotations

from dataclasses import dataclass

from opgraph.analysis.memory import live_bytes, memory
from opgraph.analysis.totals import Cost, cost_of
from opgraph.graph import Graph

PHASES = ("forward", "recompute", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Training:
    """Costs by phase, and bytes: weights with buffers, gradients, what the optimizer keeps between steps,
    the activations that are alive when the forward is done, and the peak with the weights."""

    phases: dict[str, Cost]
    weights: int
    gradients: int
    optimizer_state: int
    saved_activations: int
    peak: int


def training(graph: Graph) -> Training:
    """The phases of a graph that was traced in the mode "train"."""
    phases = {p: cost_of(n for n in graph.nodes if n.phase == p) for p in PHASES}
    ends: dict[str, int] = {}
    clock = 0
    for node in graph.nodes:
        clock += len(node.kernels)
        if node.kernels:
            ends[node.phase] = clock
    live = live_bytes(graph.storages, clock)
    after_forward = ends.get("forward", 0)
    saved = live[after_forward - 1] if after_forward else 0
    stepping = ends.get("backward", clock)
    kept = [s for s in graph.storages if s.died is None]
    weights = sum(p.bytes for p in graph.parameters)
    return Training(
        phases=phases,
        weights=weights,
        gradients=sum(p.bytes for p in graph.parameters if p.kind == "parameter" and p.trainable),
        optimizer_state=sum(s.bytes for s in kept if s.born >= stepping),
        saved_activations=saved,
        peak=weights + memory(graph).peak,
    )


def working(graph: Graph) -> dict[str, int]:
    """The most bytes alive in each phase beside gradients and what the optimizer keeps."""
    whole = training(graph)
    phases = [n.phase for n in graph.nodes for _ in n.kernels]
    live = live_bytes(graph.storages, len(phases))
    made = [s for s in graph.storages if s.died is None and s.born < len(phases)]
    held = live_bytes([s for s in made if phases[s.born] in ("backward", "optimizer")], len(phases))
    most: dict[str, int] = {}
    for phase, now, kept in zip(phases, live, held, strict=True):
        beside = now - min(kept, whole.gradients + whole.optimizer_state)
        most[phase] = max(most.get(phase, 0), beside)
    return most
