"""Which box each node is drawn in: where modules are closed, and where one repetition stands for all."""

from __future__ import annotations

from dataclasses import dataclass

from opgraph.graph import Graph, Node
from opgraph.views.drawing.calls import Call

Turns = tuple[tuple[int, int], ...]
"""For each folded call around a node, from the outside in: which one it is, and the number of the
repetition."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator is drawn: in which box, and which node stands there for it."""

    box: str
    stand_in: Node
    turns: Turns


class Plan:
    """The boxes of a tree of calls whose modules are closed from a level on.

    `ids` are the ids of boxes by call (by `id()`), `nodes` all nodes at the place of a call, those of
    folded calls among them, `place` the place of each operator.
    """

    def __init__(self, graph: Graph, tree: Call, depth: int) -> None:
        self.graph = graph
        self.depth = depth
        self.ids: dict[int, str] = {}
        self.nodes: dict[int, list[Node]] = {}
        self.place: dict[int, Place] = {}
        self._folds: list[str] = []
        self._modules = 0
        self._lay(tree, [(tree, ())], None)

    def closed(self, call: Call) -> bool:
        """Whether nothing is drawn inside a call."""
        return not call.body or (call.level > 0 and call.level >= self.depth)

    def loop_between(self, source: Place, target: Place) -> str | None:
        """The box that is repeated, where an edge leads from one of its repetitions to another."""
        for (fold, turn), (other_fold, other_turn) in zip(source.turns, target.turns, strict=False):
            if fold != other_fold:
                return None
            if turn != other_turn:
                return self._folds[fold]
        return None

    def _lay(self, call: Call, alike: list[tuple[Call, Turns]], box: str | None) -> list[Node]:
        """Place a call and all that are alike and stand at the same place of other repetitions."""
        if box is None:
            box = self.ids[id(call)] = self._new_id(call)
        if call.members:
            fold = len(self._folds)
            self._folds.append(box if id(call) in self.ids else "")
            alike = [
                (each, (*turns, (fold, turn)))
                for c, turns in alike
                for turn, each in enumerate((c, *c.members))
            ]
        found = [n for c, _ in alike for n in c.hidden]
        if call.node is not None:
            for c, turns in alike:
                assert c.node is not None
                self.place[c.node.id] = Place(box, call.node, turns)
                found.append(c.node)
        inner = box if self.closed(call) else None
        for position, child in enumerate(call.body):
            found += self._lay(child, [(c.body[position], turns) for c, turns in alike], inner)
        self.nodes[id(call)] = found
        return found

    def _new_id(self, call: Call) -> str:
        if call.node is not None:
            return f"n{call.node.id}"
        self._modules += 1
        return f"m{self._modules - 1}"
