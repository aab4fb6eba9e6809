"""The run as a tree of calls: which operators ran in which call of which module, in order.

The module tree says who owns what; a picture needs who called what when. A module called at two
different moments is two calls here, so that whatever a call reads has been made before it, and boxes
never form a cycle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from opgraph.graph import Graph, Node


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
