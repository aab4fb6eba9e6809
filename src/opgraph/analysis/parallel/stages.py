"""Cutting a graph into the stages of a pipeline: which nodes run where, what each stage holds, and what it
hands on. Cuts are between repeated blocks (layers), as even in number as they can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from opgraph.analysis.cost.training import optimizer_state, updated
from opgraph.analysis.memory import live_bytes
from opgraph.record.errors import RenderError
from opgraph.record.graph import Graph, Node, Parameter, Storage, Value


@dataclass(frozen=True, slots=True)
class Stage:
    """The nodes of a stage by id (both ends inclusive), how many blocks they make up, the bytes of the
    weights they use, the peak of live memory while they run, the bytes that come in from the stage
    before, and those of activations that a backward needs (0 unless the graph has one). `trained` are the
    bytes of those weights that an optimizer updates, `shared` those of each that other stages use, too,
    with the number of all that do."""

    first: int
    last: int
    blocks: int
    weights: int
    peak: int
    received: int
    saved: int
    flops: int
    trained: int
    shared: tuple[tuple[int, int], ...]


def blocks(graph: Graph) -> tuple[str, ...]:
    """The paths of the outermost modules that are numbered and run, in the order in which they run."""
    running: dict[str, None] = {}
    for node in forward(graph):
        path = ""
        for part in node.scope.split("."):
            path = f"{path}.{part}" if path else part
            if part.isdigit():
                running.setdefault(path)
                break
    return tuple(running)


def forward(graph: Graph) -> Sequence[Node]:
    """The nodes before a backward, or all."""
    end = next((i for i, n in enumerate(graph.nodes) if n.phase != "forward"), len(graph.nodes))
    return graph.nodes[:end]


def stages(graph: Graph, number: int) -> tuple[Stage, ...]:
    """The forward of a graph in that many stages; what does not divide makes the first ones longer by one.

    Raises `RenderError` when there are fewer blocks than stages.
    """
    paths = blocks(graph)
    if number > max(1, len(paths)):
        raise RenderError(
            f"{len(paths)} blocks (layers) cannot be cut into {number} stages",
            hint=f"--pipeline-parallel {max(1, len(paths))} or less",
        )
    sizes = [len(paths) // number + (i < len(paths) % number) for i in range(number)]
    owner = {
        path: stage
        for stage, (end, size) in enumerate(zip(accumulate(sizes), sizes, strict=True))
        for path in paths[end - size : end]
    }
    at = _stages_of_nodes(graph, owner)
    cut = _Cut(graph, at[: len(forward(graph))])
    return tuple(cut.stage(i, sizes[i]) for i in range(number))


def _stages_of_nodes(graph: Graph, owner: dict[str, int]) -> list[int]:
    """The stage of every node: that of its block, and between blocks that of the node before."""
    found, current = [], 0
    for node in graph.nodes:
        path = node.scope
        while path and path not in owner:
            path = path.rpartition(".")[0]
        current = max(current, owner.get(path, current))
        found.append(current)
    return found


class _Cut:
    """What each stage holds; `home` are the stages of the nodes of the forward."""

    def __init__(self, graph: Graph, home: Sequence[int]) -> None:
        self.graph, self.home = graph, home
        self.starts = [0, *accumulate(len(n.kernels) for n in graph.nodes)]
        self.learned = _depending_on_weights(graph)
        self.names = {name: p for p in graph.parameters for name in (p.name, *p.tied)}
        self.given = {graph.value[v].storage for v in graph.inputs}
        self.unread = self.given - self._read(graph.nodes)
        self.state = optimizer_state(graph)
        self.weights = [self._weights(s) for s in range(max(home, default=0) + 1)]
        self.updated = updated(graph)
        self.users = Counter(name for used in self.weights for name in used)

    def stage(self, number: int, count: int) -> Stage:
        mine = self._nodes(number)
        first, last = mine[0].id, mine[-1].id
        peak, saved = self._memory(mine, first, last)
        weights = self.weights[number].values()
        trained = [p for p in weights if p.name in self.updated]
        return Stage(
            first, last, count, sum(p.bytes for p in weights), peak, self._received(first), saved,
            sum(n.flops for n in mine), sum(p.bytes for p in trained),
            tuple((p.bytes, self.users[p.name]) for p in trained if self.users[p.name] > 1),
        )  # fmt: skip

    def _nodes(self, number: int) -> list[Node]:
        return [n for n, s in zip(self.graph.nodes, self.home, strict=False) if s == number]

    def _weights(self, number: int) -> dict[str, Parameter]:
        """Weights that a stage uses; those that nobody uses are with the first one."""
        used = {p.name: p for n in self._nodes(number) for p in self._parameters(n)}
        if number == 0:
            all_used = {p.name for n in self.graph.nodes for p in self._parameters(n)}
            used |= {p.name: p for p in self.graph.parameters if p.name not in all_used}
        return used

    def _parameters(self, node: Node) -> list[Parameter]:
        names = [self._root(v).name for v in node.inputs]
        return [self.names[n] for n in (*names, *node.parameters) if n in self.names]

    def _received(self, first: int) -> int:
        """Activations made before a node and used from it on, each piece of memory once. What follows
        from the inputs alone (masks, positions) is made again rather than sent."""
        end = len(self.home)
        crossing: dict[object, int] = {}
        for node in self.graph.nodes[: first - 1]:
            for v in node.outputs:
                value = self.graph.value[v]
                users = self.graph.users.get(v, ())
                later = any(first <= u.id <= end and u.kind != "output" for u in users)
                if later and v in self.learned and self._root(v).kind == "activation":
                    key = value.id if value.storage is None else ("storage", value.storage)
                    crossing[key] = max(crossing.get(key, 0), value.bytes)
        return sum(crossing.values())

    def _memory(self, nodes: Sequence[Node], first: int, last: int) -> tuple[int, int]:
        """The peak of what is live while these nodes run, and what is left for a backward. An input is
        where it is read (the cache of a layer with that layer), one that nobody reads with the first."""
        begin, end = self.starts[first - 1], self.starts[last]
        forward = self.starts[len(self.home)]
        read = self._read(nodes)
        mine = []
        saved = 0
        for number, s in enumerate(self.graph.storages):
            died = forward if s.died is None else s.died
            if number in self.state:
                continue  # counted with the weights
            own = begin <= s.born < end
            if number in self.given:
                own = number in read or (own and number in self.unread)
            if own or (number in read and s.born < begin):
                mine.append(Storage(s.bytes, max(0, s.born - begin), min(died, end) - begin))
            if own and end <= forward < self.starts[-1] and (s.died is None or s.died > forward):
                saved += s.bytes
        live = live_bytes([s for s in mine if s.died is not None and s.died > s.born], end - begin)
        return max(live, default=0), saved

    def _read(self, nodes: Sequence[Node]) -> set[int | None]:
        """The memory that some nodes work on. What the model returns stays where it was made."""
        return {self.graph.value[v].storage for n in nodes if n.kind != "output" for v in n.inputs}

    def _root(self, number: int) -> Value:
        value = self.graph.value[number]
        while value.alias_of is not None:
            value = self.graph.value[value.alias_of]
        return value


def _depending_on_weights(graph: Graph) -> set[int]:
    found = {v.id for v in graph.values if v.kind == "parameter"}
    for node in graph.nodes:
        if any(v in found for v in node.inputs):
            found.update(node.outputs)
    return found
