"""The blocks of which a model consists, and the modules that cost most."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from opgraph.analysis.modules import ModuleCost, fold, module_tree
from opgraph.graph import Graph


def repeats(graph: Graph) -> tuple[ModuleCost, ...]:
    """The blocks that are repeated without a difference, folded (`encoder.layer.[0-11]`, `count` 12),
    in order. Repeats inside a repeated block are not listed."""
    return tuple(_outermost(fold(module_tree(graph))))


def _outermost(module: ModuleCost) -> Iterator[ModuleCost]:
    if module.count > 1:
        yield module
        return
    for child in module.children:
        yield from _outermost(child)


def dearest(
    graph: Graph, most: int, cost: Callable[[ModuleCost], float] = lambda m: m.own.flops
) -> tuple[ModuleCost, ...]:
    """The modules that cost most themselves (not through what is below them), dearest first; repeated
    ones are one. Where nothing has FLOPs, the bytes decide."""
    modules = [m for m in fold(module_tree(graph)).walk() if m.own.bytes or m.own.flops]
    ordered = sorted(modules, key=lambda m: (-cost(m), -m.own.bytes, m.path))
    return tuple(ordered[:most])
