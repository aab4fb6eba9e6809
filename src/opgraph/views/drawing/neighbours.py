"""The neighbours of a part of a graph: what is outside of it, as stubs, and the edges to them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from opgraph.graph import Graph, Node
from opgraph.views.drawing.calls import is_hidden
from opgraph.views.drawing.model import Box, Edge
from opgraph.views.drawing.plan import Plan


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
