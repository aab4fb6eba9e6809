"""Two module trees laid over each other: what is the same, changed, renamed, added, removed.

Children are aligned in order, by dynamic programming over a distance: none between equal modules of one
name, some for another name, more for another class and for what is unlike in structure (operators,
parameters, FLOPs), up to where it is cheaper to call one removed and the other added. So a layer put
between others is one addition, though all names behind it have moved on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from opgraph.analysis.cost.modules import ModuleCost, alike, merged, module_tree, runs
from opgraph.record import units
from opgraph.record.graph import Graph, Shape

Status = Literal["same", "changed", "renamed", "added", "removed"]

_Shapes = dict[str, dict[str, tuple[Shape, str]]]

_GAP = 1.2  # a module that has no counterpart
_NAME = 1.0
_NUMBER = 0.25  # another number for a name: whatever stands behind an insertion gets one
_CHANGED = 0.3
_CLASS = 0.25
_STRUCTURE = 2.8  # so that another name and class want a likeness of 0.7
_SAME_NAME = 2.0  # at most: below two gaps, so that one path is one module whatever became of it


@dataclass(frozen=True)
class Change:
    """A module before and after, with all that is below it.

    `before` is None where it was added, `after` where it was removed. Folded neighbours are one change
    with a `count`, as in `ModuleCost`. `details` say what differs in the module itself (its class,
    parameters, operators, output), not in what is below it.
    """

    before: ModuleCost | None
    after: ModuleCost | None
    children: tuple[Change, ...] = ()
    details: tuple[str, ...] = ()

    @property
    def either(self) -> ModuleCost:
        """The module as it is now, or as it was where it is gone."""
        found = self.after or self.before
        if found is None:
            raise ValueError("a change needs a module")
        return found

    @property
    def renamed(self) -> bool:
        return (
            self.before is not None
            and self.after is not None
            and self.before.name != self.after.name
        )

    @cached_property
    def status(self) -> Status:
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        if self.details or any(c.status != "same" for c in self.children):
            return "changed"
        return "renamed" if self.renamed else "same"

    @property
    def depth(self) -> int:
        return self.either.depth

    @property
    def count(self) -> int:
        return self.either.count

    def walk(self, depth: int | None = None) -> Iterator[Change]:
        """This change and those below it, in order, down to a depth below the root."""
        yield self
        if depth is None or self.depth < depth:
            for child in self.children:
                yield from child.walk(depth)


def align(before: Graph, after: Graph, *, fold: bool = True) -> Change:
    """Lay the module tree of one graph over that of another; the roots belong together. Equal neighbours
    are folded into one change with a count, unless `fold` is false."""
    change = _Aligner(before, after).change()
    return _folded(change) if fold else change


class _Aligner:
    """What an alignment needs to know of every module, gathered once."""

    def __init__(self, before: Graph, after: Graph) -> None:
        self._keys: dict[tuple[object, ...], int] = {}
        self._key: dict[int, int] = {}
        self._operators: dict[int, Counter[str]] = {}
        self._parameters = (_shapes(before), _shapes(after))
        self._trees = (module_tree(before), module_tree(after))
        for tree, parameters in zip(self._trees, self._parameters, strict=True):
            self._gather(tree, parameters)

    def change(self) -> Change:
        return self.pair(*self._trees)

    def _gather(self, module: ModuleCost, parameters: _Shapes) -> None:
        operators = Counter(n.op for n in module.nodes)
        for child in module.children:
            self._gather(child, parameters)
            operators += self._operators[id(child)]
        self._operators[id(module)] = operators
        nodes = tuple((n.op, n.flops, n.other_flops, n.bytes) for n in module.nodes)
        own = (module.cls, module.output, nodes, tuple(parameters.get(module.path, {}).items()))
        below = tuple((c.name, self._key[id(c)]) for c in module.children)
        self._key[id(module)] = self._keys.setdefault((own, below), len(self._keys))

    def same(self, a: ModuleCost, b: ModuleCost) -> bool:
        """Whether nothing differs but, perhaps, their own names."""
        return self._key[id(a)] == self._key[id(b)]

    def pair(self, before: ModuleCost, after: ModuleCost) -> Change:
        if self.same(before, after):
            below = zip(before.children, after.children, strict=True)
            return Change(before, after, tuple(self.pair(a, b) for a, b in below))
        details = tuple(_differences(before, after, *self._parameters))
        if not details and before.own != after.own:
            details = ("the same operators at another cost",)
        return Change(
            before, after, tuple(self._children(before.children, after.children)), details
        )

    def _children(
        self, before: Sequence[ModuleCost], after: Sequence[ModuleCost]
    ) -> Iterator[Change]:
        """The children aligned in order; those that only changed their place are paired by name."""
        pairs = self._aligned(before, after)
        gone = {a.name: a for a, b in pairs if a is not None and b is None}
        moved = {b.name for a, b in pairs if a is None and b is not None and b.name in gone}
        for a, b in pairs:
            if a is not None and b is not None:
                yield self.pair(a, b)
            elif b is not None:
                yield self.pair(gone[b.name], b) if b.name in moved else Change(None, b)
            elif a is not None and a.name not in moved:
                yield Change(a, None)

    def _aligned(
        self, before: Sequence[ModuleCost], after: Sequence[ModuleCost]
    ) -> list[tuple[ModuleCost | None, ModuleCost | None]]:
        """The cheapest alignment of two lists, by dynamic programming from their ends."""
        rows, columns = len(before), len(after)
        match = self._distances(before, after)
        cost = [[0.0] * (columns + 1) for _ in range(rows + 1)]
        step = [[(1, 0)] * (columns + 1) for _ in range(rows + 1)]
        for i in range(rows, -1, -1):
            for j in range(columns, -1, -1):
                ways = []
                if i < rows and j < columns:
                    ways.append((match[i][j] + cost[i + 1][j + 1], (1, 1)))
                if i < rows:
                    ways.append((_GAP + cost[i + 1][j], (1, 0)))
                if j < columns:
                    ways.append((_GAP + cost[i][j + 1], (0, 1)))
                if ways:
                    cost[i][j], step[i][j] = min(ways, key=lambda way: way[0])
        pairs: list[tuple[ModuleCost | None, ModuleCost | None]] = []
        i = j = 0
        while i < rows or j < columns:
            down, right = step[i][j]
            pairs.append((before[i] if down else None, after[j] if right else None))
            i, j = i + down, j + right
        return pairs

    def _distances(
        self, before: Sequence[ModuleCost], after: Sequence[ModuleCost]
    ) -> list[list[float]]:
        """How unlike all pairs are. A name that both lists have belongs to itself alone, unless it is
        a mere number."""
        both = {a.name for a in before} & {b.name for b in after}
        both = {name for name in both if not name.isdigit()}
        return [
            [
                math.inf if a.name != b.name and (a.name in both or b.name in both)
                else self._distance(a, b)
                for b in after
            ]
            for a in before
        ]  # fmt: skip

    def _distance(self, a: ModuleCost, b: ModuleCost) -> float:
        same_name = a.name == b.name
        both_numbers = a.name.isdigit() and b.name.isdigit()
        name = 0.0 if same_name else _NUMBER if both_numbers else _NAME
        if self.same(a, b):
            return name
        like = (
            0.8 * _cosine(self._operators[id(a)], self._operators[id(b)])
            + 0.1 * _share(*sorted((a.parameters, b.parameters)))
            + 0.1 * _share(*sorted((a.flops, b.flops)))
        )
        changed = _CHANGED + (0.0 if a.cls == b.cls else _CLASS) + _STRUCTURE * (1 - like)
        return min(changed, _SAME_NAME) if same_name else changed + name


def _cosine(a: Counter[str], b: Counter[str]) -> float:
    """The likeness of two mixtures of operators, whatever their amounts."""
    if not a or not b:
        return float(not a and not b)
    product = sum(n * b[op] for op, n in a.items())
    return product / math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def _shapes(graph: Graph) -> _Shapes:
    """The shapes of the parameters and buffers that a module owns, by its path and their names."""
    found: _Shapes = {}
    for parameter in graph.parameters:
        name = parameter.name.removeprefix(f"{parameter.scope}.")
        found.setdefault(parameter.scope, {})[name] = (parameter.shape, parameter.dtype)
    return found


def _differences(a: ModuleCost, b: ModuleCost, before: _Shapes, after: _Shapes) -> Iterator[str]:
    """What differs in two modules themselves, not below them, in words; the most telling first."""
    if a.cls != b.cls:
        yield f"{b.cls}, was {a.cls}"
    old, new = before.get(a.path, {}), after.get(b.path, {})
    for name in dict.fromkeys((*old, *new)):
        if name not in new:
            yield f"−{name}"
        elif name not in old:
            yield f"+{name} {_spelled(*new[name])}"
        elif old[name][0] != new[name][0]:
            yield f"{name} {units.shape(new[name][0])}, was {units.shape(old[name][0])}"
        elif old[name][1] != new[name][1]:
            yield f"{name} {new[name][1]}, was {old[name][1]}"
    old_ops, new_ops = (Counter(n.op for n in m.nodes if n.kind == "call") for m in (a, b))
    yield from ("+" + _times(op, n) for op, n in (new_ops - old_ops).items())
    yield from ("−" + _times(op, n) for op, n in (old_ops - new_ops).items())
    if a.output != b.output and a.output is not None and b.output is not None:
        yield f"output {units.shape(b.output)}, was {units.shape(a.output)}"


def _times(op: str, count: int) -> str:
    return f"{op} × {count}" if count > 1 else op


def _spelled(shape: Shape, dtype: str) -> str:
    return f"{units.shape(shape)} {dtype}"


def _folded(change: Change) -> Change:
    """The same with neighbours folded that are alike before and alike after."""
    children = tuple(_folded(_merged(group)) for group in runs(change.children, _alike))
    return replace(change, children=children)


def _alike(one: Change, two: Change) -> bool:
    return (
        one.status == two.status
        and one.renamed == two.renamed
        and one.details == two.details
        and _both(one.before, two.before)
        and _both(one.after, two.after)
    )


def _both(a: ModuleCost | None, b: ModuleCost | None) -> bool:
    if a is None or b is None:
        return a is b
    return alike(a, b)


def _merged(group: Sequence[Change]) -> Change:
    if len(group) == 1:
        return group[0]
    before = [c.before for c in group if c.before is not None]
    after = [c.after for c in group if c.after is not None]
    return _regrouped(group, merged(before) if before else None, merged(after) if after else None)


def _regrouped(
    group: Sequence[Change], before: ModuleCost | None, after: ModuleCost | None
) -> Change:
    """Changes that are alike as one, given the modules they are about, merged."""
    first = group[0]
    children = tuple(
        _regrouped(
            row,
            _counterpart(first.before, before, row[0].before),
            _counterpart(first.after, after, row[0].after),
        )
        for row in zip(*(c.children for c in group), strict=True)
    )
    return Change(before, after, children, first.details)


def _counterpart(
    parent: ModuleCost | None, merged_parent: ModuleCost | None, child: ModuleCost | None
) -> ModuleCost | None:
    """The child of the merged parent that stands where `child` stands in its own."""
    if parent is None or merged_parent is None or child is None:
        return None
    position = next(i for i, other in enumerate(parent.children) if other is child)
    return merged_parent.children[position]
