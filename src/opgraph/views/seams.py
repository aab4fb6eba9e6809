"""The fragments of a broken graph and the breaks between them, as lines of the summary."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from opgraph import units
from opgraph.analysis.fragments import dominant, fragments, outside
from opgraph.document import Profile
from opgraph.graph import GraphBreak

_SHOWN = 4


def seams(profile: Profile, *, verbose: bool = False) -> list[tuple[str, str]]:
    """How many fragments there are, which one dominates, what ran between them, and where and why each
    ended: the first few, or all with `verbose`. Nothing where there is one fragment or none."""
    graph = profile.graph
    largest = dominant(graph)
    if largest is None:
        return []
    total = profile.totals.flops
    share = f", {units.percent(largest.cost.flops / total)} of FLOPs" if total else ""
    between = outside(graph).nodes
    size = units.plural(largest.nodes, "node") + share
    first = f"{len(fragments(graph))}, the largest is number {largest.number} ({size})"
    if between:
        first += f"; {units.plural(between, 'node')} ran in Python between them"
    lines = list(_breaks(graph.breaks))
    shown = lines if verbose else lines[:_SHOWN]
    hidden = len(lines) - len(shown)
    more = [f"… and {units.plural(hidden, 'more place')}, with -v"] if hidden else []
    return [("Fragments", first), *(("", line) for line in (*shown, *more))]


def _breaks(breaks: tuple[GraphBreak, ...]) -> Iterator[str]:
    """One line for neighbouring breaks of one reason at one place."""
    for (reason, file, line), same in groupby(breaks, key=lambda b: (b.reason, b.file, b.line)):
        numbers = [b.fragment for b in same]
        span = f"{numbers[0]}" if len(numbers) == 1 else f"each of {numbers[0]} to {numbers[-1]}"
        where = f" at {file}:{line}" if file else ""
        yield f"break after {span}{where}: {reason}"
