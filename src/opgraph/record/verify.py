"""What must hold of every graph, whoever made it: tracers are checked with this, and so are files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from opgraph.record.graph import Graph
from opgraph.record.identity import identity


class InvariantError(ValueError):
    """A graph that contradicts itself."""


def verify(graph: Graph) -> Graph:
    """Return the graph, or raise `InvariantError` for the first fault."""
    for problem in problems(graph):
        raise InvariantError(problem)
    return graph


def problems(graph: Graph) -> Iterator[str]:
    """Everything that is wrong with a graph, a sentence each."""
    yield from _ids(graph)
    yield from _order(graph)
    yield from _names(graph)
    yield from _memory(graph)


def _ids(graph: Graph) -> Iterator[str]:
    if len(graph.value) != len(graph.values):
        yield "two values share an id"
    for position, node in enumerate(graph.nodes, start=1):
        if node.id != position:
            yield f"node {position} has the id {node.id}"
    known = graph.value.keys()
    for node in graph.nodes:
        for value in chain(node.inputs, node.outputs):
            if value not in known:
                yield f"node {node.id} names the value {value}, which does not exist"
    for scope in graph.scopes:
        for value in chain(scope.inputs, scope.outputs):
            if value not in graph.value:
                yield f"module {scope.path!r} names the value {value}, which does not exist"
    for value in chain(graph.inputs, graph.outputs):
        if value not in graph.value:
            yield f"the graph names the value {value}, which does not exist"


def _order(graph: Graph) -> Iterator[str]:
    """Values are made once, before they are read; aliases point backwards."""
    made: set[int] = set()
    produced = set(chain.from_iterable(n.outputs for n in graph.nodes))
    for node in graph.nodes:
        for value in node.inputs:
            if value in produced and value not in made:
                yield f"node {node.id} reads the value {value} before it is made"
        for value in node.outputs:
            if value in made:
                yield f"the value {value} is made twice, the second time by node {node.id}"
            made.add(value)
    for v in graph.values:
        if v.alias_of is not None and (v.alias_of >= v.id or v.alias_of not in graph.value):
            yield f"the value {v.id} is an alias of {v.alias_of}, which is not before it"
        if not 0 <= v.bytes <= _MOST:
            yield f"the value {v.id} has a size that is negative or out of range"


def _names(graph: Graph) -> Iterator[str]:
    if len(graph.scope) != len(graph.scopes):
        yield "two modules share a path"
    if "" not in graph.scope:
        yield "there is no root module"
    parameters = {p.name for p in graph.parameters}
    if len(parameters) != len(graph.parameters):
        yield "two parameters share a name"
    for scope in graph.scopes:
        if scope.path and scope.path.rpartition(".")[0] not in graph.scope:
            yield f"the module {scope.path!r} has no parent"
    for parameter in graph.parameters:
        if not (0 <= parameter.numel <= _MOST and 0 <= parameter.bytes <= _MOST):
            yield f"the parameter {parameter.name!r} has a size that is negative or out of range"
        if parameter.scope not in graph.scope:
            yield f"the parameter {parameter.name!r} belongs to no module"
    names: set[str] = set()
    for node in graph.nodes:
        if node.name in names:
            yield f"two nodes are called {node.name!r}"
        names.add(node.name)
        if node.scope not in graph.scope:
            yield f"node {node.id} is in the module {node.scope!r}, which does not exist"
        if node.forward is not None and not 1 <= node.forward < node.id:
            yield f"node {node.id} is the gradient of node {node.forward}, which is not before it"
        for name in node.parameters:
            if name not in parameters:
                yield f"node {node.id} uses the parameter {name!r}, which does not exist"


def _memory(graph: Graph) -> Iterator[str]:
    kernels = sum(len(n.kernels) for n in graph.nodes)
    for index, storage in enumerate(graph.storages):
        last = kernels if storage.died is None else storage.died
        if not 0 <= storage.bytes <= _MOST:
            yield f"the storage {index} has a size that is negative or out of range"
        if not 0 <= storage.born <= last <= kernels:
            yield f"the storage {index} lives from kernel {storage.born} to {storage.died}"
        if storage.node is not None and not 1 <= storage.node <= len(graph.nodes):
            yield f"the storage {index} was made by node {storage.node}, which does not exist"
    for v in graph.values:
        if v.storage is not None and not 0 <= v.storage < len(graph.storages):
            yield f"the value {v.id} is in the storage {v.storage}, which does not exist"
    # Nodes share most of their kernels: each is looked at once.
    each = {identity(kernel): (node, kernel) for node in graph.nodes for kernel in node.kernels}
    for node, kernel in each.values():
        amounts = (kernel.flops, kernel.other_flops, kernel.read, kernel.written, kernel.launches)
        if not 0 <= kernel.share <= 1:
            yield f"a kernel of node {node.id} is {kernel.share} of one"
        if not 0 <= min(amounts) <= max(amounts) <= _MOST:
            yield f"a kernel of node {node.id} has a cost that is negative or out of range"


_MOST = 10**24
"""FLOPs, bytes or elements: no graph has more."""
