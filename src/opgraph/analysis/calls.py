"""The items of a tree: calls of modules in order, repeats folded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from math import prod

from opgraph.record.graph import Graph, Node
from opgraph.record.turns import uncollected


class ItemKind(StrEnum):
    """What an item is; a group is one repetition of a pattern."""

    ROOT = "root"
    PHASE = "phase"
    MODULE = "module"
    FOLD = "fold"
    GROUP = "group"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Turn:
    """Where in a fold an item stands.

    In which member (from 0) of how many, and how many nodes and items a member has.
    """

    member: int
    count: int
    nodes: int
    items: int


@dataclass(slots=True, eq=False)
class Item:
    """A node, a call of a module, a phase, a group or a fold.

    Not to be changed once it stands in a `Tree`.

    `first` and `last` are the numbers of the nodes beneath it, 1-based and inclusive: their ids where
    the tree is of a whole graph. `node` is the number of the node that it is, or 0. A module that
    consists of one node is that node, under the module's `label`, `path` and `cls`. `call` says which
    call of its module it is, from 1, or 0 where the module is called once. The `children` of a fold are
    its `count` members, each whole; `times` is the product of the counts of the folds around the item,
    which are its `turns`. `id` is its position in `Tree.items`, `parent` that of the item above it (-1
    for the root), and `level` says how many items are above it, folds not counted. Items with one `key`
    are equal but for their names.
    """

    kind: ItemKind
    first: int
    last: int
    label: str
    path: str = ""
    cls: str = ""
    call: int = 0
    node: int = 0
    count: int = 1
    times: int = 1
    level: int = 0
    id: int = -1
    parent: int = -1
    children: Sequence[Item] = field(default=(), repr=False)
    turns: tuple[Turn, ...] = field(default=(), repr=False)
    key: int = field(default=0, repr=False)

    @property
    def member(self) -> Item:
        """The first member of a fold, or the item itself."""
        return self.children[0] if self.kind is ItemKind.FOLD else self

    def walk(self) -> Iterator[Item]:
        """This item and all beneath it, in order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def shown(self) -> Iterator[Item]:
        """This item and all beneath, of folds the first member."""
        yield self
        for child in self.children[:1] if self.kind is ItemKind.FOLD else self.children:
            yield from child.shown()


def items_of(
    graph: Graph,
    nodes: Sequence[Node],
    root: str = "",
    mark: Callable[[Node], object] | None = None,
    *,
    fold: bool = True,
) -> tuple[Item, ...]:
    """The items of some nodes below `root`, parents first."""
    items: list[Item] = []
    with uncollected():
        top = _grow_separating_calls(graph, nodes, root)
        _number_calls(top)
        _merge_single(top)
        if fold:
            _Folder(graph, nodes, mark).fold(top)
        _index(top, items, -1, 0, ())
    return tuple(items)


# The calls of modules, in order of execution.

DEEPEST = 40
"""Modules around a node that are looked at; what is nested deeper stands in the last of these."""

_PHASE = "\0"

_Cuts = dict[str, set[int]]
"""By module, the nodes at which it is called again at once, so that the scopes alone do not show it."""


def _grow_separating_calls(graph: Graph, nodes: Sequence[Node], root: str) -> Item:
    cuts: _Cuts = {}
    top = _grow(graph, nodes, root, cuts)
    for _ in range(8):
        if not _find_cuts(graph, nodes, top, cuts):
            break
        top = _grow(graph, nodes, root, cuts)
    return top


def _grow(graph: Graph, nodes: Sequence[Node], root: str, cuts: _Cuts) -> Item:
    cls = graph.scope[root].cls if root in graph.scope else ""
    top = Item(ItemKind.ROOT, 1, len(nodes), root, root, cls)
    inside: list[Item] = []
    top.children = inside
    phased = len({n.phase for n in nodes}) > 1
    chains: dict[tuple[str, str], list[str]] = {}
    keys: list[str] = []
    stack = [top]
    lists = [inside]
    for i, node in enumerate(nodes, start=1):
        # What is returned stands behind the last phase, and is in none.
        place = (node.phase if phased and node.kind != "output" else "", node.scope)
        chain = chains.get(place)
        if chain is None:
            chain = _called(graph, node.scope, root)
            chain = chains[place] = [_PHASE + node.phase, *chain] if place[0] else chain
        if chain is not keys or cuts:
            depth = 0
            for key, open_key in zip(chain, keys, strict=False):
                if key != open_key or (key in cuts and i in cuts[key]):
                    break
                depth += 1
            for done in stack[depth + 1 :]:
                done.last = i - 1
            del stack[depth + 1 :], lists[depth + 1 :]
            for key, above in zip(chain[depth:], ["", *chain][depth:], strict=False):
                item = _branch(graph, key, above or root, i)
                lists[-1].append(item)
                item.children = inside = []
                stack.append(item)
                lists.append(inside)
            keys = chain
            inside = lists[-1]
        inside.append(Item(ItemKind.NODE, i, i, _short_name(node), "", "", 0, i))
    for done in stack:
        done.last = len(nodes)
    return top


def _called(graph: Graph, scope: str, root: str) -> list[str]:
    """The paths down to a scope, without mere holders (module lists)."""
    found: list[str] = []
    end = len(root)
    while end < len(scope) and len(found) < DEEPEST:
        end = scope.find(".", end + 1)
        end = len(scope) if end < 0 else end
        path = scope[:end]
        known = graph.scope.get(path)
        if path == scope or known is None or known.calls > 0:
            found.append(path)
    return found


def _branch(graph: Graph, key: str, above: str, at: int) -> Item:
    if key.startswith(_PHASE):
        return Item(ItemKind.PHASE, at, at, key[1:])
    label = key[len(above) + 1 :] if above and key.startswith(f"{above}.") else key
    known = graph.scope.get(key)
    return Item(ItemKind.MODULE, at, at, label, key, known.cls if known else "")


def _short_name(node: Node) -> str:
    """The name without the path of the module that it stands in."""
    return (node.name.removeprefix(f"{node.scope}.") if node.scope else node.name) or node.op


def _find_cuts(graph: Graph, nodes: Sequence[Node], top: Item, cuts: _Cuts) -> bool:
    """Look for calls that run into one another; true when new ones were found. The backward of a module
    is no call of it, nor is what updates its weights."""
    runs: dict[str, int] = {}
    called = [c for c in top.children if c.label in _CALLING] if _phased(top) else [top]
    for part in called:
        for item in _modules(part):
            runs[item.path] = runs.get(item.path, 0) + 1
    several = {p for p, run in runs.items() if p in graph.scope and graph.scope[p].calls > run}
    found = [_cut(graph, nodes, part, runs, cuts) for part in called if several]
    return any(found)


_CALLING = ("forward", "recompute")
"""The phases in which modules are called."""


def _phased(top: Item) -> bool:
    return any(c.kind is ItemKind.PHASE for c in top.children)


def _modules(item: Item) -> Iterator[Item]:
    if item.kind is ItemKind.MODULE:
        yield item
    for child in item.children:
        if not child.node:
            yield from _modules(child)


def _cut(
    graph: Graph, nodes: Sequence[Node], item: Item, runs: dict[str, int], cuts: _Cuts
) -> bool:
    if item.kind is ItemKind.MODULE and item.path in graph.scope:
        calls, rest = divmod(graph.scope[item.path].calls, runs[item.path])
        size = item.last - item.first + 1
        if calls > 1 and not rest and not size % calls:
            length = size // calls
            part = [(n.op, n.scope) for n in nodes[item.first - 1 : item.last]]
            if part[length:] == part[:-length]:
                starts = range(item.first + length, item.last + 1, length)
                cuts.setdefault(item.path, set()).update(starts)
                return True
    found = [_cut(graph, nodes, c, runs, cuts) for c in item.children if not c.node]
    return any(found)


def _number_calls(top: Item) -> None:
    """Number the calls of modules; a backward is none."""
    calls: dict[tuple[str, str], list[Item]] = {}
    phases = [c for c in top.children if c.kind is ItemKind.PHASE]
    for above in phases or [top]:
        for item in _modules(above):
            calls.setdefault((above.label, item.path), []).append(item)
    for same in calls.values():
        if len(same) > 1:
            for number, item in enumerate(same, start=1):
                item.call = number


def _merge_single(item: Item) -> None:
    """Let a module of one node be that node, under its name."""
    children = list(item.children)
    item.children = children
    for i, child in enumerate(children):
        if child.node:
            continue
        _merge_single(child)
        only = child.children[0]
        if child.kind is ItemKind.MODULE and len(child.children) == 1 and only.node:
            only.label = f"{child.label}.{only.label}" if only.path else child.label
            only.path = only.path or child.path
            only.cls = only.cls or child.cls
            only.call = only.call or child.call
            children[i] = only


def _index(item: Item, items: list[Item], parent: int, level: int, turns: tuple[Turn, ...]) -> None:
    item.id, item.parent, item.level, item.turns = len(items), parent, level, turns
    item.times = prod(turn.count for turn in turns)
    items.append(item)
    if item.kind is not ItemKind.FOLD:
        level += 1
        for child in item.children:
            if child.node:  # most items: without a call, and with what stands for all leaves here
                child.id, child.parent, child.level = len(items), item.id, level
                child.turns, child.times = turns, item.times
                items.append(child)
            else:
                _index(child, items, item.id, level, turns)
        return
    nodes = (item.last - item.first + 1) // item.count
    size = sum(1 for _ in item.children[0].walk())
    for number, child in enumerate(item.children):
        _index(child, items, item.id, level, (*turns, Turn(number, item.count, nodes, size)))


# Repeats: children of one item that are equal and follow one another are one fold. A pattern of several
# children can repeat, too (five local layers and a global one). What stands side by side (the projections
# of an attention) is no repeat, unless there are many of them (experts).

LONGEST_PATTERN = 8
SIDE_BY_SIDE = 4
"""Modules that stand side by side from which on they are a repeat."""

_Edges = list[tuple[int, int]]


class _Folder:
    def __init__(
        self, graph: Graph, nodes: Sequence[Node], mark: Callable[[Node], object] | None
    ) -> None:
        self._graph, self._nodes, self._mark = graph, nodes, mark
        self._keys: dict[object, int] = {}
        self._kernels: dict[int, int] = {}
        self._repeats: dict[int, list[tuple[int, int]]] = {}
        self._seams = {
            i for i, (a, b) in enumerate(pairwise(nodes), start=2) if a.fragment != b.fragment
        }
        producer: dict[int, int] = {}
        for i, node in enumerate(nodes, start=1):
            for v in node.outputs:
                producer.setdefault(v, i)
        self._sources = [(), *(_sources(producer, node, i) for i, node in enumerate(nodes, 1))]

    def fold(self, top: Item) -> None:
        self._describe(top)
        self._fold_children(top)

    def _describe(self, item: Item) -> _Edges:
        """Give an item and all beneath it their keys. Returns the edges that lead into it from outside: the
        node that reads, and the one that is read."""
        edges: _Edges = []
        for child in item.children:
            if at := child.node:
                child.key = self._key_of_node(child)
                for source in self._sources[at]:
                    edges.append((at, source))
            else:
                edges += self._describe(child)
        first = item.first
        wires = tuple([(at - first, at - s if s >= first else -1) for at, s in edges])
        seams = tuple([c.first - first for c in item.children[1:] if c.first in self._seams])
        below = tuple([c.key for c in item.children])
        item.key = self._key((item.kind, item.cls, below, wires, seams))
        return [e for e in edges if e[1] < first]

    def _key_of_node(self, item: Item) -> int:
        node, value, known = self._nodes[item.node - 1], self._graph.value, self._kernels
        description: list[object] = [node.op, node.kind, item.cls, node.arguments, node.error]
        for v in node.outputs:
            description += (value[v].dtype, value[v].shape)
        for kernel in node.kernels:  # the same kernel in many layers is one object, as a rule
            number = known.get(id(kernel))
            if number is None:
                number = known[id(kernel)] = self._key(kernel)
            description.append(number)
        if self._mark:
            description.append(self._mark(node))
        return self._key(tuple(description))

    def _key(self, description: object) -> int:
        """A number that is the same for equal descriptions."""
        return self._keys.setdefault(description, len(self._keys) + 1)

    def _fold_children(self, item: Item) -> None:
        children = item.children
        repeats = self._repeats.get(item.key)
        if repeats is None:  # equal items have equal repeats
            repeats = self._repeats[item.key] = list(self._find_repeats(children))
        folded: list[Item] = []
        at = 0
        for size, times in repeats:
            part = children[at : at + size * times]
            at += size * times
            if times == 1:
                folded.append(part[0])
                continue
            key = part[0].key
            if size > 1:
                below = tuple([c.key for c in part[:size]])
                key = self._key((ItemKind.GROUP, below, self._wires(part[:size])))
            folded.append(_fold_of(part, size, key))
        item.children = folded
        for child in folded:
            # The members of a fold are not looked at as one list again.
            for branch in child.children if child.kind is ItemKind.FOLD else (child,):
                if not branch.node:
                    self._fold_children(branch)

    def _find_repeats(self, children: Sequence[Item]) -> Iterator[tuple[int, int]]:
        """The patterns of children in order: length, and how often."""
        keys = [c.key for c in children]
        count = len(keys)
        if len(set(keys)) == count:
            yield from [(1, 1)] * count
            return
        sizes = range(1, min(LONGEST_PATTERN, count // 2) + 1)
        equal = {size: _runs(keys, size) for size in sizes}
        chained: dict[tuple[int, int], int] = {}
        at = 0
        while at < count:
            best = (1, 1)
            for size in sizes:
                times = 1 + equal[size][at] // size
                if times < 2 or times * size <= best[0] * best[1]:
                    continue
                if times >= self._needed(children, at, size, times, chained):
                    best = (size, times)
            if best[0] > 1:
                best = self._wired_alike(children, at, *best, chained)
            size, times = best
            if size > 1:
                turns = range(at, at + min(equal[size][at] - size * (times - 1), size - 1) + 1)
                start = min(turns, key=lambda i: self._entries(children[i + size : i + 2 * size]))
                if start > at and self._wired_alike(children, start, *best, chained) == best:
                    yield from [(1, 1)] * (start - at)
                    at = start
            yield best
            at += best[0] * best[1]

    def _wired_alike(
        self, children: Sequence[Item], at: int, size: int, times: int,
        chained: dict[tuple[int, int], int],
    ) -> tuple[int, int]:  # fmt: skip
        """A repeat as far as its members are wired alike, too."""
        wires = self._wires(children[at : at + size])
        for turn in range(1, times):
            start = at + turn * size
            if self._wires(children[start : start + size]) != wires:
                enough = turn > 1 and turn >= self._needed(children, at, size, turn, chained)
                return (size, turn) if enough else (1, 1)
        return size, times

    def _wires(self, part: Sequence[Item]) -> tuple[tuple[int, int], ...]:
        """The edges into the nodes of some items: the node, and how far behind it what it reads was made
        (-1 for whatever was made before them)."""
        first, sources = part[0].first, self._sources
        return tuple([
            (i - first, i - s if s >= first else -1)
            for i in range(first, part[-1].last + 1) for s in sources[i]
        ])  # fmt: skip

    def _entries(self, part: Sequence[Item]) -> int:
        """How many nodes before some items these read: the fewest where a repetition begins."""
        first = part[0].first
        read = (s for i in range(first, part[-1].last + 1) for s in self._sources[i])
        return len({s for s in read if s < first})

    def _needed(
        self, children: Sequence[Item], at: int, size: int, times: int,
        chained: dict[tuple[int, int], int],
    ) -> float:  # fmt: skip
        """How often a pattern must repeat to be worth a fold."""
        modules = any(not c.node for c in children[at : at + size])
        last, known = at + (times - 1) * size, at
        while known <= last and (size, known) not in chained:
            known += size
        for start in range(known - size, at - 1, -size):
            after = start + size
            links = start < last and self._reads(
                children[after].first, children[after + size - 1].last, children[start].first
            )
            chained[size, start] = 1 + chained[size, after] if links else 0
        if chained[size, at] < times - 1:
            return SIDE_BY_SIDE if modules else float("inf")
        return 2 if modules and size == 1 else 3

    def _reads(self, first: int, last: int, before: int) -> bool:
        """Whether an interval reads what was made since `before`."""
        sources = self._sources
        return any(before <= s < first for i in range(first, last + 1) for s in sources[i])


def _sources(producer: Mapping[int, int], node: Node, at: int) -> Sequence[int]:
    """The nodes that make what a node reads, each once."""
    made = [s for v in node.inputs if (s := producer.get(v, at)) < at]
    return made if len(made) < 2 else list(dict.fromkeys(made))


def _runs(keys: Sequence[int], size: int) -> list[int]:
    """How many keys from each position equal those `size` further on."""
    runs = [0] * (len(keys) + 1)
    for i in range(len(keys) - size - 1, -1, -1):
        if keys[i] == keys[i + size]:
            runs[i] = runs[i + 1] + 1
    return runs


def _fold_of(part: Sequence[Item], size: int, key: int) -> Item:
    """The fold of equal items, or of repetitions of a pattern."""
    members = list(part)
    first, cls = part[0], part[0].cls
    if size > 1:
        members = [_group_of(part[i : i + size], key) for i in range(0, len(part), size)]
        cls = " · ".join(dict.fromkeys(c.cls or c.label for c in part[:size]))
    label = span([m.label for m in members])
    return Item(
        ItemKind.FOLD, first.first, part[-1].last, label, members[0].path, cls,
        count=len(members), children=members, key=key,
    )  # fmt: skip


def _group_of(part: Sequence[Item], key: int) -> Item:
    label = span([child.label for child in part])
    return Item(ItemKind.GROUP, part[0].first, part[-1].last, label, children=list(part), key=key)


# Names of repeats.

_NUMBER = re.compile(r"(\[\d+-\d+\]|\d+)")
_RANGE = re.compile(r"\[?(\d+)(?:-(\d+)\])?")


def span(labels: Sequence[str]) -> str:
    """One label for several: `layer.[0-11]` for `layer.0` to `layer.11`."""
    first, second, last = labels[0], labels[1], labels[-1]
    if first == last:
        return first
    parts = _ranged(_parts(first), _parts(second), _parts(last))
    return "".join(parts) if parts else f"{first} … {last}"


def with_ranges(path: str, ends: Iterable[tuple[str, str]]) -> str:
    """A path with the numbers that run over repeats as ranges, and names that are others in each as
    the first and the last of them; `ends` are, for each fold around it, the paths at the same place of its
    second and its last member."""
    first = _parts(path)
    parts = list(first)
    until: dict[int, str] = {}
    for second, last in ends:
        ranged = _ranged(first, _parts(second), _parts(last))
        for i, name in enumerate(ranged or ()):
            if name != first[i]:
                parts[i] = name
        if ranged is None:
            pairs = enumerate(zip(path.split("."), last.split("."), strict=False))
            until |= {i: b for i, (a, b) in pairs if a != b}
    names = "".join(parts).split(".")
    return ".".join(f"{name} … {until[i]}" if i in until else name for i, name in enumerate(names))


def _parts(label: str) -> list[str]:
    """A label cut at its numbers, which are every other part."""
    return _NUMBER.split(label)


def _ranged(first: list[str], second: list[str], last: list[str]) -> list[str] | None:
    """The parts of a name with the numbers that run as ranges, with their step where there is one
    (`[0-30:6]` is every sixth); None where names differ in more than their numbers."""
    if not len(first) == len(second) == len(last) or first[::2] != last[::2]:
        return None
    found = list(first)
    for i in range(1, len(first), 2):
        if first[i] != last[i]:
            a, b, c = (_RANGE.fullmatch(parts[i]) for parts in (first, second, last))
            if not (a and b and c):
                return None
            if int(a[1]) > int(c[1]):  # a backward runs the last one first
                step, low, high = int(a[1]) - int(b[2] or b[1]), c[1], a[2] or a[1]
            else:
                step, low, high = int(b[1]) - int(a[2] or a[1]), a[1], c[2] or c[1]
            found[i] = f"[{low}-{high}{f':{step}' if step > 1 else ''}]"
    return found
