"""Whether tracers agree: the same model traced in several ways, side by side, and every disagreement by
operator and module. A node for the same computation has the same operator, scope and cost whichever tracer
found it, so what is left over is what really differs."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from itertools import combinations
from math import prod
from typing import Any, Literal

from opgraph.analysis.cost.fragments import fragments
from opgraph.analysis.cost.totals import Cost, cost_of, totals
from opgraph.analysis.costed import CostedRecord
from opgraph.record.graph import Graph, Node, Scope
from opgraph.record.profile import ProfileRecord
from opgraph.record.remarks import Remark


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
    def remarks(self) -> tuple[Remark, ...]:
        """Those on what any tracer found, each once."""
        found = (CostedRecord(t.profile).remarks for t in self.trials if t.profile is not None)
        return tuple(dict.fromkeys(remark for each in found for remark in each))

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
            "remarks": [r.to_dict() for r in self.remarks],
        }

    def rows(self) -> list[dict[str, str | int | float | bool | None]]:
        """One record a tracer: what it counted, and whether that agrees with the reference."""
        return [
            {
                "tracer": t.tracer, "seconds": t.seconds,
                **dict(zip(_FIGURES, _figures(t.profile) or [None] * len(_FIGURES), strict=True)),
                "fragments": 0 if t.profile is None else len(fragments(t.profile.graph)),
                "agrees": self.agrees(t), "error": t.error,
            }
            for t in self.trials
        ]  # fmt: skip

    def disagreements(self, trial: Trial) -> tuple[Disagreement, ...]:
        """How the graph of a trial differs from that of the reference."""
        reference = self.reference
        if reference is None or reference.profile is None or trial.profile is None:
            return ()
        return disagreements(reference.profile.graph, trial.profile.graph)


_FIGURES = ("flops", "other_flops", "parameters", "bytes")


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
    for node in filter(_works, graph.nodes):
        groups.setdefault((node.scope, node.op), []).append(node)
    return {key: _group(nodes) for key, nodes in groups.items()}


def _group(nodes: list[Node]) -> Group:
    cost = cost_of(nodes)
    return Group(len(nodes), cost.flops, cost.other_flops, cost.bytes)


def _works(node: Node) -> bool:
    return node.kind in ("call", "constant")


def _modules_of_equal_cost(one: Graph, two: Graph) -> set[str]:
    """The modules whose own nodes cost the same in both graphs."""
    costs = [
        {scope: cost_of(filter(_works, own)) for scope, own in graph.inside.items()}
        for graph in (one, two)
    ]
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


# Why the figure of another counter differs from ours: which part of the work it leaves out, adds, or counts
# otherwise, found from the graph by arithmetic. An explanation is given only where the amounts fit.
#
# What a counter finds that looks at modules alone: it multiplies the weights of every leaf module that
# is called with sizes of the module's output, as torchinfo does. What comes of it differs from the work
# that is done, and here is by how much and where.


def called_leaves(graph: Graph) -> dict[str, Scope]:
    """The modules without children that are called, by path."""
    parents = {path.rpartition(".")[0] for path in graph.scope if path}
    return {s.path: s for s in graph.scopes if s.calls and s.path not in parents}


def weights_times_outputs(graph: Graph) -> dict[str, int]:
    """What such a counter leaves out, in FLOPs by the reason, or adds (a negative amount), where modules
    have weights; the work outside of these modules is left out altogether, and not in here.

    The rule, of https://github.com/TylerYep/torchinfo (`LayerInfo.calculate_macs`): what is called
    "weight" or "bias" counts once a sample, in a class with "Conv" in its name once a position of the
    output; other weights and biases (`weight_ih_l0`) count once a step.
    """
    own = dict.fromkeys(graph.scope, 0)
    for node in graph.nodes:
        own[node.scope] += node.flops
    found: dict[str, int] = {}
    weights = _weights(graph)
    for path, scope in called_leaves(graph).items():
        shape = _output(graph, scope)
        if path not in weights or shape is None:
            continue
        counted = (
            2 * scope.calls * sum(_rule(n, size, scope.cls, shape) for n, size in weights[path])
        )
        reason = _reason(own[path], counted, scope.cls, shape)
        found[reason] = found.get(reason, 0) + own[path] - counted
    return found


def _weights(graph: Graph) -> dict[str, list[tuple[str, int]]]:
    """The parameters of each module, a tied one in all of its modules: name and number of elements."""
    found: dict[str, list[tuple[str, int]]] = {}
    for parameter in graph.parameters:
        if parameter.kind == "parameter":
            for path in (parameter.name, *parameter.tied):
                owner, _, name = path.rpartition(".")
                found.setdefault(owner, []).append((name, parameter.numel))
    return found


def _output(graph: Graph, scope: Scope) -> list[int] | None:
    if not scope.outputs:
        return None
    shape = [n for n in graph.value[scope.outputs[0]].shape if isinstance(n, int)]
    return shape or None


def _rule(name: str, size: int, cls: str, shape: list[int]) -> int:
    if name in ("weight", "bias"):
        return size * (prod(shape[:1] + shape[2:]) if "Conv" in cls else shape[0])
    return size * prod(shape[:2]) if "weight" in name or "bias" in name else 0


def _reason(flops: int, counted: int, cls: str, shape: list[int]) -> str:
    if not flops:
        return "adds the weights of modules that multiply no matrices"
    if flops > counted:
        return f"counts a {cls} once a sample, whatever the sequence"
    if "Conv" in cls and len(shape) == 3 and counted > 2 * flops:
        return f"takes {cls} for a convolution"
    return "counts biases"


_TOLERANCE = 5e-4
"""The share of the total within which amounts are the same: tools round, and count biases or not."""

_ALIKE = 1e-3
"""The share of it within which a figure is the one that a rule gives."""

_GROUPS = 10

_EVERYBODY_COUNTS = ("Linear", "Conv1d", "Conv2d", "Conv3d")
"""Modules that every counter knows: that one of them is skipped is never the reason, even if it fits."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What another counter says of a model: its figure and what it calls it, its count of parameters, the
    operators that it says itself it cannot count, how long it took, or why it failed; and, where its count
    of parameters is not ours, what it is when no module has several owners."""

    tool: str
    version: str
    unit: Literal["MACs", "FLOPs"]
    value: int | None = None
    parameters: int | None = None
    uncounted: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str | None = None
    separated: int | None = None

    @property
    def flops(self) -> int | None:
        """The figure in FLOPs, a MAC being two."""
        if self.value is None:
            return None
        return self.value * 2 if self.unit == "MACs" else self.value


def reasons(reading: Reading, graph: Graph) -> tuple[str, ...]:
    """Why a reading is not our figure, a clause each; none where they are the same."""
    if reading.error is not None or reading.flops is None:
        return ()
    truth = totals(graph)
    found: list[str] = []
    if reading.unit == "MACs":
        found.append("counts a MAC as one")
    found += _work(reading, graph, truth.flops, truth.other_flops)
    if reading.uncounted:
        found.append(f"says itself that it does not count {', '.join(reading.uncounted)}")
    if reading.parameters is not None and reading.separated == truth.parameters:
        found.append("counts parameters again around a module that several share")
    elif reading.parameters is not None:
        found += _parameters(reading.parameters - truth.parameters, graph)
    return tuple(found)


def _work(reading: Reading, graph: Graph, flops: int, other: int) -> list[str]:
    gap = flops - (reading.flops or 0)
    if not flops or abs(gap) <= _TOLERANCE * flops:
        return []
    by_modules = _module_count(reading, graph, flops)
    if by_modules is not None:
        return by_modules
    if gap < 0 and -gap <= 8 * other:
        return [f"adds {_percent(-gap, flops)} for work other than contractions"]
    parts = _parts(graph)
    for size in range(1, min(3, len(parts)) + 1):
        fits = [
            (abs(gap - sum(p.flops for p in chosen)), chosen)
            for chosen in combinations(parts, size)
            if _fits(gap - sum(p.flops for p in chosen), flops, other)
        ]
        if fits:
            rest, chosen = min(fits, key=lambda fit: fit[0])
            clauses = [f"{p.label} ({_percent(abs(p.flops), flops)})" for p in chosen]
            if rest > _TOLERANCE * flops:
                clauses.append(f"adds {_percent(rest, flops)} for work other than contractions")
            return clauses
    return [f"{_percent(abs(gap), flops)} {'less' if gap > 0 else 'more'}, not explained"]


def _fits(rest: int, flops: int, other: int) -> bool:
    """Whether what is left is nothing, or no more than a tool adds for element-wise work."""
    return abs(rest) <= _TOLERANCE * flops or -8 * other <= rest <= 0


@dataclass(frozen=True, slots=True)
class _Part:
    label: str
    flops: int


def _parts(graph: Graph) -> list[_Part]:
    """Parts of the work that a counter may leave out, the largest first."""
    amounts: dict[str, int] = {}
    leaves = _leaves(graph)
    repeated = 0
    for node in graph.nodes:
        for kernel in node.kernels:
            if kernel.flops:
                label = _label(node, kernel.category, graph, leaves)
                amounts[label] = amounts.get(label, 0) + kernel.flops
    for scope in graph.scopes:
        if scope.calls > 1 and scope.path in leaves:
            own = sum(n.flops for n in graph.nodes if n.scope == scope.path)
            repeated += own * (scope.calls - 1) // scope.calls
    if repeated:
        amounts["counts a module once that runs several times"] = repeated
    for label in _EVERYBODY_COUNTS:
        amounts.pop(f"skips {label}", None)
    found = [_Part(label, flops) for label, flops in amounts.items()]
    return sorted(found, key=lambda p: p.flops, reverse=True)[:_GROUPS]


def _leaves(graph: Graph) -> set[str]:
    """The modules that compute themselves, and whose children compute nothing."""
    return {n.scope for n in graph.nodes} - {n.scope.rpartition(".")[0] for n in graph.nodes}


def _module_count(reading: Reading, graph: Graph, flops: int) -> list[str] | None:
    """The clauses for a counter that multiplies weights with outputs, if the reading is what that gives."""
    amounts = weights_times_outputs(graph)
    modules, leaves = called_leaves(graph), _leaves(graph)
    weighty = {p.scope for p in graph.parameters} | {
        name.rpartition(".")[0] for p in graph.parameters for name in p.tied
    }
    for node in graph.nodes:
        if node.scope in modules and node.scope in weighty:
            continue
        for kernel in node.kernels:
            if kernel.flops:
                label = _label(node, kernel.category, graph, leaves)
                amounts[label] = amounts.get(label, 0) + kernel.flops
    counted = flops - sum(amounts.values())
    if abs(counted - (reading.flops or 0)) > _ALIKE * counted:
        return None
    largest = sorted(amounts.items(), key=lambda a: abs(a[1]), reverse=True)
    return [
        f"{label} ({_percent(abs(amount), flops)})"
        for label, amount in largest if abs(amount) > _TOLERANCE * flops
    ]  # fmt: skip


def _label(node: Node, category: str, graph: Graph, leaves: set[str]) -> str:
    if category == "attention":
        return "skips attention"
    if node.scope in leaves and node.parameters:
        return f"skips {graph.scope[node.scope].cls}"
    return f"skips {node.op} called as a function"


def _parameters(gap: int, graph: Graph) -> list[str]:
    if not gap:
        return []
    learned = [p for p in graph.parameters if p.kind == "parameter"]
    tied = [p for p in learned if p.tied]
    shared = sum(p.numel for p in tied)
    frozen = sum(p.numel for p in learned if not p.trainable)
    owners = {graph.scope[p.scope].path for p in learned}
    children = {path.rpartition(".")[0] for path in graph.scope if path}
    loose = sum(p.numel for p in learned if p.scope in owners & children)
    uncalled = sum(p.numel for p in learned if not graph.scope[p.scope].calls)
    used = {name for n in graph.nodes for name in n.parameters}
    several = sum(
        p.numel * (graph.scope[p.scope].calls - 1) for p in learned
        if p.name in used and graph.scope[p.scope].calls > 1
    )  # fmt: skip
    for amount, reason in (
        *(
            (shared * n, "counts tied weights more than once")
            for n in range(1, 1 + max((len(p.tied) for p in tied), default=0))
        ),
        (several, "counts a shared layer at every call"),
        (-frozen, "leaves out parameters that are not trained"),
        (-loose, "leaves out parameters of modules that have children"),
        (-uncalled, "leaves out parameters of modules that are not called"),
        (-loose - uncalled, "leaves out parameters outside of the leaf modules that are called"),
    ):
        if amount and amount == gap:
            return [reason]
    return [f"{abs(gap):,} parameters {'more' if gap > 0 else 'fewer'}, not explained"]


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole
    return f"{share:,.1f} %" if abs(share) >= 1 else f"{share:.2g} %"
