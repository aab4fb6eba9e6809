"""The run as a tree of calls: which operators ran in which call of which module, in order.

The module tree says who owns what; a picture needs who called what when. A module called at two
different moments is two calls here, so that whatever a call reads has been made before it, and boxes
never form a cycle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from opgraph.record.graph import Graph, Node


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """An operator, or one call of a module with what ran in it.

    `name` is the last part of `path`, or several parts where modules that hold nothing else were
    joined; `level` is how many modules deep the first of them is (0 is the root). `scope` is the path
    as the graph knows it, also where `path` names several modules. A module with a single operator is
    one call with both `node` and `cls`. `hidden` are nodes that get no box: constants and control.
    `members` are the calls that equal this one and were folded into it, `turn` and `turns` say which
    call of its module this is.
    """

    name: str
    path: str
    scope: str = ""
    cls: str = ""
    level: int = 0
    node: Node | None = None
    body: tuple[Call, ...] = ()
    hidden: tuple[Node, ...] = ()
    members: tuple[Call, ...] = ()
    turn: int = 1
    turns: int = 1

    @property
    def count(self) -> int:
        """How often this ran, as far as it is folded."""
        return 1 + len(self.members)

    def operators(self) -> Iterator[Node]:
        """All operators with a box, in order, those of folded calls behind those they equal."""
        if self.node is not None:
            yield self.node
        for call in (*self.body, *self.members):
            yield from call.operators()

    def walk(self) -> Iterator[Call]:
        """This call and all that are drawn inside it."""
        yield self
        for call in self.body:
            yield from call.walk()


def is_hidden(node: Node) -> bool:
    """Whether a node is plumbing that no picture shows: a constant, or control without an error."""
    return node.kind in ("constant", "control") and node.error is None


def call_tree(graph: Graph, nodes: tuple[Node, ...] | None = None, root: str = "") -> Call:
    """The calls of a graph, or of some of its nodes, below the module `root`."""
    base = 0 if not root else root.count(".") + 1
    top = _Open(root, graph.scope[root].cls)
    stack = [top]
    turns: dict[str, int] = {}
    for node in graph.nodes if nodes is None else nodes:
        parts = node.scope.split(".") if node.scope else []
        depth = base
        while depth < len(parts) and depth - base + 1 < len(stack):
            if stack[depth - base + 1].path != ".".join(parts[: depth + 1]):
                break
            depth += 1
        del stack[depth - base + 1 :]
        for end in range(depth + 1, len(parts) + 1):
            path = ".".join(parts[:end])
            scope = graph.scope[path]
            # A list of modules is never called itself: coming back to it is no second call.
            turns[path] = turns.get(path, 0) + 1 if scope.calls else 1
            opened = _Open(path, scope.cls, turns[path])
            stack[-1].items.append(opened)
            stack.append(opened)
        stack[-1].items.append(node)
    return _closed(top, turns, 0)


class _Open:
    """A call of a module while it is being filled."""

    def __init__(self, path: str, cls: str, turn: int = 1) -> None:
        self.path, self.cls, self.turn = path, cls, turn
        self.items: list[_Open | Node] = []


def _closed(call: _Open, turns: dict[str, int], level: int) -> Call:
    body: list[Call] = []
    hidden: list[Node] = []
    for item in call.items:
        if isinstance(item, _Open):
            inner = _closed(item, turns, level + 1)
            if inner.node is None and not inner.body:
                hidden += inner.hidden
            else:
                body.append(inner)
        elif is_hidden(item):
            hidden.append(item)
        else:
            body.append(Call(item.op, item.scope, item.scope, level=level + 1, node=item))
    name = call.path.rpartition(".")[2]
    made = Call(
        name, call.path, call.path, call.cls, level, None, tuple(body), tuple(hidden),
        turn=call.turn, turns=turns.get(call.path, 1),
    )  # fmt: skip
    if call.path and len(body) == 1 and body[0].node is not None and body[0].count == 1:
        only = body[0]
        joined = f"{name}.{only.name}" if only.cls else name
        return replace(
            made,
            name=joined,
            path=only.path if only.cls else call.path,
            scope=only.scope,
            cls=only.cls or call.cls,
            turn=only.turn if only.cls else made.turn,
            turns=only.turns if only.cls else made.turns,
            node=only.node,
            body=(),
            hidden=(*hidden, *only.hidden),
        )
    return made


def joined(call: Call) -> Call:
    """The same tree where a module that holds nothing but one other module is one with it:
    `layer` and `[0-11]` become `layer.[0-11]`."""
    body = tuple(joined(c) for c in call.body)
    if call.path and len(body) == 1 and body[0].node is None and call.count == 1:
        only = body[0]
        if only.cls:
            return replace(
                only,
                name=f"{call.name}.{only.name}",
                level=call.level,
                hidden=(*call.hidden, *only.hidden),
            )
    return replace(call, body=body)


# Folding: calls that follow each other and are alike in everything but their number are drawn once.

LONGEST_PERIOD = 24


def fold(graph: Graph, call: Call) -> Call:
    """The same calls with repeats folded, the innermost first."""
    return _Folder(graph).fold(call)


class _Folder:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._numbers: dict[object, int] = {}
        self._looks: dict[int, int] = {}
        self._kept: list[Call] = []

    def fold(self, call: Call) -> Call:
        body = [self.fold(c) for c in call.body]
        looks = [self._look(c) for c in body]
        folded: list[Call] = []
        at = 0
        while at < len(body):
            period, count = self._repeat(body, looks, at)
            group = body[at : at + period * count]
            folded.append(_together(group, period, call) if count > 1 else group[0])
            at += period * count
        return replace(call, body=tuple(folded))

    def _repeat(self, body: list[Call], looks: list[int], at: int) -> tuple[int, int]:
        """The period and the number of the longest repetition that starts here; (1, 1) for none."""
        best = (1, 1)
        for period in range(1, min(LONGEST_PERIOD, (len(body) - at) // 2) + 1):
            first = body[at : at + period]
            if not any(c.body for c in first):
                continue
            count = 1
            while looks[at : at + period] == (
                looks[at + period * count : at + period * (count + 1)]
            ) and self._wired_alike(first, body[at + period * count :][:period]):
                count += 1
            if count > 1 and period * count > best[0] * best[1]:
                best = (period, count)
        return best

    def _look(self, call: Call) -> int:
        """A number that is the same for calls that look the same."""
        known = self._looks.get(id(call))
        if known is None:
            known = self._numbers.setdefault(self._description(call), len(self._numbers))
            self._looks[id(call)] = known
            self._kept.append(call)  # an id means something only as long as the object lives
        return known

    def _description(self, call: Call) -> object:
        name = "#" if call.name.lstrip("[").replace("-", "").rstrip("]").isdigit() else call.name
        own = None if call.node is None else self._operator(call.node)
        return (name if call.cls else "", call.cls, own, call.count,
                tuple(self._look(c) for c in call.body))  # fmt: skip

    def _operator(self, node: Node) -> object:
        value = self._graph.value
        before = self._graph.node(node.id - 1).fragment if node.id > 1 else node.fragment
        return (
            node.op, node.kind, node.error, len(node.inputs), node.fragment != before,
            tuple((value[v].shape, value[v].dtype) for v in node.outputs),
            node.flops, node.other_flops, node.bytes,
        )  # fmt: skip

    def _wired_alike(self, first: list[Call], other: list[Call]) -> bool:
        return self._wires(first) == self._wires(other)

    def _wires(self, calls: list[Call]) -> list[tuple[int, int]]:
        nodes = [n for c in calls for n in c.operators()]
        place = {v: (i, k) for i, n in enumerate(nodes) for k, v in enumerate(n.outputs)}
        return [(i, *place[v]) for i, n in enumerate(nodes) for v in n.inputs if v in place]  # type: ignore[misc]


def _together(group: list[Call], period: int, parent: Call) -> Call:
    """The first of some equal calls, standing for all; several calls get a box around them."""
    turns = [group[i : i + period] for i in range(0, len(group), period)]
    if period == 1:
        first = group[0]
        name = _range(group[0].name, group[-1].name)
        base = first.path.rpartition(".")[0]
        path = (f"{base}.{name}" if base else name) if name != first.name else first.path
        return replace(first, name=name, path=path, members=tuple(group[1:]))
    bodies = [
        Call("", parent.path, parent.scope, level=parent.level + 1, body=tuple(turn))
        for turn in turns
    ]
    named = [c for c in group if c.cls]
    return replace(bodies[0], name=_range(named[0].name, named[-1].name), members=tuple(bodies[1:]))


def _range(first: str, last: str) -> str:
    if first == last:
        return first
    return f"[{first}-{last}]" if first.isdigit() and last.isdigit() else f"{first} … {last}"
