"""Costs of modules by path, for Python and for comparisons. Views show `analysis.tree`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from opgraph.analysis.cost.totals import Cost, WithCost, cost_of
from opgraph.record.graph import Graph, Node, Scope, Shape


@dataclass(frozen=True, slots=True)
class ModuleCost(WithCost):
    """A module with all that is below it.

    `cost` and `parameters` are those of the whole subtree; `own` is the cost of the nodes that stand
    directly in the module, `nodes` are these. `output` is the shape of its first result.
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

    def walk(self, depth: int | None = None) -> Iterator[ModuleCost]:
        """This module and those below it, in order, down to a depth below the root."""
        yield self
        if depth is None or self.depth < depth:
            for child in self.children:
                yield from child.walk(depth)

    def repeated(self, count: int, path: str) -> ModuleCost:
        """Itself and so many equal ones together, under one path."""
        return replace(
            self, path=path, name=path.rpartition(".")[2], calls=self.calls * count,
            parameters=self.parameters * count, cost=self.cost * count, own=self.own * count,
        )  # fmt: skip


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
