"""Whether tracers agree: the same model traced in several ways, side by side, and every disagreement by
operator and module. A node for the same computation has the same operator, scope and cost whichever tracer
found it, so what is left over is what really differs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from opgraph.analysis.check.differences import Reading, reasons
from opgraph.analysis.cost.fragments import fragments
from opgraph.analysis.cost.totals import Cost, cost_of, totals
from opgraph.record.graph import Graph, Node
from opgraph.record.profile import ProfileRecord


@dataclass(frozen=True, slots=True)
class Trial:
    """What one tracer made of a model: a profile, or the reason why there is none. Where it differs from
    the reference, `told` is a plain run in which the model heard what this tracer tells it: that it is
    being compiled, or exported."""

    tracer: str
    profile: ProfileRecord | None
    error: str | None
    seconds: float
    told: ProfileRecord | None = None

    @property
    def whole(self) -> bool:
        """Whether the tracer got through."""
        return self.profile is not None and self.profile.graph.failed is None


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One operator in one module (or in `places` modules whose paths differ by their numbers alone),
    that the two graphs do not have alike. Where `spelling` holds, the whole module costs the same in
    both, and only the operators differ that it is written in."""

    scope: str
    op: str
    places: int
    nodes: tuple[int, int]
    flops: tuple[int, int]
    other_flops: tuple[int, int]
    bytes: tuple[int, int]
    spelling: bool


@dataclass(frozen=True, slots=True)
class Agreement:
    """The trials of a model, of which the first that got through is what the others are measured by,
    and what other counters say of it."""

    model: str
    trials: tuple[Trial, ...]
    readings: tuple[Reading, ...] = ()

    @property
    def reference(self) -> Trial | None:
        return next((t for t in self.trials if t.whole), None)

    @property
    def agree(self) -> bool:
        """Whether all tracers that got through have the same FLOPs, parameters and bytes, to the digit:
        those of the reference, or of a plain run that was told the same."""
        whole = [t for t in self.trials if t.whole]
        return bool(whole) and all(map(self.agrees, whole))

    def agrees(self, trial: Trial) -> bool:
        """Whether a trial is the reference's equal, or explained."""
        return self.matches(trial) or self.told(trial)

    def matches(self, trial: Trial) -> bool:
        """Whether the totals of a trial are those of the reference, to the digit."""
        reference = self.reference
        return reference is not None and _figures(trial.profile) == _figures(reference.profile)

    def told(self, trial: Trial) -> bool:
        """Whether a trial differs from the reference only since the model asks whether it is being
        compiled, and then runs other code: a plain run that is told the same has the same totals."""
        return trial.told is not None and _figures(trial.profile) == _figures(trial.told)

    def reasons(self, reading: Reading) -> tuple[str, ...]:
        """Why another counter's figures differ from those of the reference."""
        reference = self.reference
        if reference is None or reference.profile is None:
            return ()
        return reasons(reading, reference.profile.graph)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "model": self.model,
            "agree": self.agree,
            "reference": None if self.reference is None else self.reference.tracer,
            "tracers": [
                {
                    "tracer": t.tracer,
                    "error": t.error,
                    "seconds": t.seconds,
                    "totals": None if t.profile is None else totals(t.profile.graph).to_dict(),
                    "fragments": 0 if t.profile is None else len(fragments(t.profile.graph)),
                    "breaks": []
                    if t.profile is None
                    else list(map(asdict, t.profile.graph.breaks)),
                    "agrees": self.agrees(t),
                    "told": None if t.told is None else totals(t.told.graph).to_dict(),
                    "disagreements": list(map(asdict, self.disagreements(t))),
                }
                for t in self.trials
            ],
            "counters": [{**asdict(r), "reasons": self.reasons(r)} for r in self.readings],
        }

    def disagreements(self, trial: Trial) -> tuple[Disagreement, ...]:
        """How the graph of a trial differs from that of the reference."""
        reference = self.reference
        if reference is None or reference.profile is None or trial.profile is None:
            return ()
        return disagreements(reference.profile.graph, trial.profile.graph)


def _figures(profile: ProfileRecord | None) -> tuple[int, ...]:
    if profile is None:
        return ()
    found = totals(profile.graph)
    return found.flops, found.other_flops, found.parameters, found.bytes


def disagreements(one: Graph, two: Graph) -> tuple[Disagreement, ...]:
    """What the graphs do not have alike, by operator and module, dearest first."""
    first, second = _grouped(one), _grouped(two)
    same_cost = _modules_of_equal_cost(one, two)
    folded: dict[tuple[str, str, bool], list[tuple[Group, Group]]] = {}
    for key in dict.fromkeys((*first, *second)):
        pair = first.get(key, Group()), second.get(key, Group())
        if pair[0] != pair[1]:
            scope, op = key
            folded.setdefault((_numberless(scope), op, scope in same_cost), []).append(pair)
    found = [
        Disagreement(
            scope=scope,
            op=op,
            places=len(pairs),
            nodes=_both(pairs, "nodes"),
            flops=_both(pairs, "flops"),
            other_flops=_both(pairs, "other_flops"),
            bytes=_both(pairs, "bytes"),
            spelling=spelling,
        )
        for (scope, op, spelling), pairs in folded.items()
    ]
    return tuple(sorted(found, key=_size, reverse=True))


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one operator in one module, added up."""

    nodes: int = 0
    flops: int = 0
    other_flops: int = 0
    bytes: int = 0


def _grouped(graph: Graph) -> dict[tuple[str, str], Group]:
    groups: dict[tuple[str, str], list[Node]] = {}
    for node in _working(graph):
        groups.setdefault((node.scope, node.op), []).append(node)
    return {key: _group(nodes) for key, nodes in groups.items()}


def _group(nodes: list[Node]) -> Group:
    cost = cost_of(nodes)
    return Group(len(nodes), cost.flops, cost.other_flops, cost.bytes)


def _working(graph: Graph) -> Iterable[Node]:
    return (n for n in graph.nodes if n.kind in ("call", "constant"))


def _modules_of_equal_cost(one: Graph, two: Graph) -> set[str]:
    """The modules whose own nodes cost the same in both graphs."""
    costs: list[dict[str, Cost]] = []
    for graph in (one, two):
        nodes: dict[str, list[Node]] = {}
        for node in _working(graph):
            nodes.setdefault(node.scope, []).append(node)
        costs.append({scope: cost_of(own) for scope, own in nodes.items()})
    return {
        s for s in costs[0].keys() | costs[1].keys() if _sums(costs[0], s) == _sums(costs[1], s)
    }


def _sums(costs: dict[str, Cost], scope: str) -> tuple[int, int, int]:
    cost = costs.get(scope, Cost())
    return cost.flops, cost.other_flops, cost.bytes


def _numberless(scope: str) -> str:
    """encoder.layer.3.output -> encoder.layer.*.output"""
    return re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", scope)


def _both(pairs: list[tuple[Group, Group]], field: str) -> tuple[int, int]:
    return sum(getattr(a, field) for a, _ in pairs), sum(getattr(b, field) for _, b in pairs)


def _size(d: Disagreement) -> tuple[bool, int, int, int]:
    return (
        not d.spelling,
        abs(d.flops[1] - d.flops[0]),
        abs(d.bytes[1] - d.bytes[0]),
        abs(d.nodes[1] - d.nodes[0]),
    )
