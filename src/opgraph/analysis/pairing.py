"""The nodes of two graphs, laid over each other: which node of one is which of the other. Modules are
aligned first; in each pair of modules the nodes are matched by operator, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from opgraph.analysis.alignment import Change, align
from opgraph.analysis.modules import ModuleCost
from opgraph.graph import Graph


@dataclass(frozen=True, slots=True)
class Pairing:
    """`before` gives, for each node of the later graph in order, the id of its node in the earlier one,
    or 0 where it was added. `removed` are the ids of nodes that are gone, each with the path of the
    module of the later graph in which it stood."""

    before: tuple[int, ...]
    removed: tuple[tuple[int, str], ...]


def pair_nodes(before: Graph, after: Graph) -> Pairing:
    """Pair the nodes of two graphs."""
    pairs = [0] * len(after.nodes)
    removed: list[tuple[int, str]] = []
    for here, old, new in _modules(align(before, after, fold=False), ""):
        was, now = old.nodes if old else (), new.nodes if new else ()
        matcher = SequenceMatcher(None, [n.op for n in was], [n.op for n in now], autojunk=False)
        for kind, i1, i2, j1, j2 in matcher.get_opcodes():
            if kind == "equal":
                for a, b in zip(was[i1:i2], now[j1:j2], strict=True):
                    pairs[b.id - 1] = a.id
            else:
                removed += [(a.id, here) for a in was[i1:i2]]
    return Pairing(tuple(pairs), tuple(sorted(removed)))


def _modules(
    change: Change, here: str
) -> Iterator[tuple[str, ModuleCost | None, ModuleCost | None]]:
    """Every pair of modules, with the path of the nearest one around it that still is."""
    if change.after is not None:
        here = change.after.path
    yield here, change.before, change.after
    for child in change.children:
        yield from _modules(child, here)
    if not change.children and (change.before is None or change.after is None):
        for module in change.either.children:
            alone = Change(module, None) if change.after is None else Change(None, module)
            yield from _modules(alone, here)
