"""Why the figure of another counter differs from ours: which part of the work it leaves out, adds, or
counts otherwise, found from the graph by arithmetic. An explanation is given only where the amounts fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Literal

from opgraph.analysis.cost.totals import totals
from opgraph.record.graph import Graph, Node, Scope

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
