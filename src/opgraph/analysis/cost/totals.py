"""Sums of costs, and what bounds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from opgraph.analysis.cost.experts import active_parameters, looked_up, mixtures
from opgraph.record.graph import Graph, Kernel, Node, Scope, Shape
from opgraph.record.kinds import Bound


@dataclass(frozen=True, slots=True)
class Cost:
    """What some kernels cost together.

    FLOPs of matrix products and convolutions and of other work, bytes read and written, and how many
    kernels were costed by formula, are zero by nature, or are unknown.
    """

    flops: int = 0
    other_flops: int = 0
    read: int = 0
    written: int = 0
    formula: int = 0
    zero: int = 0
    unknown: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.other_flops + other.other_flops,
            self.read + other.read,
            self.written + other.written,
            self.formula + other.formula,
            self.zero + other.zero,
            self.unknown + other.unknown,
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(*(times * getattr(self, name) for name in Cost.__slots__))

    @property
    def macs(self) -> int:
        return self.flops // 2

    @property
    def bytes(self) -> int:
        return self.read + self.written

    @property
    def kernels(self) -> int:
        return self.formula + self.zero + self.unknown

    @property
    def coverage(self) -> float:
        """The share of kernels with a known cost; 1.0 of none."""
        return 1 - self.unknown / self.kernels if self.kernels else 1.0

    @property
    def arithmetic_intensity(self) -> float | None:
        """All FLOPs per byte of traffic; None where nothing is moved."""
        return (self.flops + self.other_flops) / self.bytes if self.bytes else None


def cost_of(nodes: Iterable[Node]) -> Cost:
    """The cost of some nodes together."""
    return cost_of_kernels(k for n in nodes for k in n.kernels)


def cost_of_kernels(kernels: Iterable[Kernel]) -> Cost:
    """The cost of some kernels together."""
    return Cost(*running_costs([kernels])[-1])


def running_costs(groups: Iterable[Iterable[Kernel]]) -> list[tuple[int, ...]]:
    """The fields of `Cost` of all kernels before each group, and of all."""
    flops = other = read = written = formula = zero = unknown = 0
    rows: list[tuple[int, ...]] = [(0,) * len(Cost.__slots__)]
    for kernels in groups:
        for k in kernels:
            flops += k.flops
            other += k.other_flops
            read += k.read
            written += k.written
            if k.cost == "formula":
                formula += k.launches
            elif k.cost == "zero":
                zero += k.launches
            else:
                unknown += k.launches
        rows.append((flops, other, read, written, formula, zero, unknown))
    return rows


class WithCost:
    """What has a `cost`, and its figures at hand."""

    __slots__ = ()

    cost: Cost

    @property
    def flops(self) -> int:
        return self.cost.flops

    @property
    def other_flops(self) -> int:
        return self.cost.other_flops

    @property
    def macs(self) -> int:
        return self.cost.macs

    @property
    def bytes(self) -> int:
        return self.cost.bytes

    @property
    def kernels(self) -> int:
        return self.cost.kernels

    @property
    def coverage(self) -> float:
        return self.cost.coverage

    @property
    def arithmetic_intensity(self) -> float | None:
        return self.cost.arithmetic_intensity


@dataclass(frozen=True, slots=True)
class Totals(WithCost):
    """The totals of a graph.

    Sizes are in bytes; parameters are counted once however often they are used, FLOPs at every use.
    `unknown` lists the operators without a cost formula and how often each ran; `coverage` is the share
    of kernels that have a cost.

    With mixtures of experts, `active_parameters` are those that one token uses, `looked_up_parameters`
    how many of them are tables of embeddings, and `expert_flops` the FLOPs of the experts; None
    without.
    """

    cost: Cost
    parameters: int
    trainable_parameters: int
    weight_bytes: int
    buffer_bytes: int
    input_bytes: int
    output_bytes: int
    nodes: int
    unknown: tuple[tuple[str, int], ...] = ()
    active_parameters: int | None = None
    looked_up_parameters: int | None = None
    expert_flops: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data, for people and scripts that read a saved profile."""
        fields = {key: value for key, value in asdict(self).items() if value is not None}
        cost = fields.pop("cost")
        return {
            "flops": self.flops,
            "macs": self.macs,
            "other_flops": cost["other_flops"],
            "bytes_read": cost["read"],
            "bytes_written": cost["written"],
            "arithmetic_intensity": self.arithmetic_intensity,
            "kernels": self.kernels,
            "coverage": self.coverage,
            **fields,
            "unknown": dict(self.unknown),
        }


def totals(graph: Graph) -> Totals:
    """The totals of a graph."""
    value = graph.value
    unknown = Counter(k.op for n in graph.nodes for k in n.kernels if k.cost == "unknown")
    parameters = [p for p in graph.parameters if p.kind == "parameter"]
    found = mixtures(graph)
    return Totals(
        cost=cost_of(graph.nodes),
        parameters=sum(p.numel for p in parameters),
        trainable_parameters=sum(p.numel for p in parameters if p.trainable),
        weight_bytes=sum(p.bytes for p in parameters),
        buffer_bytes=sum(p.bytes for p in graph.parameters if p.kind == "buffer"),
        input_bytes=sum(value[v].bytes for v in graph.inputs),
        output_bytes=sum(value[v].bytes for v in graph.outputs),
        nodes=len(graph.nodes),
        unknown=tuple(unknown.most_common()),
        active_parameters=active_parameters(graph, found) if found else None,
        looked_up_parameters=looked_up(graph) if found else None,
        expert_flops=sum(m.flops for m in found) if found else None,
    )


CONSTANTS = "constants"
"""What stands for all operators on nothing but constants, where a person reads."""


def total_seconds(nodes: Iterable[Node], seconds: Mapping[int, float] | None) -> float | None:
    """The predicted seconds of some nodes together; None without a device."""
    return None if seconds is None else sum(seconds.get(n.id, 0.0) for n in nodes)


# Costs of modules by path, for Python and for comparisons. Views show `analysis.tree`.


@dataclass(frozen=True, slots=True)
class ModuleCost(WithCost):
    """A module with all that is below it.

    `cost` and `parameters` are those of the whole subtree; `own` is the cost of the nodes that stand
    directly in the module, `nodes` are these. `output` is the shape of its first result. `seconds` are the
    predicted ones of the whole subtree; None without a device.
    """

    path: str
    name: str
    cls: str
    depth: int
    calls: int
    parameters: int
    cost: Cost
    own: Cost
    output: Shape | None
    nodes: tuple[Node, ...] = field(repr=False)
    children: tuple[ModuleCost, ...] = field(repr=False)
    seconds: float | None = None

    def walk(self, depth: int | None = None) -> Iterator[ModuleCost]:
        """This module and those below it, down to a depth."""
        yield self
        if depth is None or self.depth < depth:
            for child in self.children:
                yield from child.walk(depth)

    def together(self, others: Iterable[ModuleCost], path: str) -> ModuleCost:
        """Itself and others that are alike as one, under one path."""
        every = (self, *others)
        return replace(
            self, path=path, name=path.rpartition(".")[2], calls=sum(m.calls for m in every),
            parameters=sum(m.parameters for m in every), cost=sum((m.cost for m in every), Cost()),
            own=sum((m.own for m in every), Cost()),
            seconds=None if self.seconds is None else sum(m.seconds or 0.0 for m in every),
        )  # fmt: skip


def module_tree(graph: Graph, seconds: Mapping[int, float] | None = None) -> ModuleCost:
    """The root module with the whole tree below it, with the seconds of its nodes where they are known."""
    parameters: dict[str, int] = {}
    for parameter in graph.parameters:
        if parameter.kind == "parameter":
            parameters[parameter.scope] = parameters.get(parameter.scope, 0) + parameter.numel
    children: dict[str, list[Scope]] = {}
    for scope in graph.scopes:
        if scope.path:
            children.setdefault(scope.path.rpartition(".")[0], []).append(scope)

    def make(scope: Scope, depth: int) -> ModuleCost:
        below = tuple(make(child, depth + 1) for child in children.get(scope.path, ()))
        direct = graph.inside.get(scope.path, ())
        own, taken = cost_of(direct), total_seconds(direct, seconds)
        return ModuleCost(
            path=scope.path,
            name=scope.path.rpartition(".")[2],
            cls=scope.cls,
            depth=depth,
            calls=scope.calls,
            parameters=parameters.get(scope.path, 0) + sum(c.parameters for c in below),
            cost=sum((c.cost for c in below), own),
            own=own,
            output=graph.value[scope.outputs[0]].shape if scope.outputs else None,
            nodes=direct,
            children=below,
            seconds=None if taken is None else taken + sum(c.seconds or 0.0 for c in below),
        )

    return make(graph.scope[""], 0)


# What bounds work without a device: its arithmetic intensity against a ridge point (FLOPs per byte at which
# a machine's arithmetic and its memory take equally long).

GENERIC_RIDGE = 10.0
"""FLOPs per byte, where no device is named."""
BALANCED = 0.5, 2.0
"""The parts of a ridge point between which arithmetic and memory take about equally long."""


def classify(intensity: float | None, ridge: float = GENERIC_RIDGE) -> Bound | None:
    """What bounds work of this intensity: compute, memory or neither.

    Balanced between; None where nothing is moved.
    """
    if intensity is None:
        return None
    low, high = BALANCED
    if intensity > high * ridge:
        return Bound.COMPUTE
    return Bound.MEMORY if intensity < low * ridge else Bound.BALANCED


def longest(spent: Iterable[tuple[Bound, float]]) -> Bound | None:
    """What most of the seconds go to, of work of which each piece waits for one thing; None where none
    takes any."""
    sums: dict[Bound, float] = {}
    for bound, seconds in spent:
        sums[bound] = sums.get(bound, 0.0) + seconds
    return max(sums, key=lambda b: sums[b]) if any(sums.values()) else None


def bound_of(
    nodes: Iterable[Node], cost: Cost, ridge: float, bounds: Mapping[int, Bound] | None,
    seconds: Mapping[int, float] | None,
) -> Bound | None:  # fmt: skip
    """What some nodes of this cost wait for together, be they a module, a subgraph or all: on a device,
    where each has its bound and seconds, what most of its time goes to; else by intensity against the
    ridge point. None where nothing is moved."""
    if seconds is None or bounds is None:
        return classify(cost.arithmetic_intensity, ridge)
    return longest((bounds[n.id], seconds[n.id]) for n in nodes if n.id in bounds)


@dataclass(frozen=True, slots=True)
class BoundShare(WithCost):
    """The nodes that one thing bounds.

    How many, what they cost together, and on a device the seconds they take; `share` is that of the
    predicted time there, and of the bytes moved without a device.
    """

    bound: Bound
    nodes: int
    cost: Cost
    seconds: float | None
    share: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "bound": self.bound.value, "nodes": self.nodes, "flops": self.flops,
            "other_flops": self.cost.other_flops, "bytes": self.bytes,
            "seconds": self.seconds, "share": self.share,
        }  # fmt: skip
