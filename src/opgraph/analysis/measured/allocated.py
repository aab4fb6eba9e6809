"""The memory that a run allocated, beside what was traced: both peaks, and the difference between them by
module and operator."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from opgraph.analysis.memory import memory
from opgraph.analysis.tree import Tree
from opgraph.record.graph import Graph, Node
from opgraph.record.run import RunRecord

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Alive:
    """Bytes that an operator holds, in all repetitions of its module, at the peak that was measured and at
    the one traced. Without a path it is what has no node, by the operator that asked for it."""

    path: str
    op: str
    measured: int
    traced: int

    @property
    def difference(self) -> int:
        return self.measured - self.traced


@dataclass(frozen=True, slots=True)
class Allocated:
    """What a step allocates at its peak, measured and traced, in bytes: the peaks, what was there before
    (`before`, where the allocator counts it; `traced_before` with the weights), and the node at which each
    is. `alive` is where they differ, most first: the differences add up to that of the peaks."""

    measured: int
    traced: int
    before: int
    traced_before: int
    node: int | None
    traced_node: int | None
    alive: tuple[Alive, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        rows = [[a.path, a.op, a.measured, a.traced] for a in self.alive]
        return asdict(self) | {"alive": rows}


def allocated(graph: Graph, tree: Tree, run: RunRecord) -> Allocated | None:
    """The memory of a run beside that of its graph; None where none was written down."""
    if run.peak_memory is None or not run.held:
        return None
    step = memory(graph, before=False)
    paths = {
        n.id: tree.title(leaf)
        for leaf in tree.root.shown()
        if leaf.node
        for n in tree.nodes_of(leaf)
    }
    rows: dict[Key, list[int]] = {}

    def place(node: Node) -> Key:
        return paths.get(node.id, node.name), node.op

    for held in run.held:
        node = graph.node(held.nodes[0]) if held.nodes else None
        key = ("", held.name) if node is None else place(node)
        rows.setdefault(key, [0, 0])[0] += held.bytes
    makers = [n for n in graph.nodes for _ in n.kernels]
    at = step.peak_kernel or 0
    for s in graph.storages:
        if s.born <= at and (s.died is None or at < s.died) and not graph.was_there(s):
            node = graph.node(s.node) if s.node else makers[s.born] if makers else None
            key = ("", "") if node is None else place(node)
            rows.setdefault(key, [0, 0])[1] += s.bytes
    found = (Alive(*key, *both) for key, both in rows.items())
    ordered = sorted(found, key=lambda a: (-abs(a.difference), -a.measured, a.path, a.op))
    own = sum(held.bytes for held in run.held)
    weights = sum(p.bytes for p in graph.parameters)
    there = sum(s.bytes for s in graph.storages if graph.was_there(s))
    return Allocated(
        own, step.peak, run.peak_memory - own, weights + there,
        next(iter(run.peak_nodes), None), step.peak_node, tuple(ordered),
    )  # fmt: skip
