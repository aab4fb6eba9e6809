"""Costs by canonical operator."""

from __future__ import annotations

from dataclasses import dataclass

from opgraph.analysis.totals import Cost, cost_of
from opgraph.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """All nodes of one operator together."""

    op: str
    count: int
    cost: Cost

    @property
    def flops(self) -> int:
        return self.cost.flops

    @property
    def bytes(self) -> int:
        return self.cost.bytes


CONSTANTS = "constants"
"""What stands for all operators on nothing but constants, where a person reads."""


def by_op(graph: Graph, *, constants_apart: bool = True) -> tuple[OperatorCost, ...]:
    """Costs by operator, the dearest first (by FLOPs, then by bytes, then by name). What only steers
    (grad mode, autocast) is none. Unless they stand apart, what is made of constants is one entry."""
    groups: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.kind not in ("input", "output", "control"):
            gathered = node.kind == "constant" and not constants_apart
            groups.setdefault(CONSTANTS if gathered else node.op, []).append(node)
    costs = [OperatorCost(op, len(nodes), cost_of(nodes)) for op, nodes in groups.items()]
    return tuple(sorted(costs, key=lambda c: (-c.flops, -c.bytes, c.op)))
