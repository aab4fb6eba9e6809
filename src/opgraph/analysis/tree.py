"""The tree of a run, folded once: what the table, the explorer, the picture, the page and the full-screen
program show.

Its leaves are nodes; its branches are *calls* of modules (a module called twice stands twice), so that
every branch is one interval of the order of execution, and every sum over it a difference of running sums.
Repeats are folded: the members of a fold equal each other in structure, operators, kernels and wiring, so
whatever stands inside one of them stands at the same place of all. An item has one set of figures: what one
repetition takes (`each`), how often it stands (`times`), what all take (`total`), and which share of the
whole that is. Views choose what they show of it; none folds or sums by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod
from operator import sub

from opgraph.analysis.cost.bottleneck import GENERIC_RIDGE, classify
from opgraph.analysis.cost.totals import Cost
from opgraph.record.gc_pause import uncollected
from opgraph.record.graph import Graph, Node, Value
from opgraph.record.kinds import Bound


class ItemKind(StrEnum):
    """What an item is. A group is one repetition of a pattern of several modules or operators."""

    ROOT = "root"
    PHASE = "phase"
    MODULE = "module"
    FOLD = "fold"
    GROUP = "group"
    NODE = "node"


class Metric(StrEnum):
    """What is summed over an item. `BYTES` are read and written, `MEMORY` is what its nodes allocate,
    `NO_WORK` counts kernels that are views."""

    FLOPS = "flops"
    OTHER_FLOPS = "other_flops"
    READ = "read"
    WRITTEN = "written"
    BYTES = "bytes"
    MEMORY = "memory"
    PARAMETERS = "parameters"
    KERNELS = "kernels"
    NO_WORK = "no_work"
    UNKNOWN = "unknown"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Turn:
    """Where in a fold an item stands: in which member (from 0) of how many, and how many nodes and items a
    member has."""

    member: int
    count: int
    nodes: int
    items: int


@dataclass(slots=True, eq=False)
class Item:
    """A node, a call of a module, a phase, a group, or a fold of equal ones. Not to be changed once it
    stands in a `Tree`.

    `first` and `last` are the numbers of the nodes beneath it, 1-based and inclusive: their ids where the
    tree is of a whole graph. `node` is the number of the node that it is, or 0. A module that consists of
    one node is that node, under the module's `label`, `path` and `cls`. `call` says which call of its
    module it is, from 1, or 0 where the module is called once. The `children` of a fold are its `count`
    members, each whole; `times` is the product of the counts of the folds around the item, which are its
    `turns`. `id` is its position in `Tree.items`, `parent` that of the item above it (-1 for the root), and
    `level` says how many items are above it, folds not counted. Items with one `key` are equal but for
    their names.
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
        """What stands for an item that is shown once: the first member of a fold, or the item itself."""
        return self.children[0] if self.kind is ItemKind.FOLD else self

    def walk(self) -> Iterator[Item]:
        """This item and all beneath it, in order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def shown(self) -> Iterator[Item]:
        """This item and all beneath it, but of each fold only the first member."""
        yield self
        for child in self.children[:1] if self.kind is ItemKind.FOLD else self.children:
            yield from child.shown()


@dataclass(frozen=True, slots=True)
class Share:
    """An item by one metric: of one repetition, how often it stands, of all together, and the part of the
    whole that these are."""

    each: float
    times: int
    total: float
    share: float


@dataclass(frozen=True, slots=True)
class Figures:
    """An item by every metric; `seconds` is None without a device."""

    flops: Share
    other_flops: Share
    bytes: Share
    memory: Share
    parameters: Share
    kernels: Share
    unknown: Share
    seconds: Share | None = None


@dataclass(frozen=True, slots=True)
class IdleModule:
    """A module with parameters that no node uses. They count for the item `owner`, the innermost that runs
    around the module, and for those above it."""

    path: str
    cls: str
    parameters: int
    owner: int


@dataclass(frozen=True, slots=True)
class HotSpot:
    """A module by what it computes itself, not through the modules in it. `path` names all repetitions
    (`encoder.layer.[0-11].output.dense`), `item` is the first of them and `leaves` are its own nodes there;
    the rest is of all together. `share` is that of the time with a device, else of the FLOPs, else of the
    bytes."""

    path: str
    cls: str
    item: Item = field(repr=False)
    leaves: tuple[Item, ...] = field(repr=False)
    nodes: int
    cost: Cost
    seconds: float | None
    share: float


_OF_KERNELS: Mapping[Metric, Callable[[Sequence[int]], int]] = {
    Metric.FLOPS: lambda row: row[0],
    Metric.OTHER_FLOPS: lambda row: row[1],
    Metric.READ: lambda row: row[2],
    Metric.WRITTEN: lambda row: row[3],
    Metric.BYTES: lambda row: row[2] + row[3],
    Metric.KERNELS: lambda row: row[4] + row[5] + row[6],
    Metric.NO_WORK: lambda row: row[5],
    Metric.UNKNOWN: lambda row: row[6],
}


@dataclass(frozen=True, eq=False)
class Tree:
    """The tree of a graph, or of some of its nodes, with its figures. `items` are in order, parents before
    their children. Where a device is named, `seconds` are those predicted for each node, by its id, and
    `bounds` what it waits for there; without one items are judged by the `ridge` point."""

    graph: Graph
    nodes: tuple[Node, ...]
    items: tuple[Item, ...]
    seconds: Mapping[int, float] | None = None
    bounds: Mapping[int, Bound] | None = None
    ridge: float = GENERIC_RIDGE

    @property
    def root(self) -> Item:
        return self.items[0]

    @cached_property
    def leaves(self) -> tuple[Item, ...]:
        """The leaf of every node, in order."""
        return tuple(item for item in self.items if item.node)

    def parent(self, item: Item) -> Item | None:
        """The item above; None for the root."""
        return None if item.parent < 0 else self.items[item.parent]

    def alike(self, item: Item) -> Iterator[Item]:
        """The items at the same place of all repetitions around an item, in order."""
        return (self.items[i] for i in self._places(item))

    def nodes_of(self, item: Item) -> list[Node]:
        """The nodes of an item in all its repetitions, in order."""
        found = [n for each in self.alike(item) for n in self.nodes[each.first - 1 : each.last]]
        return sorted(found, key=lambda n: n.id) if len(item.turns) > 1 else found

    def title(self, item: Item) -> str:
        """The path with the ranges of the folds around it (`encoder.layer.[0-11].attention`); what has no
        path is called by its label below that."""
        member = item.member
        if not member.path:
            above = self.parent(item)
            names = (self.title(above) if above else "", item.label)
            return ".".join(name for name in names if name)
        first = _parts(self._moved(member, {}).path)
        parts = list(first)
        for at, turn in enumerate(member.turns):
            second, last = (_parts(self._moved(member, {at: m}).path) for m in (1, turn.count - 1))
            for i, name in enumerate(_ranged(first, second, last) or ()):
                if name != first[i]:
                    parts[i] = name
        return "".join(parts)

    def output(self, item: Item) -> Value | None:
        """The first result of a module or a node."""
        scope = self.graph.scope.get(item.path) if item.cls else None
        last = self.nodes[item.last - 1]
        made = scope.outputs if scope else ()
        made = made or last.outputs or last.inputs[:1] * (last.kind == "output")
        return self.graph.value[made[0]] if made else None

    # Figures.

    def repetitions(self, item: Item) -> int:
        """How often one repetition of an item runs: a member of a fold as often as it has members."""
        return item.times * item.count

    def each(self, metric: Metric, item: Item) -> float:
        """What one repetition takes: of time, the mean, since the first one finds the caches cold."""
        if metric is Metric.SECONDS:
            return self.total(metric, item) / self.repetitions(item)
        return self._own(metric, item.member)

    def total(self, metric: Metric, item: Item) -> float:
        """What all repetitions take together."""
        if not item.turns or metric in _OF_KERNELS:
            return self._own(metric, item) * item.times
        place = (metric, self._moved(item, {}).id)
        if place not in self._totals:
            self._totals[place] = sum(self._own(metric, each) for each in self.alike(item))
        return self._totals[place]

    def share(self, metric: Metric, item: Item) -> Share:
        """An item by one metric."""
        total, whole = self.total(metric, item), self._own(metric, self.root)
        part = total / whole if whole else 0.0
        return Share(self.each(metric, item), self.repetitions(item), total, part)

    def figures(self, item: Item) -> Figures:
        """An item by every metric."""
        names = Figures.__dataclass_fields__
        return Figures(**{n: self.share(Metric(n), item) for n in names if self.has(Metric(n))})

    def has(self, metric: Metric) -> bool:
        """Whether there is such a metric: seconds only with a device."""
        return metric is not Metric.SECONDS or self.seconds is not None

    def cost(self, item: Item) -> Cost:
        """What all repetitions of an item cost together: they run the same kernels."""
        return self._cost_of(item, item.times)

    def cost_each(self, item: Item) -> Cost:
        """What one repetition of an item costs."""
        return self._cost_of(item.member, 1)

    def _cost_of(self, item: Item, times: int) -> Cost:
        rows = self._kernel_rows
        own = map(sub, rows[item.last], rows[item.first - 1])
        return Cost(*own) if times == 1 else Cost(*(times * part for part in own))

    def bound(self, *items: Item) -> Bound | None:
        """What an item, or some together, wait for: on a device where most of their time goes, else by
        their intensity against the ridge point; None where nothing is moved."""
        if self.seconds is None or self.bounds is None:
            cost = sum((self.cost(item) for item in items), Cost())
            return classify(cost.arithmetic_intensity, self.ridge)
        spent: dict[Bound, float] = {}
        for node in (n for item in items for n in self.nodes_of(item)):
            if (bound := self.bounds.get(node.id)) is not None:
                spent[bound] = spent.get(bound, 0.0) + self.seconds.get(node.id, 0.0)
        return max(spent, key=lambda b: spent[b], default=None)

    @cached_property
    def idle(self) -> tuple[IdleModule, ...]:
        """The modules with parameters that no node uses, in order of the model; none where the tree is of
        some nodes only."""
        if len(self.nodes) != len(self.graph.nodes):
            return ()
        used = {name for node in self.nodes for name in node.parameters}
        unused: dict[str, int] = {}
        for p in self.graph.parameters:
            if p.kind == "parameter" and used.isdisjoint((p.name, *p.tied)):
                unused[p.scope] = unused.get(p.scope, 0) + p.numel
        runs: dict[str, int] = {}
        for item in self.items if unused else ():
            if item.path and item.kind is not ItemKind.FOLD:
                runs.setdefault(item.path, item.id)
        scope = self.graph.scope
        return tuple(
            IdleModule(path, scope[path].cls if path in scope else "", count, _owner(runs, path))
            for path, count in unused.items()
        )

    def repeats(self) -> tuple[Item, ...]:
        """The folds that stand in no other one, costliest first; those of single operators left out."""
        found = [
            item
            for item in self.items
            if item.kind is ItemKind.FOLD and not item.turns and (item.path or not item.member.node)
        ]
        flops, moved = Metric.FLOPS, Metric.BYTES
        found.sort(key=lambda i: (-self.total(flops, i), -self.total(moved, i)))
        return tuple(found)

    def hot_spots(self, most: int | None = None) -> tuple[HotSpot, ...]:
        """The modules that cost most themselves, costliest first, each with all its repetitions and calls:
        by time with a device, else by FLOPs, then by bytes."""
        groups: dict[str, tuple[Item, list[Item]]] = {}
        titles: dict[int, str] = {}
        for leaf in self.root.shown():
            if not leaf.node:
                continue
            item = leaf
            while not item.path and item.parent >= 0:
                item = self.items[item.parent].member
            title = titles[item.id] if item.id in titles else self.title(item)
            titles[item.id] = title
            groups.setdefault(title, (item, []))[1].append(leaf)
        whole = self.cost(self.root)
        seconds = self.has(Metric.SECONDS)
        metric = Metric.SECONDS if seconds else Metric.FLOPS if whole.flops else Metric.BYTES
        found = []
        for title, (item, leaves) in groups.items():
            cost = sum((self.cost(leaf) for leaf in leaves), Cost())
            if not (cost.flops or cost.bytes):
                continue
            found.append(
                HotSpot(
                    title, item.cls, item, tuple(leaves), sum(leaf.times for leaf in leaves), cost,
                    sum(self.total(Metric.SECONDS, leaf) for leaf in leaves) if seconds else None,
                    sum(self.share(metric, leaf).share for leaf in leaves),
                )
            )  # fmt: skip
        # Shares are differences of running sums: what is equal differs in its last digits.
        found.sort(key=lambda h: (-round(h.share, 9), -h.cost.flops, -h.cost.bytes, h.path))
        return tuple(found[:most])

    # Running sums; places of equal items.

    def _own(self, metric: Metric, item: Item) -> float:
        sums = self._sums(metric)
        own = sums[item.last] - sums[item.first - 1]
        return own + self._idle_of.get(item.id, 0) if metric is Metric.PARAMETERS else own

    def _places(self, item: Item) -> list[int]:
        places = [item.id]
        for turn in item.turns:
            steps = [(m - turn.member) * turn.items for m in range(turn.count)]
            places = [place + step for place in places for step in steps]
        return places

    def _moved(self, item: Item, members: Mapping[int, int]) -> Item:
        """The item at the same place of the first member of every fold around it, or of another one of
        those that are named, by their number from the outside in."""
        steps = ((members.get(i, 0) - t.member) * t.items for i, t in enumerate(item.turns))
        return self.items[item.id + sum(steps)]

    @cached_property
    def _idle_of(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for module in self.idle:
            at = module.owner
            while at >= 0:
                found[at] = found.get(at, 0) + module.parameters
                at = self.items[at].parent
        return found

    def _sums(self, metric: Metric) -> Sequence[float]:
        """What the nodes before each one take, and what all take."""
        found = self._known.get(metric)
        if found is None:
            if metric is Metric.SECONDS:
                seconds = self.seconds or {}
                parts: Iterable[float] = [seconds.get(n.id, 0.0) for n in self.nodes]
            elif metric is Metric.MEMORY:
                parts = self._allocated()
            elif metric is Metric.PARAMETERS:
                parts = self._parameters()
            else:
                of = _OF_KERNELS[metric]
                found = self._known[metric] = [of(row) for row in self._kernel_rows]
                return found
            found = self._known[metric] = list(accumulate(parts, initial=0))
        return found

    @cached_property
    def _totals(self) -> dict[tuple[Metric, int], float]:
        return {}

    @cached_property
    def _known(self) -> dict[Metric, Sequence[float]]:
        return {}

    @cached_property
    def _kernel_rows(self) -> list[tuple[int, int, int, int, int, int, int]]:
        """The running sums of what a `Cost` has, in its order."""
        flops = other = read = written = formula = zero = unknown = 0
        rows = [(0, 0, 0, 0, 0, 0, 0)]
        for node in self.nodes:
            for k in node.kernels:
                flops += k.flops
                other += k.other_flops
                read += k.read
                written += k.written
                if k.cost == "formula":
                    formula += 1
                elif k.cost == "zero":
                    zero += 1
                else:
                    unknown += 1
            rows.append((flops, other, read, written, formula, zero, unknown))
        return rows

    def _allocated(self) -> Iterator[int]:
        made: dict[int, int] = {}
        for storage in self.graph.storages:
            if storage.node is not None:
                made[storage.node] = made.get(storage.node, 0) + storage.bytes
        return (made.get(n.id, 0) for n in self.nodes)

    def _parameters(self) -> Iterator[int]:
        """Parameters at the node that uses them first, so that each counts once."""
        left = {
            name: p
            for p in self.graph.parameters
            if p.kind == "parameter"
            for name in (p.name, *p.tied)
        }
        first: dict[int, int] = {}
        for node in self.graph.nodes:
            for name in node.parameters:
                if (p := left.get(name)) is not None:
                    first[node.id] = first.get(node.id, 0) + p.numel
                    for each in (p.name, *p.tied):
                        left.pop(each, None)
        return (first.get(n.id, 0) for n in self.nodes)


def _owner(runs: Mapping[str, int], path: str) -> int:
    """The item of the innermost module around a path that runs; the root's where none does."""
    while path:
        if path in runs:
            return runs[path]
        path = path.rpartition(".")[0]
    return 0


def build_tree(
    graph: Graph,
    nodes: Sequence[Node] | None = None,
    *,
    root: str = "",
    fold: bool = True,
    seconds: Mapping[int, float] | None = None,
    bounds: Mapping[int, Bound] | None = None,
    ridge: float = GENERIC_RIDGE,
    mark: Callable[[Node], object] | None = None,
) -> Tree:
    """The tree of a graph, or of some of its nodes below the module `root`.

    Without `fold`, equal neighbours stay apart. `seconds` are the predicted seconds of nodes and `bounds`
    what they wait for, by their id; without a device items are judged by the `ridge` point. Only nodes with
    equal marks are folded, where there are marks (of a comparison: added, changed).
    """
    listed = graph.nodes if nodes is None else tuple(nodes)
    items: list[Item] = []
    with uncollected():
        top = _grow_separating_calls(graph, listed, root)
        _number_calls(top)
        _merge_single(top)
        if fold:
            _Folder(graph, listed, mark).fold(top)
        _index(top, items, -1, 0, ())
    return Tree(graph, listed, tuple(items), seconds, bounds, ridge)


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
        place = (node.phase if phased else "", node.scope)
        chain = chains.get(place)
        if chain is None:
            chain = _called(graph, node.scope, root)
            chain = chains[place] = [_PHASE + node.phase, *chain] if phased else chain
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
    """The paths from below the root down to a scope, without those that only hold others (module lists)."""
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
    """Look for calls that run into one another; true when new ones were found."""
    runs: dict[str, int] = {}
    for item in _modules(top):
        runs[item.path] = runs.get(item.path, 0) + 1
    several = {p for p, run in runs.items() if p in graph.scope and graph.scope[p].calls > run}
    return bool(several) and _cut(graph, nodes, top, runs, cuts)


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
    """Number the calls of modules; the backward of a module is no call of it."""
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
    """Make a module that consists of one node that node, under the module's name."""
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
            folded.append(part[0] if times == 1 else _fold_of(part, size))
            at += size * times
        item.children = folded
        for child in folded:
            # The members of a fold are not looked at as one list again.
            for branch in child.children if child.kind is ItemKind.FOLD else (child,):
                if not branch.node:
                    self._fold_children(branch)

    def _find_repeats(self, children: Sequence[Item]) -> Iterator[tuple[int, int]]:
        """The lengths of patterns and how often each follows, from the first child to the last."""
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
            yield best
            at += best[0] * best[1]

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
        """Whether a node of an interval reads what was made from `before` up to its beginning."""
        sources = self._sources
        return any(before <= s < first for i in range(first, last + 1) for s in sources[i])


def _sources(producer: Mapping[int, int], node: Node, at: int) -> Sequence[int]:
    """The nodes that make what a node reads, each once."""
    made = [s for v in node.inputs if (s := producer.get(v, at)) < at]
    return made if len(made) < 2 else list(dict.fromkeys(made))


def _runs(keys: Sequence[int], size: int) -> list[int]:
    """For each position, how many keys from there on equal those `size` further on."""
    runs = [0] * (len(keys) + 1)
    for i in range(len(keys) - size - 1, -1, -1):
        if keys[i] == keys[i + size]:
            runs[i] = runs[i + 1] + 1
    return runs


def _fold_of(part: Sequence[Item], size: int) -> Item:
    """The fold of some equal items, or of repetitions of a pattern of so many."""
    members = list(part)
    first, cls = part[0], part[0].cls
    if size > 1:
        members = [_group_of(part[i : i + size]) for i in range(0, len(part), size)]
        cls = " · ".join(dict.fromkeys(c.cls or c.label for c in part[:size]))
    label = span([m.label for m in members])
    return Item(
        ItemKind.FOLD, first.first, part[-1].last, label, members[0].path, cls,
        count=len(members), children=members, key=first.key,
    )  # fmt: skip


def _group_of(part: Sequence[Item]) -> Item:
    label = span([part[0].label, part[-1].label])
    return Item(ItemKind.GROUP, part[0].first, part[-1].last, label, children=list(part))


# Names of repeats.

_NUMBER = re.compile(r"(\[\d+-\d+\]|\d+)")
_RANGE = re.compile(r"\[?(\d+)(?:-(\d+)\])?")


def span(labels: Sequence[str]) -> str:
    """One label for several: `layer.0` to `layer.11` are `layer.[0-11]`, `[0-5]` to `[6-11]` `[0-11]`."""
    first, second, last = labels[0], labels[1], labels[-1]
    if first == last:
        return first
    parts = _ranged(_parts(first), _parts(second), _parts(last))
    return "".join(parts) if parts else f"{first} … {last}"


def _parts(label: str) -> list[str]:
    """A label cut at its numbers and ranges, which are every other part."""
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
            step = int(b[1]) - int(a[2] or a[1])
            found[i] = f"[{a[1]}-{c[2] or c[1]}{f':{step}' if step > 1 else ''}]"
    return found
