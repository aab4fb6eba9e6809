"""The neighbours of a part of a graph: what is outside of it, as stubs, and the edges to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from opgraph.analysis.tree import Tree
from opgraph.record.graph import Graph, Node
from opgraph.views.picture.boxes import Boxes, Plan, is_hidden
from opgraph.views.picture.model import Box, Drawing, Edge


@dataclass
class Neighbours:
    """Stubs for what a part reads from outside (`before`) and for who reads its results (`after`)."""

    graph: Graph
    module: str
    before: dict[str, Box] = field(default_factory=dict)
    after: dict[str, Box] = field(default_factory=dict)
    edges: dict[tuple[str, str], Edge] = field(default_factory=dict)

    def around(self, root: Box) -> Box:
        """The root with the stubs before and behind its boxes."""
        children = (*self.before.values(), *root.children, *self.after.values())
        return replace(root, children=children)

    def find(self, plan: Plan, nodes: tuple[Node, ...], nets: dict[tuple[int, int], int]) -> None:
        """Collect the stubs and edges of some nodes. `nets` are the nets of the part, by the node and
        the number of the output that begins them."""
        inside = {n.id for n in nodes}
        for node in nodes:
            place = plan.place.get(node.id)
            if place is None:
                continue
            for value in node.inputs:
                producer = self.graph.producer.get(value)
                if producer is not None and self._outside(producer, inside):
                    stub = self._stub(self.before, "before", producer)
                    self._join(stub.id, place.box, value, value)
            for number, value in enumerate(node.outputs):
                for user in self.graph.users.get(value, ()):
                    if self._outside(user, inside):
                        stub = self._stub(self.after, "after", user)
                        net = nets.setdefault((place.stand_in.id, number), value)
                        self._join(place.box, stub.id, net, value)

    def _outside(self, node: Node, inside: set[int]) -> bool:
        return node.id not in inside and not is_hidden(node)

    def _join(self, source: str, target: str, net: int, value_id: int) -> None:
        value = self.graph.value[value_id]
        known = self.edges.get((source, target))
        if known is None:
            self.edges[source, target] = Edge(
                source, target, net, (value_id,), value.shape, value.dtype, value.bytes
            )
        elif value_id not in known.values:
            self.edges[source, target] = replace(
                known, values=(*known.values, value_id), bytes=known.bytes + value.bytes
            )

    def _stub(self, known: dict[str, Box], side: Literal["before", "after"], node: Node) -> Box:
        """The stub of a neighbour: the module beside the drawn one that holds it, or the node."""
        path = self._sibling(node)
        key = path or f"#{node.id}"
        if key not in known:
            value = next((self.graph.value[v] for v in node.outputs), None)
            known[key] = Box(
                f"{side[0]}{len(known)}",
                "stub",
                path or node.name,
                path or node.scope,
                cls=self.graph.scope[path].cls if path else "",
                op="" if path else node.op,
                first=node.id,
                last=node.id,
                shape=value.shape if value is not None else None,
                dtype=value.dtype if value is not None else "",
            )
        return known[key]

    def _sibling(self, node: Node) -> str:
        """The largest module that holds a node and not the drawn part; "" where only the node itself
        does."""
        if not self.module:
            return ""
        own, parts = self.module.split("."), node.scope.split(".")
        common = 0
        while common < min(len(own), len(parts)) and own[common] == parts[common]:
            common += 1
        return ".".join(parts[: common + 1]) if common < len(parts) and node.scope else ""


# From a tree to a `Drawing`: how deep, and which edges that leaves.


def build(
    tree: Tree, *, depth: int | None = None, module: str = "", parameters: bool = False
) -> Drawing:
    """The drawing of a tree; where it is of some nodes, below a module, their neighbours are stubs.

    Modules at `depth` levels below the root are closed; by default the deepest level that leaves at
    most about 150 boxes.
    """
    graph = tree.graph
    plan = Plan(tree, depth)
    boxes = Boxes(plan, parameters=parameters)
    root = boxes.make(plan.top)
    looped: set[str] = set()
    nets: dict[tuple[int, int], int] = {}
    edges = [*_edges(graph, plan, tree.nodes, nets, looped), *boxes.parameter_edges]
    root = _with_loops(root, looped)
    if tree.nodes is not graph.nodes:
        neighbours = Neighbours(graph, module)
        neighbours.find(plan, tree.nodes, nets)
        root = neighbours.around(root)
        edges += neighbours.edges.values()
    return Drawing(tree, root, tuple(edges), plan.depth, plan.deepest)


def _edges(
    graph: Graph,
    plan: Plan,
    nodes: Iterable[Node],
    nets: dict[tuple[int, int], int],
    looped: set[str],
) -> Iterator[Edge]:
    """The edges between boxes, one for each pair. `nets` gets the nets by the node and the number of
    the output that begins them, `looped` the boxes whose repetitions read each other's results."""
    found: dict[tuple[str, str], dict[int, None]] = {}
    net_of: dict[tuple[str, str], int] = {}
    for node in nodes:
        target = plan.place.get(node.id)
        if target is None:
            continue
        for value in node.inputs:
            producer = graph.producer.get(value)
            source = None if producer is None else plan.place.get(producer.id)
            if source is None or producer is None:
                continue
            again = plan.loop_between(source, target)
            if again is not None:
                looped.add(again)
            elif source.box != target.box:
                output = producer.outputs.index(value)
                net = nets.setdefault((source.stand_in.id, output), value)
                pair = (source.box, target.box)
                found.setdefault(pair, {})[value] = None
                net_of.setdefault(pair, net)
    for pair, values in found.items():
        first = graph.value[next(iter(values))]
        total = sum(graph.value[v].bytes for v in values)
        yield Edge(*pair, net_of[pair], tuple(values), first.shape, first.dtype, total)


def _with_loops(box: Box, looped: set[str]) -> Box:
    children = tuple(_with_loops(c, looped) for c in box.children)
    return replace(box, children=children, looped=box.id in looped)
