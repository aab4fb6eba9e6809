"""The rows of the hierarchical table: modules, folded where neighbours are equal, and between them the
operators that stand directly in a module, so that the rows below a module always add up to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opgraph.analysis import Cost, ModuleCost, classify, cost_of, module_tree
from opgraph.analysis import fold as fold_tree
from opgraph.analysis.operators import CONSTANTS
from opgraph.graph import Graph, Node, Shape

FITTING_ROWS = 42


@dataclass(frozen=True, slots=True)
class Row:
    """One line: a module with all that is below it, or operators of one kind that stand in a module."""

    path: str
    label: str
    cls: str
    depth: int
    count: int
    parameters: int
    cost: Cost
    output: Shape | None
    bottleneck: str | None
    is_module: bool = True


SORT_KEYS: dict[str, Callable[[Row], float | str]] = {
    "flops": lambda r: r.cost.flops,
    "macs": lambda r: r.cost.macs,
    "bytes": lambda r: r.cost.bytes,
    "parameters": lambda r: r.parameters,
    "intensity": lambda r: r.cost.arithmetic_intensity or 0.0,
    "name": lambda r: r.path,
}


def rows(graph: Graph, depth: int | None, *, fold: bool, ridge: float) -> list[Row]:
    """The rows down to a depth below the root, in order of the module tree; without one, down to the
    deepest level at which the table still fits a page."""
    tree = module_tree(graph)
    tree = fold_tree(tree) if fold else tree
    return list(_rows(tree, _fitting(tree) if depth is None else depth, ridge))


def _fitting(tree: ModuleCost) -> int:
    """The deepest level whose rows fit a page, at least one."""
    level, depth, total = [tree], 0, 1
    while level:
        below = [c for m in level for c in m.children if c.parameters or c.cost.bytes]
        operators = sum(len(_groups(m)) for m in level if m.children or not m.path)
        total += len(below) + operators
        if depth and total > FITTING_ROWS:
            break
        level, depth = below, depth + 1
    return depth


def _rows(module: ModuleCost, depth: int, ridge: float) -> Iterator[Row]:
    yield Row(
        path=module.path,
        label=module.name or module.cls,
        cls=module.cls if module.path else "",
        depth=module.depth,
        count=module.count,
        parameters=module.parameters,
        cost=module.cost,
        output=module.output,
        bottleneck=classify(module.cost.arithmetic_intensity, ridge),
    )
    if module.depth >= depth:
        return
    for child in module.children:
        if child.parameters or child.cost.bytes:
            yield from _rows(child, depth, ridge)
    if module.children or not module.path:
        yield from _operators(module, ridge)


def _operators(module: ModuleCost, ridge: float) -> Iterator[Row]:
    for op, nodes in _groups(module).items():
        cost = cost_of(nodes)
        yield Row(
            path=f"{module.path}.{op}" if module.path else op,
            label=op,
            cls="",
            depth=module.depth + 1,
            count=len(nodes),
            parameters=0,
            cost=cost,
            output=None,
            bottleneck=classify(cost.arithmetic_intensity, ridge),
            is_module=False,
        )


def _groups(module: ModuleCost) -> dict[str, list[Node]]:
    """What a module computes itself beside its children, by operator; what it makes from constants is
    one row, and plumbing without cost is left out."""
    groups: dict[str, list[Node]] = {}
    for node in module.nodes:
        if node.bytes or node.flops:
            label = CONSTANTS if node.kind == "constant" else node.op
            groups.setdefault(label, []).append(node)
    return groups
