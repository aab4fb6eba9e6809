"""Whatever graph it is, however it is nested: the tree holds every node once, and every picture at every
depth, the page and every way to explore it show it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.random_graphs import EXAMPLES, graphs, tried

from opgraph import Profile
from opgraph.analysis.selection import Filter, Range, select
from opgraph.analysis.tree import ItemKind, build_tree
from opgraph.record.graph import Graph, Node, Scope, Value
from opgraph.record.profile import Attempt, ModelInfo, Tracing
from opgraph.record.verify import verify
from opgraph.views import render
from opgraph.views.picture.build import is_hidden
from opgraph.views.picture.formats import written
from opgraph.views.picture.picture import Options, Picture
from opgraph.views.text.explore import node_list


def profile_of(graph: Graph) -> Profile:
    attempt = Attempt("eager", "fake")
    return Profile(verify(graph), ModelInfo("random", cls="Random"), Tracing((attempt,)))


def shape(item: Any) -> Any:
    return item.kind, item.count, [shape(c) for c in item.children]


@tried(EXAMPLES)
@given(graphs(), st.booleans())
def test_the_tree_holds_every_node_once_and_members_of_a_fold_are_alike(
    graph: Graph, fold: bool
) -> None:
    tree = build_tree(verify(graph), fold=fold)
    assert [leaf.node for leaf in tree.leaves] == [n.id for n in graph.nodes]
    for item in tree.items:
        ends = [(c.first, c.last) for c in item.children]
        if ends:
            assert (ends[0][0], ends[-1][1]) == (item.first, item.last)
            assert all(a[1] + 1 == b[0] for a, b in pairwise(ends))
        if item.kind is ItemKind.FOLD:
            assert len(item.children) == item.count
            assert len({repr(shape(c)) for c in item.children}) == 1
            assert len({repr(wiring(graph, c)) for c in item.children}) == 1


@pytest.mark.slow
def test_a_graph_of_modules_in_modules_nine_hundred_deep() -> None:
    paths = [".".join("c" * depth) for depth in range(900)]
    nodes = tuple(
        Node(i + 1, "call", "relu", f"relu_{i}", path, inputs=(i,), outputs=(i + 1,))
        for i, path in enumerate(paths)
    )
    values = tuple(Value(i, (1,), "float32", 4) for i in range(len(nodes) + 1))
    profile = profile_of(Graph(nodes, values, tuple(Scope(p, "Deep", 1) for p in paths)))
    costed = Profile.from_dict(profile.to_dict()).on()
    for view in ("svg", "html", "table"):
        assert render(view, costed)
    assert node_list(costed, select(costed, Range(around=450), Filter(), limit=None))


def wiring(graph: Graph, item: Any) -> Any:
    """The edges inside an item, by positions from its first node."""
    found = []
    for node in graph.nodes[item.first - 1 : item.last]:
        made = (graph.producer.get(v) for v in node.inputs)
        inside = [p.id - item.first for p in made if p is not None and p.id >= item.first]
        found.append((node.op, inside))
    return found


@pytest.mark.slow
@tried(EXAMPLES)
@given(graphs(), st.booleans(), st.booleans(), st.sampled_from(["down", "right"]))
def test_every_picture_at_every_depth(
    graph: Graph, fold: bool, parameters: bool, direction: str
) -> None:
    costed = profile_of(graph).on()
    options: dict[str, Any] = {"fold": fold, "parameters": parameters, "direction": direction}
    whole = Picture(costed, Options(**options))
    for depth in range(1, whole.drawing.deepest + 1):
        drawn = Picture(costed, Options(**options, depth=depth))
        shown = {i for box in drawn.drawing.boxes for i in box.nodes}
        assert shown >= {n.id for n in graph.nodes if not is_hidden(n)}
        for form in ("svg", "pdf", "dot", "mermaid"):
            assert written(drawn, form), (form, depth)
    module = graph.scopes[-1].path
    if any(n.scope == module or n.scope.startswith(f"{module}.") for n in graph.nodes) and module:
        assert render("svg", costed, **options, module=module)
    middle = len(graph.nodes) // 2 + 1
    assert render("svg", costed, **options, around=middle)
    assert render("svg", costed, **options, medium="column")


@pytest.mark.slow
@tried(max(1, EXAMPLES // 3))
@given(graphs())
def test_every_other_view_and_way_to_explore(graph: Graph) -> None:
    profile = profile_of(graph)
    costed = profile.on("h100")
    for form in ("html", "table", "markdown", "csv", "json", "graphml", "model-explorer", "trace"):
        assert render(form, costed), form
    middle = len(graph.nodes) // 2 + 1
    for where in (Range(1, middle), Range(middle, None), Range(around=middle, context=2)):
        for which in (Filter(), Filter(op="add"), Filter(module=graph.scopes[-1].path)):
            selection = select(costed, where, which, limit=None)
            for width in (60, 120):
                assert node_list(costed, selection, width=width)
    loaded = Profile.from_dict(profile.to_dict())
    assert loaded.to_json() == profile.to_json()
