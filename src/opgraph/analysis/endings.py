"""Why fused subgraphs end where they do: what reads their results, and why that is not taken in."""

from __future__ import annotations

from collections.abc import Sequence

from opgraph.analysis.fusion import Subgraph
from opgraph.graph import Graph


def endings(graph: Graph, parts: Sequence[Subgraph]) -> dict[int, str]:
    """Why each subgraph of a partition of the whole graph goes no further, in a few words, by its id."""
    home = {node: part for part in parts for node in part.nodes}
    results = frozenset(graph.outputs)
    return {part.id: _ending(graph, part, home, results) for part in parts}


def _ending(
    graph: Graph, part: Subgraph, home: dict[int, Subgraph], results: frozenset[int]
) -> str:
    made = [v for i in part.nodes for v in graph.node(i).outputs]
    readers = [user for v in made for user in graph.users.get(v, ()) if home[user.id] is not part]
    working = [user for user in readers if user.kind != "output"]
    if not working:
        returned = bool(readers) or any(v in results for v in made)
        return "its result is the model's" if returned else "nothing reads its result"
    after = dict.fromkeys(home[user.id] for user in working)
    if len(after) > 1:
        last = max(working, key=lambda user: user.id)
        return f"its result is read in {len(after)} subgraphs, last by {last.op} #{last.id}"
    (following,) = after
    reader = min(working, key=lambda user: user.id)
    seed = "starts" if following.nodes[0] == reader.id else "is of"
    return f"the next, {reader.op} #{reader.id}, {seed} {_named(following.rule)}"


def _named(rule: str) -> str:
    """A subgraph by its rule: "an attention", "a contraction"."""
    words = "a subgraph of its own" if rule in ("single", "none") else rule
    if words != rule:
        return words
    return f"{'an' if rule[:1] in 'aeiou' else 'a'} {rule}"
