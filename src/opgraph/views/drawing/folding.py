"""Folding: calls that follow each other and are alike in everything but their number are drawn once.

Alike means: the same classes and names (but for digits), the same operators with the same shapes and
costs, wired the same way inside. What repeats may be one call (twelve layers) or a sequence of several
(a window block and a shifted one, six times; the body of a loop).
"""

from __future__ import annotations

from dataclasses import replace

from opgraph.graph import Graph, Node
from opgraph.views.drawing.calls import Call

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
