"""Boxes from calls: names, costs, parameters, seams, what is tied to what."""

from __future__ import annotations

from dataclasses import dataclass, replace

from opgraph.analysis.cost.totals import cost_of
from opgraph.record import units
from opgraph.record.graph import Graph, GraphBreak, Node, Parameter, Shape
from opgraph.views.picture.calls import Call
from opgraph.views.picture.model import Box, BoxKind, Edge

# Which box each node is drawn in: where modules are closed, and where one repetition stands for all.

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


SHOWN_PARAMETERS = 6


class Boxes:
    """Makes the boxes of a plan. `parameter_edges` lead from parameters to their operators, where
    parameters are drawn."""

    def __init__(self, graph: Graph, plan: Plan, *, parameters: bool) -> None:
        self.parameter_edges: list[Edge] = []
        self._graph, self._plan = graph, plan
        self._draw_parameters = parameters
        self._parameters = {p.name: p for p in graph.parameters}
        self._first_user: dict[str, int] = {}
        self._users: dict[str, dict[str, None]] = {}  # the boxes that use a parameter, in order
        self._drawn: set[str] = set()
        for node in graph.nodes:
            for name in node.parameters:
                self._first_user.setdefault(name, node.id)
                if node.id in plan.place:
                    self._users.setdefault(name, {})[plan.place[node.id].box] = None
        self._values = {
            v.name: v for v in reversed(graph.values) if v.kind in ("parameter", "buffer")
        }
        ends = {n.fragment: n.id for n in graph.nodes}
        self._breaks = [(ends[b.fragment], b) for b in graph.breaks if b.fragment in ends]

    def make(self, call: Call, times: int = 1) -> Box:
        """The box of a call with all that is drawn inside it."""
        plan = self._plan
        times *= call.count
        nodes = plan.nodes[id(call)]
        single = _single(call)
        first = self._parameters_first_used(single)
        every = self._parameters_first_used(nodes)
        box = Box(
            id=plan.ids[id(call)],
            kind=_kind(call),
            name=_name(call),
            path=call.path,
            cls=call.cls,
            op=call.node.op if call.node else "",
            first=min(n.id for n in single),
            last=max(n.id for n in single),
            parameters=sum(p.numel for p in first if p.kind == "parameter"),
            all_parameters=sum(p.numel for p in every if p.kind == "parameter"),
            cost=cost_of(single),
            total=cost_of(nodes),
            count=call.count,
            times=times,
            turn=call.turn,
            turns=call.turns,
            operators=sum(1 for _ in call.operators()),
            doc=self._graph.scope[call.scope].doc if call.cls or not call.path else "",
            error=next((n.error for n in nodes if n.error is not None), None),
        )
        shape, dtype = self._output(call)
        box = replace(box, shape=shape, dtype=dtype)
        if call.node is not None:
            box = self._with_node(box, call.node)
        if plan.closed(call):
            inside = self._breaks_between(box.first, box.last) if call.node is None else ()
            return replace(box, nodes=tuple(sorted(n.id for n in nodes)), breaks=inside)
        inner = {n.id for c in call.body for n in plan.nodes[id(c)]}
        own = tuple(sorted(n.id for n in nodes if n.id not in inner))
        return replace(box, nodes=own, children=tuple(self._children(call, times)))

    def _children(self, call: Call, times: int) -> list[Box]:
        found: list[Box] = []
        before: Call | None = None
        for child in call.body:
            if before is not None:
                found += self._seams(_last(before).id, _first(child).id)
            box = self.make(child, times)
            if self._draw_parameters and child.node is not None:
                found += self._parameter_boxes(child.node, box)
            found.append(box)
            before = child
        for again in call.members[:1]:
            found += self._seams(_last(call.body[-1]).id, _first(again).id)
        return found

    def _with_node(self, box: Box, node: Node) -> Box:
        here = [self._parameters[name] for name in node.parameters]
        tied = [p for p in here if p.tied or self._first_user[p.name] != node.id]
        return replace(
            box,
            tied=tuple(p.name for p in tied if p.kind == "parameter"),
            arguments=node.arguments,
            file=node.file,
            line=node.line,
        )

    def _parameters_first_used(self, nodes: list[Node]) -> list[Parameter]:
        """The parameters that these nodes use and no earlier node does: so each is counted once."""
        return [
            self._parameters[name]
            for n in nodes
            for name in dict.fromkeys(n.parameters)
            if self._first_user[name] == n.id
        ]

    def _output(self, call: Call) -> tuple[Shape | None, str]:
        """The shape and dtype of the first result."""
        outputs: tuple[int, ...] = ()
        if call.node is not None:
            outputs = call.node.outputs or call.node.inputs[:1] * (call.node.kind == "output")
        elif call.cls:
            outputs = self._graph.scope[call.scope].outputs
        if not outputs:
            outputs = _last(call).outputs
        if not outputs:
            return None, ""
        value = self._graph.value[outputs[0]]
        return value.shape, value.dtype

    def _breaks_between(self, first: int, last: int) -> tuple[GraphBreak, ...]:
        """The graph breaks behind one of the nodes from `first` on and before the node `last`."""
        return tuple(b for end, b in self._breaks if first <= end < last)

    def _seams(self, first: int, last: int) -> list[Box]:
        return [
            Box(f"s{b.fragment}", "seam", "graph break", lines=_reason(b), breaks=(b,))
            for b in self._breaks_between(first, last)
        ]

    def _parameter_boxes(self, node: Node, user: Box) -> list[Box]:
        """Above an operator: one box for the parameters that it alone uses, and one for each of those
        that others use after it, too."""
        here = dict.fromkeys(node.parameters)
        alone = [name for name in here if len(self._users[name]) == 1]
        found = [self._parameter_box(f"p{node.id}", alone, user, [user.id])] if alone else []
        for name in here:
            if name not in alone and name not in self._drawn:
                self._drawn.add(name)
                users = list(self._users[name])
                after = users[users.index(user.id) :]
                box = self._parameter_box(f"p{node.id}_{len(found)}", [name], user, after)
                found.append(replace(box, lines=(*box.lines, f"used in {len(users)} places")))
        return found

    def _parameter_box(self, id_: str, names: list[str], user: Box, users: list[str]) -> Box:
        parameters = [self._parameters[name] for name in names]
        lines = [_parameter_line(p) for p in parameters[:SHOWN_PARAMETERS]]
        if len(parameters) > SHOWN_PARAMETERS:
            lines.append(f"and {len(parameters) - SHOWN_PARAMETERS} more")
        value = self._values[names[0]]
        total = sum(p.bytes for p in parameters)
        self.parameter_edges += [
            Edge(id_, u, value.id, (value.id,), value.shape, value.dtype, total, "parameter")
            for u in users
        ]
        return Box(id_, "parameters", "parameters", user.path, lines=tuple(lines))


def _single(call: Call) -> list[Node]:
    """The nodes of one repetition."""
    nodes = [*call.hidden, *([call.node] if call.node else [])]
    for child in call.body:
        for each in (child, *child.members):
            nodes += _single(each)
    return nodes


def _kind(call: Call) -> BoxKind:
    if call.node is None:
        return "module"
    return call.node.kind if call.node.kind in ("input", "output") else "operator"


def _name(call: Call) -> str:
    if call.node is not None and call.node.kind in ("input", "output"):
        return call.node.name
    return call.name


def _first(call: Call) -> Node:
    return call.node if call.node is not None else _first(call.body[0])


def _last(call: Call) -> Node:
    last = call.members[-1] if call.members else call
    return last.node if last.node is not None else _last(last.body[-1])


def _reason(at: GraphBreak) -> tuple[str, ...]:
    where = (f"{at.file}:{at.line}",) if at.file else ()
    return (at.reason, *where)


def _parameter_line(parameter: Parameter) -> str:
    name = parameter.name.rpartition(".")[2]
    tied = " (tied)" if parameter.tied else ""
    return f"{name} {units.shape(parameter.shape)}{tied}"
