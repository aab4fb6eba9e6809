"""Boxes from calls: names, costs, parameters, seams, what is tied to what."""

from __future__ import annotations

from dataclasses import replace

from opgraph import units
from opgraph.analysis import cost_of
from opgraph.graph import Graph, GraphBreak, Node, Parameter, Shape
from opgraph.views.drawing.calls import Call
from opgraph.views.drawing.model import Box, BoxKind, Edge
from opgraph.views.drawing.plan import Plan

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
