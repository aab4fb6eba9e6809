"""The nodes of two graphs, laid over each other.

Modules are aligned first; in each pair of modules the nodes are matched by operator, in order. What is
gone is given a place among what is there, so that both can be shown as one graph: their `Union`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from opgraph.analysis.compare.alignment import Change, align, by_operator
from opgraph.analysis.cost.totals import ModuleCost
from opgraph.record.graph import Graph, Node, Scope, Value, around
from opgraph.record.kinds import ChangeKind


@dataclass(frozen=True, slots=True)
class Removed:
    """A node of the earlier graph that is gone.

    Its id there, the module in which it would stand now, and the id of the node of the later graph
    before which it would run (one more than the last: at the end).
    """

    id: int
    scope: str
    at: int


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which node of one graph is which of the other.

    `before` gives, for each node of the later graph in order, the id of its node in the earlier one, or
    0 where it was added. `removed` are the nodes that are gone, in the order in which they ran.
    """

    before: tuple[int, ...]
    removed: tuple[Removed, ...]


def pair_nodes(before: Graph, after: Graph) -> Pairing:
    """Pair the nodes of two graphs."""
    pairs = [0] * len(after.nodes)
    gone: dict[int, tuple[str, str]] = {}
    for now, then, old, new in _modules(align(before, after), "", ""):
        was, is_now = old.nodes if old else (), new.nodes if new else ()
        for a, b in by_operator(was, is_now):
            if a is not None and b is not None:
                pairs[b.id - 1] = a.id
            elif a is not None:
                gone[a.id] = (now, _moved(a.scope, then, now))
    return Pairing(tuple(pairs), _placed(before, after, pairs, gone))


def _modules(
    change: Change, now: str, then: str
) -> Iterator[tuple[str, str, ModuleCost | None, ModuleCost | None]]:
    """Every pair of modules, and the paths of the nearest around."""
    if change.after is not None and change.before is not None:
        now, then = change.after.path, change.before.path
    yield now, then, change.before, change.after
    for child in change.children:
        yield from _modules(child, now, then)


def _moved(scope: str, then: str, now: str) -> str:
    """A path as it would be in a module of another path."""
    return ".".join(part for part in (now, scope.removeprefix(then).strip(".")) if part)


def _placed(
    before: Graph, after: Graph, pairs: list[int], gone: Mapping[int, tuple[str, str]]
) -> tuple[Removed, ...]:
    """The removed nodes with their places.

    Behind what ran before them in the same module, or in front of what ran after them there, and never
    inside of a module that was not around them.
    """
    later = {old: new for new, old in enumerate(pairs, start=1) if old}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for node in after.nodes:
        for path in around(node.scope):
            first.setdefault(path, node.id)
            last[path] = node.id
    following: dict[int, int | None] = {}
    nearest: dict[str, int] = {}
    for node in reversed(before.nodes):
        if node.id in gone:
            following[node.id] = nearest.get(gone[node.id][0])
        elif node.id in later:
            new = later[node.id]
            nearest.update((path, new) for path in around(after.node(new).scope))
    nearest = {}
    found: list[Removed] = []
    for node in before.nodes:
        if node.id in later:
            new = later[node.id]
            nearest.update((path, new + 1) for path in around(after.node(new).scope))
        elif node.id in gone:
            within, scope = gone[node.id]
            at = (
                nearest.get(within)
                or following[node.id]
                or _called(after, within, nearest)
                or first.get(within, 1)
            )
            if found and found[-1].at <= last.get(within, 0):
                at = max(at, found[-1].at)  # the removed ones keep their order, too
            found.append(Removed(node.id, scope, _out_of_others(after.nodes, scope, at)))
    return tuple(found)


def _called(graph: Graph, path: str, nearest: Mapping[str, int]) -> int | None:
    """Where a module in which nothing is as it was is called next."""
    for above in around(path):
        at = nearest.get(above)
        if at is not None and at <= len(graph.nodes) and path in around(graph.node(at).scope):
            return at
    return None


def _out_of_others(nodes: tuple[Node, ...], scope: str, at: int) -> int:
    """The next place from `at` on in no module beside `scope`."""
    own = set(around(scope))
    while 1 < at <= len(nodes):
        if {*around(nodes[at - 2].scope)} & {*around(nodes[at - 1].scope)} <= own:
            break
        at += 1
    return at


# Both graphs as one.


@dataclass(frozen=True, slots=True)
class Union:
    """The later graph, and among its nodes what is gone.

    By node of `graph`, `before` is its node in the earlier graph, `own` its id in the later one (0
    where it is gone), `changes` what became of it, and `former` how many of its last inputs it read
    only before, from nodes that are gone. What is gone has no kernels and no parameters here: it costs
    nothing.
    """

    graph: Graph
    before: tuple[Node | None, ...]
    own: tuple[int, ...]
    changes: tuple[ChangeKind, ...]
    former: tuple[int, ...]


def unite(before: Graph, after: Graph) -> Union:
    """The union of two graphs."""
    pairing = pair_nodes(before, after)
    merger = _Merger(before, after)
    gone: dict[int, list[Removed]] = {}
    for removed in pairing.removed:
        gone.setdefault(removed.at, []).append(removed)
    for node in (*after.nodes, None):
        for removed in gone.get(node.id if node else len(after.nodes) + 1, ()):
            merger.remove(before.node(removed.id), removed.scope)
        if node is not None:
            then = pairing.before[node.id - 1]
            merger.keep(node, before.node(then) if then else None)
    return merger.union()


def change_of(
    before: Node, after: Node, values: tuple[Mapping[int, Value], Mapping[int, Value]]
) -> ChangeKind:
    """What became of a node, by its costs, then by its results.

    `values` are those of the earlier and of the later graph, by their ids.
    """
    for was, now in (
        (before.flops, after.flops), (before.bytes, after.bytes), (before.other_flops, after.other_flops)
    ):  # fmt: skip
        if was != now:
            return ChangeKind.COSTLIER if now > was else ChangeKind.CHEAPER
    then, here = (
        [(known[v].dtype, known[v].shape) for v in node.outputs]
        for node, known in zip((before, after), values, strict=True)
    )
    return ChangeKind.SAME if then == here else ChangeKind.CHANGED


class _Merger:
    """Joins kept and removed nodes by the values they read."""

    def __init__(self, before: Graph, after: Graph) -> None:
        self.earlier, self.later = before, after
        self.nodes: list[Node] = []
        self.before: list[Node | None] = []
        self.own: list[int] = []
        self.former: list[int] = []
        self.values = list(after.values)
        self.scopes = {s.path: s for s in after.scopes}
        self.next = max((v.id for v in after.values), default=0) + 1
        self.stands_for: dict[int, int] = {}
        """By value of the earlier graph, that of the union, once its maker has been passed."""
        self.gone: set[int] = set()

    def keep(self, node: Node, then: Node | None) -> None:
        if then is not None and node.outputs:
            for i, value in enumerate(then.outputs):
                self.stands_for[value] = node.outputs[min(i, len(node.outputs) - 1)]
        read = self._read(then)
        former = tuple(v for v in read if v in self.gone)
        self._add(replace(node, inputs=(*node.inputs, *former)), then, node.id, len(former))

    def remove(self, node: Node, scope: str) -> None:
        outputs = []
        for old in node.outputs:
            value = self.earlier.value[old]
            self.values.append(
                replace(value, id=self.next, kind="activation", storage=None, alias_of=None)
            )
            self.stands_for[old] = self.next
            self.gone.add(self.next)
            outputs.append(self.next)
            self.next += 1
        last = self.nodes[-1] if self.nodes else node
        here = replace(
            node, scope=scope, inputs=self._read(node), outputs=tuple(outputs), kernels=(), parameters=(),
            error=None, fragment=last.fragment, phase=last.phase,
        )  # fmt: skip
        self._add(here, node, 0, 0)
        # The modules around it that are gone, too.
        path, then = scope, node.scope
        while path and path not in self.scopes:
            known = self.earlier.scope.get(then)
            gone = known or Scope(path, "", 1)
            # What they read and made has other numbers here.
            self.scopes[path] = replace(gone, path=path, inputs=(), outputs=())
            path, then = path.rpartition(".")[0], then.rpartition(".")[0]

    def union(self) -> Union:
        place = {own: at for at, own in enumerate(self.own, start=1)}
        storages = tuple(replace(s, node=s.node and place[s.node]) for s in self.later.storages)
        graph = replace(
            self.later, nodes=tuple(self.nodes), values=tuple(self.values),
            scopes=tuple(self.scopes.values()), storages=storages,
        )  # fmt: skip
        changes = tuple(map(self._change, self.before, self.own))
        return Union(graph, tuple(self.before), tuple(self.own), changes, tuple(self.former))

    def _change(self, then: Node | None, own: int) -> ChangeKind:
        if then is None:
            return ChangeKind.ADDED
        values = self.earlier.value, self.later.value
        return change_of(then, self.later.node(own), values) if own else ChangeKind.REMOVED

    def _read(self, node: Node | None) -> tuple[int, ...]:
        return (
            tuple(self.stands_for[v] for v in node.inputs if v in self.stands_for) if node else ()
        )

    def _add(self, node: Node, then: Node | None, own: int, former: int) -> None:
        self.nodes.append(replace(node, id=len(self.nodes) + 1))
        self.before.append(then)
        self.own.append(own)
        self.former.append(former)
