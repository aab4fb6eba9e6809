"""Fragments of a broken graph: what each of them costs, which one dominates, and one of them as a graph of
its own."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from opgraph.analysis.cost.totals import Cost, cost_of
from opgraph.record.errors import RenderError
from opgraph.record.graph import Graph, GraphBreak, Node, Scope, Storage, Value
from opgraph.record.kinds import Run
from opgraph.record.profile import ProfileRecord
from opgraph.record.remarks import Remark, no_effect
from opgraph.record.verify import verify


@dataclass(frozen=True, slots=True)
class Fragment:
    """A captured piece of a graph: its number (0 is what Python ran outside of all), how many nodes, what
    they cost, and the break that ended it."""

    number: int
    nodes: int
    cost: Cost
    end: GraphBreak | None = None


def fragments(graph: Graph) -> tuple[Fragment, ...]:
    """The fragments in order, those that were captured; a graph without any has none."""
    ends = {b.fragment: b for b in graph.breaks}
    pieces: dict[int, list[Node]] = {}
    for node in graph.nodes:
        pieces.setdefault(node.fragment, []).append(node)
    return tuple(
        Fragment(number, len(nodes), cost_of(nodes), ends.get(number))
        for number, nodes in sorted(pieces.items())
        if number
    )


def outside(graph: Graph) -> Fragment:
    """What ran in Python, outside of all fragments; inputs and outputs are nothing that runs."""
    nodes = [n for n in graph.nodes if not n.fragment and n.kind in ("call", "constant")]
    return Fragment(0, len(nodes), cost_of(nodes))


def dominant(graph: Graph) -> Fragment | None:
    """The fragment with the most FLOPs (and then bytes, and then nodes), if there are several."""
    found = fragments(graph)
    if len(found) < 2:
        return None
    return max(found, key=lambda f: (f.cost.flops, f.cost.bytes, f.nodes))


def cut(profile: ProfileRecord, which: int | str) -> ProfileRecord:
    """One fragment as a profile of its own (see `select_fragment` and `part_of`)."""
    graph = select_fragment(profile.graph, which)
    if graph is profile.graph or len(graph.nodes) == len(profile.graph.nodes):
        notes = () if which == "all" else (no_effect("fragment", "the graph is one piece"),)
        return replace(profile, model=profile.model.noting(*notes))
    return part_of(profile, graph)


def part_of(profile: ProfileRecord, graph: Graph) -> ProfileRecord:
    """A part of a profile's graph as a profile of its own: what was worked out for the whole, its formulas,
    cache, compiled kernels and measured run, is not that of a part, and what was substituted for its
    target is what stands in it. It runs as the whole does, but without a compiler, whose kernels reach over
    the borders of a part."""
    model, run = profile.model, profile.run
    if run.compiled:
        run = Run.GRAPHS if run.recorded else Run.EAGER
        model = model.noting(Remark("compiled", "a part is as it was traced, and not compiled"))
    ops = Counter(n.op for n in graph.nodes)
    there = (replace(s, count=min(s.count, ops[s.op])) for s in profile.target.substitutions)
    target = replace(profile.target, substitutions=tuple(s for s in there if s.count))
    return replace(profile, graph=graph, model=model, run=run, target=target, formulas=None,
                   cache=None, compiled=None, measured=None)  # fmt: skip


def select_fragment(graph: Graph, which: int | str) -> Graph:
    """One fragment as a graph of its own, by number or as "largest" (the dominant one); "all" is the
    graph as it is. What it reads from elsewhere are its inputs, what others read of it its outputs.

    Raises `RenderError` when there is no such fragment.
    """
    if which == "all":
        return graph
    numbers = [f.number for f in fragments(graph)]
    if which == "largest":
        largest = dominant(graph)
        if largest is None:
            return graph
        number = largest.number
    else:
        try:
            number = int(which)
        except ValueError:
            raise RenderError(
                f"{which!r} is no fragment", hint="a number, 'largest' or 'all'"
            ) from None
    if number not in numbers:
        raise RenderError(
            f"there is no fragment {number}",
            hint=f"the graph has {max(numbers)}" if numbers else
            "only the tracers fx, dynamo and export capture fragments",
        )  # fmt: skip
    return extracted(graph, {n.id for n in graph.nodes if n.fragment == number})


def extracted(graph: Graph, chosen: Collection[int]) -> Graph:
    """Some nodes, by their ids, as a graph of their own. What they read from elsewhere are its inputs, what
    others read of them its outputs."""
    inside = [n for n in graph.nodes if n.id in chosen]
    made = {v for n in inside for v in n.outputs}
    value = graph.value
    coming = tuple(dict.fromkeys(
        v for n in inside for v in n.inputs
        if v not in made and (v in graph.producer or value[v].kind == "input")
    ))  # fmt: skip
    leaving = tuple(dict.fromkeys(
        v for n in inside for v in n.outputs
        if v in graph.outputs or any(u.id not in chosen for u in graph.users.get(v, ()))
    ))  # fmt: skip
    nodes = _renumbered(graph, inside, coming, leaving)
    kept = _with_aliases(graph, {v for n in nodes for v in (*n.inputs, *n.outputs)})
    parameters = {p for n in nodes for p in n.parameters}
    owned = tuple(p for p in graph.parameters if p.name in parameters)
    values = tuple(
        replace(v, kind="input", name=v.name or _origin(graph, v)) if v.id in coming else v
        for v in graph.values if v.id in kept
    )  # fmt: skip
    return verify(
        Graph(
            nodes=nodes,
            values=values,
            scopes=_scopes(graph, {n.scope for n in nodes} | {p.scope for p in owned}, kept),
            parameters=owned,
            storages=_storages(graph, inside, nodes),
            inputs=coming,
            outputs=leaving,
        )
    )


def _origin(graph: Graph, value: Value) -> str:
    return graph.producer[value.id].name


def _renumbered(
    graph: Graph, inside: list[Node], coming: tuple[int, ...], leaving: tuple[int, ...]
) -> tuple[Node, ...]:
    taken = {n.name for n in inside}
    entries: list[Node] = []
    for v in coming:
        base = name = graph.value[v].name or _origin(graph, graph.value[v])
        number = 1
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name)
        entries.append(Node(0, "input", "input", name, target=base, outputs=(v,)))
    exits = Node(0, "output", "output", "output", target="output", inputs=leaving)
    listed = (*entries, *inside, exits)
    moved: dict[int | None, int] = {n.id: i for i, n in enumerate(listed, start=1)}
    return tuple(replace(n, id=i, forward=moved.get(n.forward))
                 for i, n in enumerate(listed, start=1))  # fmt: skip


def _with_aliases(graph: Graph, values: Iterable[int]) -> set[int]:
    kept: set[int] = set()
    for v in values:
        at: int | None = v
        while at is not None and at not in kept:
            kept.add(at)
            at = graph.value[at].alias_of
    return kept


def _scopes(graph: Graph, paths: set[str], kept: set[int]) -> tuple[Scope, ...]:
    wanted = {""}
    for path in paths:
        parts = path.split(".")
        wanted.update(".".join(parts[:i]) for i in range(1, len(parts) + 1))
    return tuple(
        replace(
            s,
            inputs=tuple(v for v in s.inputs if v in kept),
            outputs=tuple(v for v in s.outputs if v in kept),
        )
        for s in graph.scopes
        if s.path in wanted
    )


def _storages(graph: Graph, inside: list[Node], nodes: tuple[Node, ...]) -> tuple[Storage, ...]:
    """The same storages, on the clock of the kernels that are left."""
    ticks: list[int] = []  # positions, in the whole graph, of the kernels that are left
    clock = 0
    chosen = {n.id for n in inside}
    for node in graph.nodes:
        if node.id in chosen:
            ticks.extend(range(clock, clock + len(node.kernels)))
        clock += len(node.kernels)
    first = len(nodes) - 1 - len(inside)
    moved = {n.id: first + i for i, n in enumerate(inside, start=1)}
    return tuple(
        Storage(
            bytes=s.bytes,
            born=bisect_left(ticks, s.born),
            died=None if s.died is None else bisect_left(ticks, s.died),
            node=None if s.node is None else moved.get(s.node),
        )
        for s in graph.storages
    )
