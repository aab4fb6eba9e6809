"""The neighbours of a part of a graph: what is outside of it, as stubs, and the edges to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import Literal

from opgraph.analysis.calls import span
from opgraph.analysis.cost.totals import Cost
from opgraph.analysis.tree import Item, ItemKind, Metric, Tree
from opgraph.record import units
from opgraph.record.graph import Graph, GraphBreak, Node, Parameter, Shape
from opgraph.views.details import branches, looks_only, plumbing
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
    most about 150 boxes. With `most` boxes those are opened that cost most, as long as there are fewer,
    neighbours that cost little are one box, and plumbing is not drawn.
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
    opened = {node for box in root.walk() if box.open for node in box.nodes}
    unseen = plan.hidden & opened
    looking = sum(looks_only(graph.node(n)) for n in unseen)
    return Drawing(
        tree, root, tuple(edges), plan.depth, plan.deepest, (looking, len(unseen) - looking)
    )


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
        for value, producer in _read(graph, plan, node):
            source = plan.place[producer.id]
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


def _read(graph: Graph, plan: Plan, node: Node) -> Iterator[tuple[int, Node]]:
    """The values that a node reads from nodes that are drawn, through those that are plumbing."""
    waiting = dict.fromkeys(node.inputs)
    seen: set[int] = set()
    while waiting:
        value = next(iter(waiting))
        del waiting[value]
        seen.add(value)
        producer = graph.producer.get(value)
        if producer is not None and producer.id in plan.place:
            yield value, producer
        elif producer is not None and producer.id in plan.hidden:
            waiting |= {v: None for v in producer.inputs if v not in seen}


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
    operator where it is one, `body` what is drawn inside it. A run has its `parts`, and the item of the
    first of them.
    """

    item: Item
    name: str
    path: str
    cls: str = ""
    call: int = 0
    count: int = 1
    leaf: Item | None = None
    body: tuple[Drawn, ...] = ()
    parts: tuple[Drawn, ...] = ()

    @property
    def items(self) -> tuple[Item, ...]:
        """The items that it stands for: of a run several."""
        return tuple(part.item for part in self.parts) or (self.item,)

    @property
    def times(self) -> int:
        """How often it is repeated: a run as often as what it is in."""
        return self.item.times // self.parts[0].count if self.parts else self.item.times


def run_of(parts: tuple[Drawn, ...], kind: str) -> Drawn:
    """Neighbours as one box: inputs, or modules and operators."""
    names = [part.name for part in parts]
    modules = sum(1 for part in parts if part.cls)
    others = len(parts) - modules
    counts = [units.plural(modules, "module")] * bool(modules)
    counts += [units.plural(others, "operator")] * bool(others)
    name = ", ".join(names)
    if len(name) > _LISTED:
        name = units.plural(len(parts), kind) if kind == "input" else span(names)
    return Drawn(parts[0].item, name, parts[0].path, " and ".join(counts), parts=parts)


_LISTED = 26
"""Characters that the names in a run have at most."""


def drawn(tree: Tree, item: Item, hidden: Container[int] = ()) -> Drawn | None:
    """What is drawn of an item; None where it only has nodes that no picture shows, or that are `hidden`. A
    module that shows one operator is one box with it, and one that holds nothing but another module is one
    with that."""
    one = item.member
    if one.node:
        node = tree.nodes[one.node - 1]
        name = item.label if one.path else _operator_name(node)
        made = Drawn(one, name, tree.title(one), one.cls, one.call, item.count, one)
        return None if is_hidden(node) or node.id in hidden else made
    body = tuple(d for child in one.children if (d := drawn(tree, child, hidden)) is not None)
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
    the costliest modules are opened, and no others, and nodes that are plumbing are `hidden`."""

    def __init__(self, tree: Tree, depth: int | None = None, most: int | None = None) -> None:
        self.tree = tree
        self.hidden = _unseen(tree.graph) if most is not None else frozenset()
        top = drawn(tree, tree.root, self.hidden)
        self.top = top or Drawn(tree.root, "", tree.root.path, tree.root.cls)
        self.deepest = max(_deepest(self.top, 0), 1)
        self._bodies: dict[Drawn, tuple[Drawn, ...]] | None = None
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

    def body(self, one: Drawn) -> tuple[Drawn, ...]:
        """What is drawn inside, neighbours that cost little as one."""
        return one.body if self._bodies is None else self._bodies.get(one, one.body)

    def _choose(self, most: int, deepest: int) -> int:
        """Open the costliest while there are at most so many boxes, and none that costs little, or far less
        than one beside it for which there is no room; how deep that goes. Where that makes room, neighbours
        that cost little are one box; where even the modules of the root are too many, those neighbours that
        cost least."""
        little = _LITTLE * self._cost(self.top)
        bodies = self._bodies = {self.top: self.top.body}
        while len(bodies[self.top]) > most and self._join(bodies, inf):
            pass
        reached, waiting = 1, [(1, d, self.top) for d in bodies[self.top]]
        closed: dict[Drawn, float] = {}
        """By what is around them, the most that one costs for which there is no room."""
        while waiting:
            level, one, around = max(waiting, key=lambda w: self._cost(w[1]))
            waiting.remove((level, one, around))
            cost, least = self._cost(one), max(little, closed.get(around, 0.0) / 2)
            if not one.body or level >= deepest or cost <= least:
                continue
            tried = {**bodies, one: one.body}
            while (boxes := 1 + sum(len(b) - 1 for b in tried.values())) > most:
                if not (self._join(tried, little) or self._join(tried, cost * _PART, one)):
                    break
            if boxes <= most:
                bodies = self._bodies = tried
                reached = max(reached, level + 1)
                waiting += [(level + 1, d, one) for d in one.body]
            else:
                closed.setdefault(around, cost)
        return reached

    def _cost(self, one: Drawn) -> float:
        return sum(self.tree.total(self.tree.metric, item) for item in one.items)

    def _join(
        self,
        bodies: dict[Drawn, tuple[Drawn, ...]],
        limit: float,
        within: Drawn | None = None,
    ) -> bool:
        """Make one box of the two neighbours (`within` one that is open) that cost least together, if that
        is not above the limit."""
        pairs = [
            (self._cost(a) + self._cost(b), at, one)
            for one, body in bodies.items()
            if within in (None, one)
            for at, (a, b) in enumerate(pairwise(body))
            if self._joins(a) == self._joins(b) != "output" and not {a, b} & bodies.keys()
        ]
        cost, at, one = min(pairs, key=lambda p: p[:2], default=(inf, 0, self.top))
        if not pairs or cost > limit:
            return False
        body = bodies[one]
        parts = tuple(p for d in body[at : at + 2] for p in (d.parts or (d,)))
        joined = run_of(parts, self._joins(parts[0]))
        bodies[one] = (*body[:at], joined, *body[at + 2 :])
        return True

    def kind(self, one: Drawn) -> BoxKind:
        """What kind of box it is."""
        if one.parts:
            first = self.kind(one.parts[0])
            return first if first == "input" else "run"
        kind = None if one.leaf is None else self.tree.nodes[one.leaf.node - 1].kind
        if kind in ("input", "output"):
            return kind
        return "module" if kind is None else "operator"

    def _joins(self, one: Drawn) -> str:
        """What it can be one box with."""
        kind = self.kind(one)
        return kind if kind in ("input", "output") else "run"

    def _fitting(self) -> int:
        """The deepest level that fits a page, at least 1."""
        levels = range(self.deepest, 1, -1)
        return next((d for d in levels if _boxes(self.top, d, 0) <= FITTING_BOXES), 1)

    def _lay(self, one: Drawn, level: int, box: str | None, folds: tuple[int, ...]) -> None:
        """Place what is drawn, and its likes in other repetitions."""
        chosen = 0 < self.depth <= level if self._bodies is None else one not in self._bodies
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
        for child in one.parts or self.body(one):
            self._lay(child, level + 1, inner, folds)

    def _new_id(self, one: Drawn) -> str:
        if one.leaf is not None:
            return f"n{self.tree.nodes[one.leaf.node - 1].id}"
        self._modules += 1
        return f"m{self._modules - 1}"


FITTING_BOXES = 150

_LITTLE, _PART = 0.02, 0.15
"""The share of the whole below which a module is not opened, and neighbours can be one box; and that of a
module below which neighbours in it can, where it could not be opened otherwise."""


def _unseen(graph: Graph) -> frozenset[int]:
    """The nodes that are plumbing."""
    hidden = plumbing(graph, [graph.reads(node) for node in graph.nodes], (), branches(graph))
    return frozenset(node.id for node, unseen in zip(graph.nodes, hidden, strict=True) if unseen)


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
        self._decided = branches(graph)
        self._values = {
            v.name: v for v in reversed(graph.values) if v.kind in ("parameter", "buffer")
        }
        ends = {n.fragment: n.id for n in graph.nodes}
        self._breaks = [(ends[b.fragment], b) for b in graph.breaks if b.fragment in ends]

    def make(self, one: Drawn) -> Box:
        """The box of what is drawn, with all inside it."""
        tree, item, last = self._tree, one.item, (one.parts or (one,))[-1]
        nodes = [n for each in one.items for n in tree.nodes_of(each)]
        node = None if one.leaf is None else tree.nodes[one.leaf.node - 1]
        made = {self._output(part) for part in one.parts if self._plan.kind(one) == "input"}
        shape, dtype = self._output(last) if len(made) < 2 else (None, "")
        known = self._graph.scope.get(item.path)
        box = Box(
            id=self._plan.ids[one],
            kind=self._plan.kind(one),
            name=one.name,
            path=one.path,
            cls=one.cls,
            op=node.op if node else "",
            first=self._id(item.first),
            last=self._id(last.item.last),
            shape=shape,
            dtype=dtype,
            parameters=int(
                sum(tree.each(Metric.PARAMETERS, i) * (i.times // one.times) for i in one.items)
            ),
            all_parameters=int(sum(tree.total(Metric.PARAMETERS, i) for i in one.items)),
            cost=sum((tree.cost_each(i) * (i.times // one.times) for i in one.items), Cost()),
            total=sum((tree.cost(i) for i in one.items), Cost()),
            count=one.count,
            times=one.times,
            turn=one.call or 1,
            turns=self._calls.get(item.path, 1) if one.call else 1,
            operators=sum(not is_hidden(n) for n in nodes),
            doc=known.doc if known else "",
            error=next((n.error for n in nodes if n.error is not None), None),
            items=one.items,
        )
        if node is not None:
            box = self._with_node(box, node)
        if one in self._plan.closed:
            inside = self._breaks_between(box.first, box.last) if node is None else ()
            return replace(box, nodes=tuple(n.id for n in nodes), breaks=inside)
        inner = {n.id for c in self._plan.body(one) for i in c.items for n in tree.nodes_of(i)}
        own = tuple(n.id for n in nodes if n.id not in inner)
        return replace(box, nodes=own, children=tuple(self._children(one)))

    def _children(self, one: Drawn) -> Iterator[Box]:
        before: Drawn | None = None
        for child in self._plan.body(one):
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
        one = (one.parts or (one,))[-1]
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
            decided=self._decided.get(node.id, ""),
            file=node.file,
            line=node.line,
        )

    def _output(self, one: Drawn) -> tuple[Shape | None, str]:
        """The shape and dtype of the first result."""
        if one.leaf is not None:
            node = self._tree.nodes[one.leaf.node - 1]
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


def _reason(at: GraphBreak) -> tuple[str, ...]:
    where = (f"{at.file}:{at.line}",) if at.file else ()
    return (at.reason, *where)


def _parameter_line(parameter: Parameter) -> str:
    name = parameter.name.rpartition(".")[2]
    tied = " (tied)" if parameter.tied else ""
    return f"{name} {units.shape(parameter.shape)}{tied}"
