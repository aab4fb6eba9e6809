"""The neighbours of a part of a graph: what is outside of it, as stubs, and the edges to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from opgraph.analysis.calls import span
from opgraph.analysis.tree import Item, ItemKind, Metric, Tree
from opgraph.record import units
from opgraph.record.graph import Graph, GraphBreak, Node, Parameter, Shape
from opgraph.views.picture.model import Box, BoxKind, Drawing, Edge


@dataclass
class Neighbours:
    """Stubs for what a part reads, and for who reads it."""

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
        """The stub of a neighbour: the module that holds it, or itself."""
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
    tree: Tree, *, depth: int | None = None, module: str = "", parameters: bool = False,
    most: int | None = None,
) -> Drawing:  # fmt: skip
    """The drawing of a tree; where it is of some nodes, below a module, their neighbours are stubs.

    Modules at `depth` levels below the root are closed; by default the deepest level that leaves at
    most about 150 boxes. With `most` boxes those are opened that cost most, as long as there are fewer.
    """
    graph = tree.graph
    plan = Plan(tree, depth, most)
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


# Boxes from items of the tree: names, costs, parameters, seams, what is tied to what.


def is_hidden(node: Node) -> bool:
    """Whether no picture shows a node: a constant, or control."""
    return node.kind in ("constant", "control") and node.error is None


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """An item as it is drawn: a fold as its first member.

    `name` and `cls` are of a module, or of several that hold nothing else. `leaf` is the item of the
    operator where it is one, `body` what is drawn inside it.
    """

    item: Item
    name: str
    path: str
    cls: str = ""
    call: int = 0
    count: int = 1
    leaf: Item | None = None
    body: tuple[Drawn, ...] = ()


def drawn(tree: Tree, item: Item) -> Drawn | None:
    """What is drawn of an item; None where it only has nodes that no picture shows. A module that shows
    one operator is one box with it, and one that holds nothing but another module is one with that."""
    one = item.member
    if one.node:
        node = tree.nodes[one.node - 1]
        name = item.label if one.path else _operator_name(node)
        made = Drawn(one, name, tree.title(one), one.cls, one.call, item.count, one)
        return None if is_hidden(node) else made
    body = tuple(d for child in one.children if (d := drawn(tree, child)) is not None)
    if not body:
        return None
    name = item.label
    made = Drawn(one, name, tree.title(item), one.cls, one.call, item.count, None, body)
    only = body[0]
    if len(body) > 1 or one.kind not in (ItemKind.MODULE, ItemKind.GROUP):
        return made
    if one.kind is ItemKind.GROUP:
        if only.count > 1 or not only.cls:
            return made
        last = item.children[-1].children[one.children.index(_above(tree, only.item, one))]
        name = span([only.name, last.label])
        return replace(only, item=one, name=name, count=item.count)
    if only.leaf is not None and only.count == 1:
        named = f"{name}.{only.name}" if only.cls else name
        path = only.path if only.cls else made.path
        return replace(
            made, name=named, path=path, cls=only.cls or one.cls, call=only.call or one.call,
            leaf=only.leaf, body=(),
        )  # fmt: skip
    if only.leaf is None and only.cls and item.count == 1 and len(one.children) == 1:
        return replace(only, name=f"{name}.{only.name}")
    return made


def _above(tree: Tree, item: Item, below: Item) -> Item:
    """The child of an item that holds another item."""
    while (above := tree.parent(item)) is not None and above is not below:
        item = above
    return item


def _operator_name(node: Node) -> str:
    return node.name if node.kind in ("input", "output") else node.op


# Which box each node is drawn in: where modules are closed, and where one repetition stands for all.

Turns = tuple[tuple[int, int], ...]
"""For each fold around a node, from the outside in: which one it is, and the number of the repetition."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator is drawn: box, and node in its place."""

    box: str
    stand_in: Node
    turns: Turns


class Plan:
    """The boxes of a tree whose modules are closed from a level on: their `ids`, the `place` of each
    operator, and what is `closed`. `deepest` is the level at which all would be open. With `most` boxes
    the costliest modules are opened, and no others."""

    def __init__(self, tree: Tree, depth: int | None = None, most: int | None = None) -> None:
        self.tree = tree
        self.top = drawn(tree, tree.root) or Drawn(tree.root, "", tree.root.path, tree.root.cls)
        self.deepest = max(_deepest(self.top, 0), 1)
        self._open: set[Drawn] | None = None
        if most is None:
            self.depth = min(self._fitting() if depth is None else depth, self.deepest)
        else:
            self.depth = self._choose(most, depth or self.deepest)
        self.ids: dict[Drawn, str] = {}
        self.closed: set[Drawn] = set()
        self.place: dict[int, Place] = {}
        self._folds: list[str] = []
        self._modules = 0
        self._lay(self.top, 0, None, ())

    def loop_between(self, source: Place, target: Place) -> str | None:
        """The box whose repetitions an edge connects."""
        for (fold, turn), (other_fold, other_turn) in zip(source.turns, target.turns, strict=False):
            if fold != other_fold:
                return None
            if turn != other_turn:
                return self._folds[fold]
        return None

    def _choose(self, most: int, deepest: int) -> int:
        """Open the costliest while there are at most so many boxes, and none that costs little; how deep
        that goes."""
        tree = self.tree
        little = 0.02 * tree.total(tree.metric, self.top.item)
        self._open = {self.top}
        boxes, reached = len(self.top.body), 1
        waiting = [(1, d) for d in self.top.body]
        while waiting:
            level, one = max(waiting, key=lambda w: tree.total(tree.metric, w[1].item))
            waiting.remove((level, one))
            worth = one.body and tree.total(tree.metric, one.item) > little
            if worth and level < deepest and boxes + len(one.body) - 1 <= most:
                self._open.add(one)
                boxes, reached = boxes + len(one.body) - 1, max(reached, level + 1)
                waiting += [(level + 1, d) for d in one.body]
        return reached

    def _fitting(self) -> int:
        """The deepest level that fits a page, at least 1."""
        levels = range(self.deepest, 1, -1)
        return next((d for d in levels if _boxes(self.top, d, 0) <= FITTING_BOXES), 1)

    def _lay(self, one: Drawn, level: int, box: str | None, folds: tuple[int, ...]) -> None:
        """Place what is drawn, and its likes in other repetitions."""
        chosen = 0 < self.depth <= level if self._open is None else one not in self._open
        if not one.body or (chosen and level > 0):
            self.closed.add(one)
        if box is None:
            box = self.ids[one] = self._new_id(one)
        if one.count > 1:
            self._folds.append(box if one in self.ids else "")
            folds = (*folds, len(self._folds) - 1)
        if one.leaf is not None:
            nodes = self.tree.nodes
            stand_in = nodes[one.leaf.node - 1]
            for leaf in self.tree.alike(one.leaf):
                turns = tuple(zip(folds, (t.member for t in leaf.turns), strict=True))
                self.place[nodes[leaf.node - 1].id] = Place(box, stand_in, turns)
        inner = box if one in self.closed else None
        for child in one.body:
            self._lay(child, level + 1, inner, folds)

    def _new_id(self, one: Drawn) -> str:
        if one.leaf is not None:
            return f"n{self.tree.nodes[one.leaf.node - 1].id}"
        self._modules += 1
        return f"m{self._modules - 1}"


FITTING_BOXES = 150


def _deepest(one: Drawn, level: int) -> int:
    """How many levels of boxes are in each other."""
    return max((_deepest(c, level + 1) for c in one.body), default=level)


def _boxes(one: Drawn, depth: int, level: int) -> int:
    """How many boxes are drawn, modules closed from a level on."""
    if not one.body or 0 < depth <= level:
        return 1
    return sum(_boxes(c, depth, level + 1) for c in one.body)


SHOWN_PARAMETERS = 6


class Boxes:
    """Makes the boxes of a plan. `parameter_edges` lead from parameters to their operators, where
    parameters are drawn."""

    def __init__(self, plan: Plan, *, parameters: bool) -> None:
        self.parameter_edges: list[Edge] = []
        self._plan, self._tree = plan, plan.tree
        self._graph = graph = plan.tree.graph
        self._draw_parameters = parameters
        self._parameters = {p.name: p for p in graph.parameters}
        self._calls = Counter(i.path for i in plan.tree.items if i.call)
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

    def make(self, one: Drawn) -> Box:
        """The box of what is drawn, with all inside it."""
        tree, item = self._tree, one.item
        nodes = tree.nodes_of(item)
        node = None if one.leaf is None else tree.nodes[one.leaf.node - 1]
        shape, dtype = self._output(one, node)
        known = self._graph.scope.get(item.path)
        box = Box(
            id=self._plan.ids[one],
            kind=_kind(node),
            name=one.name,
            path=one.path,
            cls=one.cls,
            op=node.op if node else "",
            first=self._id(item.first),
            last=self._id(item.last),
            shape=shape,
            dtype=dtype,
            parameters=int(tree.each(Metric.PARAMETERS, item)),
            all_parameters=int(tree.total(Metric.PARAMETERS, item)),
            cost=tree.cost_each(item),
            total=tree.cost(item),
            count=one.count,
            times=item.times,
            turn=one.call or 1,
            turns=self._calls.get(item.path, 1) if one.call else 1,
            operators=sum(not is_hidden(n) for n in nodes),
            doc=known.doc if known else "",
            error=next((n.error for n in nodes if n.error is not None), None),
            item=item,
        )
        if node is not None:
            box = self._with_node(box, node)
        if one in self._plan.closed:
            inside = self._breaks_between(box.first, box.last) if node is None else ()
            return replace(box, nodes=tuple(n.id for n in nodes), breaks=inside)
        inner = {n.id for c in one.body for n in tree.nodes_of(c.item)}
        own = tuple(n.id for n in nodes if n.id not in inner)
        return replace(box, nodes=own, children=tuple(self._children(one)))

    def _children(self, one: Drawn) -> Iterator[Box]:
        before: Drawn | None = None
        for child in one.body:
            if before is not None:
                yield from self._seams(self._end(before), self._id(child.item.first))
            box = self.make(child)
            if self._draw_parameters and child.leaf is not None:
                yield from self._parameter_boxes(self._tree.nodes[child.leaf.node - 1], box)
            yield box
            before = child
        if one.count > 1:
            last = self._id(one.item.last)
            yield from self._seams(last, last + 1)

    def _id(self, position: int) -> int:
        return self._tree.nodes[position - 1].id if self._tree.nodes else 0

    def _end(self, one: Drawn) -> int:
        """The last node of all repetitions that follow one another here."""
        item = one.item
        above = self._tree.parent(item) if one.count > 1 else None
        while above is not None and above.kind is not ItemKind.FOLD:
            above = self._tree.parent(above)
        return self._id((above or item).last)

    def _with_node(self, box: Box, node: Node) -> Box:
        here = [self._parameters[name] for name in node.parameters]
        again = () if node.phase == "optimizer" else here  # it updates what all the others share
        tied = [p for p in again if p.tied or self._first_user[p.name] != node.id]
        return replace(
            box,
            tied=tuple(p.name for p in tied if p.kind == "parameter"),
            arguments=node.arguments,
            file=node.file,
            line=node.line,
        )

    def _output(self, one: Drawn, node: Node | None) -> tuple[Shape | None, str]:
        """The shape and dtype of the first result."""
        if node:
            outputs = node.outputs or node.inputs[:1] * (node.kind == "output")
            value = self._graph.value[outputs[0]] if outputs else None
        else:
            value = self._tree.output(one.item)
        return (None, "") if value is None else (value.shape, value.dtype)

    def _breaks_between(self, first: int, last: int) -> tuple[GraphBreak, ...]:
        """The graph breaks from the node `first` to `last`."""
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


def _kind(node: Node | None) -> BoxKind:
    if node is None:
        return "module"
    return node.kind if node.kind in ("input", "output") else "operator"


def _reason(at: GraphBreak) -> tuple[str, ...]:
    where = (f"{at.file}:{at.line}",) if at.file else ()
    return (at.reason, *where)


def _parameter_line(parameter: Parameter) -> str:
    name = parameter.name.rpartition(".")[2]
    tied = " (tied)" if parameter.tied else ""
    return f"{name} {units.shape(parameter.shape)}{tied}"
