"""Costs of modules by path, for Python and for comparisons. Views show `analysis.tree`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from opgraph.analysis.cost.totals import Cost, WithCost, cost_of
from opgraph.record.graph import Graph, Node, Scope, Shape

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ModuleCost(WithCost):
    """A module with all that is below it.

    `cost` and `parameters` are those of the whole subtree; `own` is the cost of the nodes that stand
    directly in the module, `nodes` are these. `output` is the shape of its first result. `count` is
    above 1 where equal neighbours are folded into one: then costs are those of all of them together.
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
    count: int = 1

    def walk(self, depth: int | None = None) -> Iterator[ModuleCost]:
        """This module and those below it, in order, down to a depth below the root."""
        yield self
        if depth is None or self.depth < depth:
            for child in self.children:
                yield from child.walk(depth)


def by_module(graph: Graph, depth: int | None = None) -> tuple[ModuleCost, ...]:
    """The modules in order, the root first, down to `depth` levels below the root (all by default)."""
    return tuple(module_tree(graph).walk(depth))


def module_tree(graph: Graph) -> ModuleCost:
    """The root module with the whole tree below it."""
    nodes: dict[str, list[Node]] = {}
    for node in graph.nodes:
        nodes.setdefault(node.scope, []).append(node)
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
        direct = tuple(nodes.get(scope.path, ()))
        own = cost_of(direct)
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
        )

    return make(graph.scope[""], 0)


def runs(items: Iterable[T], together: Callable[[T, T], bool]) -> Iterator[list[T]]:
    """The items in order, neighbours that go together with the first of them in one list."""
    group: list[T] = []
    for item in items:
        if group and not together(group[0], item):
            yield group
            group = []
        group.append(item)
    if group:
        yield group


_NUMBERED = re.compile(r"(.*?)(\d+)")


def _numbered(name: str) -> tuple[str, str] | None:
    """A name that ends in a number, in its two parts: ("layer", "3"), or ("", "3")."""
    found = _NUMBERED.fullmatch(name)
    return (found[1], found[2]) if found else None


def alike(a: ModuleCost, b: ModuleCost) -> bool:
    """Two modules that differ in nothing but the number at the end of their name."""
    x, y = _numbered(a.name), _numbered(b.name)
    return (
        x is not None and y is not None and x[0] == y[0]
        and bool(a.children or a.nodes or b.nodes) and _same(a, b)
    )  # fmt: skip


def _same(a: ModuleCost, b: ModuleCost) -> bool:
    return (
        a.cls == b.cls
        and a.cost == b.cost
        and a.parameters == b.parameters
        and a.output == b.output
        and len(a.children) == len(b.children)
        and [n.op for n in a.nodes] == [n.op for n in b.nodes]
        and all(
            x.name == y.name and _same(x, y) for x, y in zip(a.children, b.children, strict=True)
        )
    )


def merged(group: Sequence[ModuleCost]) -> ModuleCost:
    """Modules that are alike as one, named after the first and the last of them."""
    if len(group) == 1:
        return group[0]
    first, last = group[0], group[-1]
    base = first.path.rpartition(".")[0]
    stem, low = _numbered(first.name) or ("", first.name)
    _, high = _numbered(last.name) or ("", last.name)
    name = f"{stem}[{low}-{high}]"
    return _merged(group, f"{base}.{name}" if base else name, name, len(group))


def _merged(group: Sequence[ModuleCost], path: str, name: str, count: int) -> ModuleCost:
    first = group[0]
    children = tuple(
        _merged(row, f"{path}.{row[0].name}", row[0].name, 1)
        for row in zip(*(m.children for m in group), strict=True)
    )
    return replace(
        first,
        path=path,
        name=name,
        calls=sum(m.calls for m in group),
        parameters=sum(m.parameters for m in group),
        cost=sum((m.cost for m in group), Cost()),
        own=sum((m.own for m in group), Cost()),
        nodes=tuple(n for m in group for n in m.nodes),
        children=children,
        count=count,
    )
