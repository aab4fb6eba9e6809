"""Fused subgraphs: a partition of all nodes into pieces that a compiler would run as one kernel, each
with its reason.

The rules are data: which nodes a subgraph starts from, and what it takes in before and after them. A
subgraph never needs a result that depends on it from outside, so it can run as a whole. Views are folded
into what made their data. What fusion saves is the traffic inside: a fused kernel reads once what comes
from outside and writes what is needed outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opgraph.analysis.cost.totals import Cost, cost_of
from opgraph.analysis.fusion.grouping import RANK, Grouping, Role, Rule, role_of, roles_of
from opgraph.record import units
from opgraph.record.graph import Graph, Node, Value

_POINTWISE: frozenset[Role] = frozenset({"elementwise", "scale"})

RULES: tuple[Rule, ...] = (
    Rule("attention", "attention: the scores never leave the chip", seed="attention"),
    Rule("attention", "attention, spelled as two products with a softmax between them",
         seed="softmax", before=_POINTWISE, after=_POINTWISE, opens="contraction",
         closes="contraction", private=True),
    Rule("contraction", "a contraction with its epilogue: scaling and element-wise work",
         seed="contraction", after=_POINTWISE, private=True),
    Rule("normalization", "a normalization with the element-wise work around it",
         seed="normalization", before=_POINTWISE, after=_POINTWISE),
    Rule("normalization", "a normalization, spelled as a mean, a root and products",
         operators=frozenset({"rsqrt", "sqrt"}), before=_POINTWISE | {"reduction"},
         after=_POINTWISE, needs="reduction"),
    Rule("softmax", "a softmax with the element-wise work around it",
         seed="softmax", before=_POINTWISE, after=_POINTWISE),
    Rule("reduction", "a reduction with its prologue and what is done with its result",
         seed="reduction", before=_POINTWISE, after=_POINTWISE),
    Rule("movement", "gathering, joining or copying, with the element-wise work on the result",
         seed="movement", after=_POINTWISE),
    Rule("elementwise", "a chain of element-wise work", seed="elementwise", before=_POINTWISE,
         after=_POINTWISE),
    Rule("elementwise", "a chain of element-wise work", seed="scale", before=_POINTWISE,
         after=_POINTWISE),
    Rule("single", "no rule takes it in", seed="other"),
    Rule("view", "a view of an input or a weight: no work", seed="view"),
    Rule("boundary", "an input, an output or a constant", seed="boundary"),
)  # fmt: skip
"""In this order: a node belongs to the first rule that takes it."""

NONE = Rule("none", "every node by itself")


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Some nodes as one piece. `cost` is what they cost one by one in `kernels` kernels; `fused_read` and
    `fused_written` are the bytes that it moves fused, in so many `launches`."""

    id: int
    rule: str
    reason: str
    nodes: tuple[int, ...]
    cost: Cost
    kernels: int
    fused_read: int
    fused_written: int
    launches: int = 1

    @property
    def fused_bytes(self) -> int:
        return self.fused_read + self.fused_written

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "id": self.id, "rule": self.rule, "nodes": list(self.nodes), "kernels": self.kernels,
            "bytes": self.cost.bytes, "fused_bytes": self.fused_bytes, "reason": self.reason,
        }  # fmt: skip

    @property
    def arithmetic_intensity(self) -> float | None:
        """All FLOPs per byte that the fused kernel moves; None where it moves nothing."""
        flops = self.cost.flops + self.cost.other_flops
        return flops / self.fused_bytes if self.fused_bytes else None


@dataclass(frozen=True, slots=True)
class Saving:
    """What one rule saves: its subgraphs, and kernels and bytes before and after."""

    rule: str
    subgraphs: int
    nodes: int
    kernels: int
    fused_kernels: int
    bytes: int
    fused_bytes: int


def fused_subgraphs(graph: Graph, rules: tuple[Rule, ...] = RULES) -> tuple[Subgraph, ...]:
    """All nodes of a graph in subgraphs, in the order in which these can run."""
    return subgraphs(graph, list(Grouping(graph, rules, roles_of(graph)).groups()))


def singletons(graph: Graph) -> tuple[Subgraph, ...]:
    """Every node as a subgraph of its own."""
    return subgraphs(graph, [(NONE, (n,)) for n in graph.nodes])


def compiled(graph: Graph, groups: Sequence[Sequence[int]], ran: Graph) -> tuple[Subgraph, ...]:
    """The groups of a compiler as subgraphs, named after the first role of `RANK` that occurs in them;
    every other node (views, what was computed when compiling) is by itself. `ran` has its kernels."""
    grouped = {i for group in groups for i in group}
    rest = [(n.id,) for n in graph.nodes if n.id not in grouped]
    found = []
    for group in (*groups, *rest):
        nodes = tuple(graph.node(i) for i in sorted(group))
        roles = {role_of(n) for n in nodes}
        role = next((r for r in RANK if r in roles), "boundary")
        found.append((Rule(role, "by itself"), nodes))
    parts = subgraphs(graph, found)
    launched = [_launches(ran.node(i) for i in p.nodes) for p in parts]
    said = [f"TorchInductor runs it as {units.plural(n, 'kernel')}" for n in launched]
    return tuple(
        replace(p, launches=n, reason=text if len(p.nodes) > 1 else p.reason)
        for p, n, text in zip(parts, launched, said, strict=True)
    )


def subgraphs(graph: Graph, groups: list[tuple[Rule, tuple[Node, ...]]]) -> tuple[Subgraph, ...]:
    """Groups of nodes with their costs, fused and not, ordered by their last node."""
    kept = frozenset(graph.outputs)
    groups = sorted(groups, key=lambda g: g[1][-1].id)
    return tuple(_subgraph(graph, i, r, n, kept) for i, (r, n) in enumerate(groups, start=1))


def savings(parts: tuple[Subgraph, ...]) -> tuple[Saving, ...]:
    """What fusion saves by rule, the most bytes first."""
    found = []
    for rule in dict.fromkeys(p.rule for p in parts):
        mine = [p for p in parts if p.rule == rule]
        found.append(
            Saving(
                rule,
                len(mine),
                sum(len(p.nodes) for p in mine),
                sum(p.kernels for p in mine),
                sum(p.launches for p in mine),
                sum(p.cost.bytes for p in mine),
                sum(p.fused_bytes for p in mine),
            )
        )
    return tuple(sorted(found, key=lambda s: (s.fused_bytes - s.bytes, s.rule)))


def _subgraph(
    graph: Graph, number: int, rule: Rule, nodes: tuple[Node, ...], kept: frozenset[int]
) -> Subgraph:
    cost, launches = cost_of(nodes), _launches(nodes)
    read, written = _traffic(graph, nodes, kept)
    return Subgraph(
        id=number,
        rule=rule.name,
        reason=rule.reason,
        nodes=tuple(n.id for n in nodes),
        cost=cost,
        kernels=launches,
        fused_read=min(read, cost.read),
        fused_written=min(written, cost.written),
        launches=min(1, launches),
    )


def _launches(nodes: Iterable[Node]) -> int:
    return sum(k.launches for n in nodes for k in n.kernels if k.bytes)


def _traffic(graph: Graph, nodes: tuple[Node, ...], kept: frozenset[int]) -> tuple[int, int]:
    """Bytes that nodes together read from outside and write for the outside, each piece of memory once."""
    members = frozenset(n.id for n in nodes)
    made = {v for n in nodes for v in n.outputs}
    reads: dict[object, dict[int, int]] = {}
    writes: dict[object, int] = {}
    for node in nodes:
        inputs = [graph.value[v] for v in node.inputs]
        moved = sum(k.read for k in node.kernels)
        share = min(1.0, moved / max(1, sum(v.bytes for v in inputs)))
        for value in inputs:
            if value.id not in made and moved:
                reads.setdefault(_memory(value), {})[value.id] = int(value.bytes * share)
        moved = sum(k.written for k in node.kernels)
        for v in node.outputs:
            outside = v in kept or any(u.id not in members for u in graph.users.get(v, ()))
            if outside and moved:
                value = graph.value[v]
                writes[_memory(value)] = max(writes.get(_memory(value), 0), min(value.bytes, moved))
            elif outside and (source := _made_by(graph, v, made)) is not None:
                writes[_memory(source)] = max(writes.get(_memory(source), 0), source.bytes)
    return sum(sum(parts.values()) for parts in reads.values()), sum(writes.values())


def _made_by(graph: Graph, value: int, made: set[int]) -> Value | None:
    """The value whose memory a view shows, if these nodes made it."""
    current = graph.value[value]
    while current.alias_of is not None:
        current = graph.value[current.alias_of]
        node = graph.producer.get(current.id)
        if current.id in made and node is not None and any(k.written for k in node.kernels):
            return current
    return None


def _memory(value: Value) -> object:
    return value.name if value.storage is None else value.storage


# Why fused subgraphs end where they do: what reads their results, and why that is not taken in.


def fusion_barriers(graph: Graph, parts: Sequence[Subgraph]) -> dict[int, str]:
    """Why each subgraph of a partition of the whole graph goes no further, in a few words, by its id."""
    home = {node: part for part in parts for node in part.nodes}
    results = frozenset(graph.outputs)
    return {part.id: _ending(graph, part, home, results) for part in parts}


def _ending(
    graph: Graph, part: Subgraph, home: dict[int, Subgraph], results: frozenset[int]
) -> str:
    made = [v for i in part.nodes for v in graph.node(i).outputs]
    readers = [user for v in made for user in graph.users.get(v, ()) if home[user.id] is not part]
    working = [user for user in readers if user.kind != "output"]
    if not working:
        returned = bool(readers) or any(v in results for v in made)
        return "its result is the model's" if returned else "nothing reads its result"
    after = dict.fromkeys(home[user.id] for user in working)
    if len(after) > 1:
        last = max(working, key=lambda user: user.id)
        return f"its result is read in {len(after)} subgraphs, last by {last.op} #{last.id}"
    (following,) = after
    reader = min(working, key=lambda user: user.id)
    seed = "starts" if following.nodes[0] == reader.id else "is of"
    return f"the next, {reader.op} #{reader.id}, {seed} {_named(following.rule)}"


def _named(rule: str) -> str:
    """A subgraph by its rule: "an attention", "a contraction"."""
    words = "a subgraph of its own" if rule in ("single", "none") else rule
    if words != rule:
        return words
    return f"{'an' if rule[:1] in 'aeiou' else 'a'} {rule}"
