"""Two module trees laid over each other.

What is the same, changed, renamed, added, removed.

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
from difflib import SequenceMatcher
from functools import cached_property
from typing import Literal

from opgraph.analysis.calls import ItemKind, span
from opgraph.analysis.cost.totals import ModuleCost, module_tree
from opgraph.analysis.tree import Tree
from opgraph.record import units
from opgraph.record.graph import Graph, Node, Shape

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

    `before` is None where it was added, `after` where it was removed. Equal neighbours are one change with
    a `count`, whose figures, and those of what is below it, are of all of them. `details` say what differs
    in the module itself (its class, parameters, operators, output), not in what is below it.
    """

    before: ModuleCost | None
    after: ModuleCost | None
    children: tuple[Change, ...] = ()
    details: tuple[str, ...] = ()
    count: int = 1

    @property
    def either(self) -> ModuleCost:
        """The module as it is, or where it is gone was."""
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

    @cached_property
    def outline(self) -> tuple[object, ...]:
        """What became of it and of all below it, whatever the names."""
        below = tuple(c.outline for c in self.children)
        return self.status, self.renamed, self.details, below

    @property
    def seconds(self) -> tuple[float | None, float | None]:
        """The predicted seconds before and after; None without a device, or of what is not there."""
        a, b = self.before, self.after
        return None if a is None else a.seconds, None if b is None else b.seconds

    @property
    def differs(self) -> bool:
        """Whether anything is otherwise: itself, or the time that it takes on its device."""
        a, b = self.seconds
        return self.status != "same" or not (a == b or math.isclose(a or 0.0, b or 0.0))

    @property
    def depth(self) -> int:
        return self.either.depth

    def walk(self, depth: int | None = None) -> Iterator[Change]:
        """This change and those below it, down to a depth.

        What was added or removed is one change.
        """
        yield self
        if self.status not in ("added", "removed") and (depth is None or self.depth < depth):
            for child in self.children:
                yield from child.walk(depth)


def align(
    before: Graph, after: Graph, trees: tuple[ModuleCost, ModuleCost] | None = None
) -> Change:
    """Lay the module tree of one graph over another's (as they are in `trees`, or without times)."""
    known = trees or (module_tree(before), module_tree(after))
    return _Aligner(before, after, known).change()


def by_operator(
    before: Sequence[Node], after: Sequence[Node]
) -> Iterator[tuple[Node | None, Node | None]]:
    """The nodes of two modules in order, matched by operator; None beside one that is gone or new."""
    matcher = SequenceMatcher(None, [n.op for n in before], [n.op for n in after], autojunk=False)
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        if kind == "equal":
            yield from zip(before[i1:i2], after[j1:j2], strict=True)
        else:
            yield from ((a, None) for a in before[i1:i2])
            yield from ((None, b) for b in after[j1:j2])


def folded(change: Change, before: Tree, after: Tree) -> Change:
    """Take neighbours for one change that are in one fold before and after."""
    return _folded(change, (_folds(before), _folds(after)))


class _Aligner:
    """What an alignment needs to know of every module, gathered once."""

    def __init__(self, before: Graph, after: Graph, trees: tuple[ModuleCost, ModuleCost]) -> None:
        self._keys: dict[tuple[object, ...], int] = {}
        self._key: dict[int, int] = {}
        self._operators: dict[int, Counter[str]] = {}
        self._parameters = (_shapes(before), _shapes(after))
        self._trees = trees
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
        """The children in order; those that only moved paired by name."""
        pairs = self._aligned(before, after)
        gone = {a.name: a for a, b in pairs if a is not None and b is None}
        moved = {b.name for a, b in pairs if a is None and b is not None and b.name in gone}
        for a, b in pairs:
            if a is not None and b is not None:
                yield self.pair(a, b)
            elif b is not None:
                yield self.pair(gone[b.name], b) if b.name in moved else _added(b)
            elif a is not None and a.name not in moved:
                yield _removed(a)

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
        """How unlike all pairs are.

        A name that both lists have belongs to itself alone, unless it is a mere number.
        """
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


_Folds = tuple[dict[str, int], dict[str, int]]


def _folds(tree: Tree) -> dict[str, int]:
    """The fold that a module is a member of, by its path."""
    found: dict[str, int] = {}
    for item in tree.items:
        if item.path and item.parent >= 0 and tree.items[item.parent].kind is ItemKind.FOLD:
            found.setdefault(item.path, item.parent)
    return found


def _folded(change: Change, folds: _Folds) -> Change:
    groups: list[list[Change]] = []
    for child in change.children:
        if groups and _alike(groups[-1][0], child, folds):
            groups[-1].append(child)
        else:
            groups.append([child])
    children = (_together([_folded(c, folds) for c in group]) for group in groups)
    return replace(change, children=tuple(children))


def _alike(one: Change, two: Change, folds: _Folds) -> bool:
    return one.outline == two.outline and all(
        (a is None and b is None)
        or (a is not None and b is not None and a.path in known and known[a.path] == known.get(b.path))
        for a, b, known in zip((one.before, one.after), (two.before, two.after), folds, strict=True)
    )  # fmt: skip


def _added(module: ModuleCost) -> Change:
    return Change(None, module, tuple(map(_added, module.children)))


def _removed(module: ModuleCost) -> Change:
    return Change(module, None, tuple(map(_removed, module.children)))


def _together(group: Sequence[Change]) -> Change:
    """A fold of changes that are alike, each folded below."""
    if len(group) == 1:
        return group[0]
    before, after = (
        span([m.path for m in modules if m])
        for modules in ([c.before or c.after for c in group], [c.after or c.before for c in group])
    )
    return replace(_sum(group, before, after), count=len(group))


def _sum(group: Sequence[Change], before: str, after: str) -> Change:
    """Changes that are alike as one, their modules under these paths."""
    first, *others = group
    a, b = (
        one and one.together([m for m in more if m], path)
        for one, more, path in ((first.before, [c.before for c in others], before),
                                (first.after, [c.after for c in others], after))
    )  # fmt: skip
    children = (
        _sum(each, *((m and f"{path}.{m.name}") or "" for m, path in
                     ((each[0].before, before), (each[0].after, after))))
        for each in zip(*(c.children for c in group), strict=True)
    )  # fmt: skip
    return replace(first, before=a, after=b, children=tuple(children))


def _cosine(a: Counter[str], b: Counter[str]) -> float:
    """The likeness of two mixtures of operators, whatever their amounts."""
    if not a or not b:
        return float(not a and not b)
    product = sum(n * b[op] for op, n in a.items())
    return product / math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def _shapes(graph: Graph) -> _Shapes:
    """The shapes of a module's own parameters and buffers, by path."""
    found: _Shapes = {}
    for parameter in graph.parameters:
        name = parameter.name.removeprefix(f"{parameter.scope}.")
        found.setdefault(parameter.scope, {})[name] = (parameter.shape, parameter.dtype)
    return found


def _differences(a: ModuleCost, b: ModuleCost, before: _Shapes, after: _Shapes) -> Iterator[str]:
    """What differs in two modules themselves, the most telling first."""
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
