"""The tree of a run, folded once, that all views show.

Its leaves are nodes; its branches are *calls* of modules (a module called twice stands twice), so that
every branch is one interval of the order of execution, and every sum over it a difference of running sums.
Repeats are folded: the members of a fold equal each other in structure, operators, kernels and wiring, so
whatever stands inside one of them stands at the same place of all. An item has one set of figures: what one
repetition takes (`each`), how often it stands (`times`), what all take (`total`), and which share of the
whole that is. Views choose what they show of it; none folds or sums by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import accumulate, islice, takewhile
from operator import sub

from opgraph.analysis.calls import Item, ItemKind, items_of, with_ranges
from opgraph.analysis.cost.totals import GENERIC_RIDGE, Cost, bound_of, running_costs
from opgraph.record.graph import Graph, Node, Value, around
from opgraph.record.kinds import Bound

__all__ = [
    "Figures", "HotSpot", "IdleModule", "Item", "ItemKind", "Metric", "Share", "Tree", "build_tree",
    "usual_metric",
]  # fmt: skip


class Metric(StrEnum):
    """What is summed over an item. `BYTES` are read and written, `MEMORY` is what its nodes allocate,
    `NO_WORK` counts kernels that are views, `SECONDS` are the device's and `HOST` those of the host that
    launches them."""

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
    HOST = "host"
    MEASURED = "measured"


_TIMES = (Metric.SECONDS, Metric.HOST, Metric.MEASURED)
"""What differs between repetitions that cost the same."""


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
    """An item by every metric; `seconds` is None without a device, `measured` where nothing was."""

    flops: Share
    other_flops: Share
    bytes: Share
    memory: Share
    parameters: Share
    kernels: Share
    unknown: Share
    seconds: Share | None = None
    measured: Share | None = None


@dataclass(frozen=True, slots=True)
class IdleModule:
    """A module with parameters that no node uses, the outermost of which nothing runs. They count for the
    item `owner`, the innermost that runs around the module, and for those above it."""

    path: str
    cls: str
    parameters: int
    owner: int


@dataclass(frozen=True, slots=True)
class HotSpot:
    """A module by what it computes itself, not through the modules in it. `path` names all repetitions
    (`encoder.layer.[0-11].output.dense`), `item` is the first of them and `leaves` are its own nodes there;
    the rest is of all together. `share` is by the metric that the tree is judged by."""

    path: str
    cls: str
    item: Item = field(repr=False)
    leaves: tuple[Item, ...] = field(repr=False)
    nodes: int
    cost: Cost
    seconds: float | None
    share: float
    measured: float | None = None

    @property
    def label(self) -> str:
        """Its name where modules are counted whole beside it: one that holds others says "itself"."""
        if not self.path:
            return "the model itself"
        return f"{self.path} itself" if _holds_modules(self.item) else self.path


def _holds_modules(item: Item) -> bool:
    """Whether one that is a single node, or more, stands in it."""
    return any(
        bool(child.path) if child.node else child.kind is ItemKind.MODULE or _holds_modules(child)
        for child in item.children
    )


def usual_metric(whole: Cost, *, timed: bool, measured: bool = False) -> Metric:
    """By what the parts of a whole are ordered and shared where nothing else is asked for: the measured
    time, the predicted time on a device, else FLOPs, or bytes where there are no FLOPs at all."""
    if measured or timed:
        return Metric.MEASURED if measured else Metric.SECONDS
    return Metric.FLOPS if whole.flops else Metric.BYTES


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
    their children. Where a device is named, `seconds` are those predicted for each node, by its id, `host`
    those that the host launches it for, and `bounds` what it waits for there; without one items are judged
    by the `ridge` point. `measured` are the seconds that each node took where it was run."""

    graph: Graph
    nodes: tuple[Node, ...]
    items: tuple[Item, ...]
    seconds: Mapping[int, float] | None = None
    bounds: Mapping[int, Bound] | None = None
    ridge: float = GENERIC_RIDGE
    measured: Mapping[int, float] | None = None
    host: Mapping[int, float] | None = None

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
        """The items at the same place of all repetitions, in order."""
        return (self.items[i] for i in self._places(item))

    def nodes_of(self, item: Item) -> list[Node]:
        """The nodes of an item in all its repetitions, in order."""
        found = [n for each in self.alike(item) for n in self.nodes[each.first - 1 : each.last]]
        return sorted(found, key=lambda n: n.id) if len(item.turns) > 1 else found

    def title(self, item: Item) -> str:
        """The path with the ranges of the folds around it (`encoder.layer.[0-11].attention`), behind its
        phase where that is not the forward ("backward of layer1.0.conv1"); what has no path is called by
        its label below that."""
        member = item.member
        if not member.path:
            above = self.parent(item)
            names = (self.title(above) if above else "", item.label)
            return ".".join(name for name in names if name)
        phase = self.nodes[item.first - 1].phase if self.nodes else "forward"
        if phase != "forward" and member.id:
            return f"{phase} of {self._path(member)}"
        return self._path(member)

    def _path(self, member: Item) -> str:
        ends = (
            (self._moved(member, {at: 1}).path, self._moved(member, {at: turn.count - 1}).path)
            for at, turn in enumerate(member.turns)
        )
        return with_ranges(self._moved(member, {}).path, ends)

    def output(self, item: Item) -> Value | None:
        """The first result of a module or a node. Of a module that is called more than once, a graph knows
        what the last call returned; another call's is what its last node made. A backward hands on a
        gradient that others read."""
        if not self.nodes:
            return None
        scope = self.graph.scope.get(item.path) if item.cls else None
        first, last = self.nodes[item.first - 1], self.nodes[item.last - 1]
        if last.phase == "backward" and item.cls:
            inside, users = self.nodes[item.first - 1 : item.last], self.graph.users
            read = (v for n in inside for v in n.outputs
                    if any(u.id > last.id and u.phase == "backward" for u in users.get(v, ())))  # fmt: skip
            made: tuple[int, ...] = tuple(islice(read, 1))
        else:
            made = scope.outputs if scope else ()
        if scope and scope.calls > 1 and made:
            maker = self.graph.producer.get(made[0])
            made = made if maker and first.id <= maker.id <= last.id else ()
        made = made or last.outputs or last.inputs[:1] * (last.kind == "output")
        return self.graph.value[made[0]] if made else None

    # Figures.

    def repetitions(self, item: Item) -> int:
        """How often an item runs; a fold's member counts for all."""
        return item.times * item.count

    def each(self, metric: Metric, item: Item) -> float:
        """What one repetition takes: of time, the mean, since the first one finds the caches cold."""
        if metric in _TIMES:
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
        """Whether there is such a metric: seconds only with a device, or where they were measured."""
        return metric not in _TIMES or self._times(metric) is not None

    def _times(self, metric: Metric) -> Mapping[int, float] | None:
        return {Metric.SECONDS: self.seconds, Metric.HOST: self.host}.get(metric, self.measured)

    @property
    def metric(self) -> Metric:
        """What shares are of where nothing else is asked for (see `usual_metric`)."""
        timed, measured = self.has(Metric.SECONDS), self.has(Metric.MEASURED)
        return usual_metric(self.cost(self.root), timed=timed, measured=measured)

    def cost(self, item: Item) -> Cost:
        """What all repetitions of an item cost together."""
        return self._cost_of(item, item.times)

    def cost_each(self, item: Item) -> Cost:
        """What one repetition of an item costs."""
        return self._cost_of(item.member, 1)

    def _cost_of(self, item: Item, times: int) -> Cost:
        rows = self._kernel_rows
        own = map(sub, rows[item.last], rows[item.first - 1])
        return Cost(*own) if times == 1 else Cost(*(times * part for part in own))

    def bound(self, *items: Item) -> Bound | None:
        """What an item, or some together, wait for (see `bound_of`)."""
        nodes = (n for item in items for n in self.nodes_of(item))
        cost = sum((self.cost(item) for item in items), Cost())
        return bound_of(nodes, cost, self.ridge, self.bounds, self.seconds)

    @cached_property
    def idle(self) -> tuple[IdleModule, ...]:
        """The modules with parameters that no node uses, in order of the model; none where the tree is of
        some nodes only."""
        if len(self.nodes) != len(self.graph.nodes):
            return ()
        used = {name for node in self.nodes for name in node.parameters}
        unused: dict[str, int] = {}
        works = {""}  # the modules that run, or whose parameters others use, and those around them
        for p in self.graph.parameters:
            if not used.isdisjoint((p.name, *p.tied)):
                works.update(around(p.scope))
            elif p.kind == "parameter":
                unused[p.scope] = unused.get(p.scope, 0) + p.numel
        runs: dict[str, int] = {}
        for item in self.items if unused else ():
            if item.path and item.kind is not ItemKind.FOLD:
                runs.setdefault(item.path, item.id)
        works.update(above for path in runs for above in around(path))
        found: dict[str, IdleModule] = {}
        for path, count in unused.items():
            *_, whole = (path, *takewhile(lambda p: p not in works, around(path)))
            known = found.get(whole)
            if known is None:
                cls = self.graph.scope[whole].cls if whole in self.graph.scope else ""
                owner = next((runs[p] for p in around(path) if p in runs), 0)
                found[whole] = IdleModule(whole, cls, count, owner)
            else:
                found[whole] = replace(known, parameters=known.parameters + count)
        return tuple(found.values())

    def repeats(self) -> tuple[Item, ...]:
        """The outermost folds of modules, costliest first."""
        found = [
            item
            for item in self.items
            if item.kind is ItemKind.FOLD and not item.turns and (item.path or not item.member.node)
        ]
        flops, moved = Metric.FLOPS, Metric.BYTES
        found.sort(key=lambda i: (-self.total(flops, i), -self.total(moved, i)))
        return tuple(found)

    def hot_spots(self, most: int | None = None, *, every: bool = False) -> tuple[HotSpot, ...]:
        """The modules that cost most themselves, costliest first, each with all its repetitions and calls:
        by the metric that the tree is judged by, then by FLOPs and bytes. `every` lists those, too, that
        have no share by it, for who weighs them by others."""
        groups: dict[str, tuple[Item, list[Item]]] = {}
        titles: dict[int, str] = {}
        for leaf in self.root.shown():
            if not leaf.node:
                continue
            item = leaf
            while not item.path and item.parent >= 0 and item.kind is not ItemKind.PHASE:
                item = self.items[item.parent]  # a fold has a path where its members have one
            title = titles[item.id] if item.id in titles else self.title(item)
            titles[item.id] = title
            groups.setdefault(title, (item, []))[1].append(leaf)
        metric = self.metric

        def taken(time: Metric, leaves: list[Item]) -> float | None:
            return sum(self.total(time, leaf) for leaf in leaves) if self.has(time) else None

        found = []
        for title, (item, leaves) in groups.items():
            share = sum(self.share(metric, leaf).share for leaf in leaves)
            cost = sum((self.cost(leaf) for leaf in leaves), Cost())
            if share > 0 or every:
                found.append(
                    HotSpot(
                        title, item.cls, item, tuple(leaves), sum(leaf.times for leaf in leaves),
                        cost, taken(Metric.SECONDS, leaves), share, taken(Metric.MEASURED, leaves),
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
            if metric in _TIMES:
                seconds = self._times(metric) or {}
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
    def _kernel_rows(self) -> list[tuple[int, ...]]:
        return running_costs(node.kernels for node in self.nodes)

    def _allocated(self) -> Iterator[int]:
        made: dict[int, int] = {}
        for storage in self.graph.storages:
            if storage.node is not None:
                made[storage.node] = made.get(storage.node, 0) + storage.bytes
        return (made.get(n.id, 0) for n in self.nodes)

    def _parameters(self) -> Iterator[int]:
        """Parameters, each at the node that uses it first."""
        left = {n: p for n, p in self.graph.parameter.items() if p.kind == "parameter"}
        first: dict[int, int] = {}
        for node in self.graph.nodes:
            for name in node.parameters:
                if (p := left.get(name)) is not None:
                    first[node.id] = first.get(node.id, 0) + p.numel
                    for each in (p.name, *p.tied):
                        left.pop(each, None)
        return (first.get(n.id, 0) for n in self.nodes)


def build_tree(
    graph: Graph,
    nodes: Sequence[Node] | None = None,
    *,
    root: str = "",
    fold: bool = True,
    seconds: Mapping[int, float] | None = None,
    bounds: Mapping[int, Bound] | None = None,
    ridge: float = GENERIC_RIDGE,
    measured: Mapping[int, float] | None = None,
    host: Mapping[int, float] | None = None,
    mark: Callable[[Node], object] | None = None,
) -> Tree:
    """The tree of a graph, or of some nodes below `root`.

    Without `fold`, equal neighbours stay apart. `seconds` are the predicted seconds of nodes, `host` those
    of the host, and `bounds` what they wait for, by their id, `measured` the seconds that they took;
    without a device items are judged by the `ridge` point. Only nodes with equal marks are folded, where
    there are marks (of a comparison: added, changed).
    """
    listed = graph.nodes if nodes is None else tuple(nodes)
    items = items_of(graph, listed, root, mark, fold=fold)
    return Tree(graph, listed, items, seconds, bounds, ridge, measured, host)
