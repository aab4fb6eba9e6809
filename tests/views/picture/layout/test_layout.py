"""The layout keeps its promises whatever it is given: boxes lie inside their boxes and beside each other,
lines run upright or level and through no box."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opgraph import Profile
from opgraph.views.picture.layout import Geometry, Rect, Spacing, arrange
from opgraph.views.picture.model import Box, Edge
from opgraph.views.picture.picture import Options, Picture


def problems(root: Box, edges: tuple[Edge, ...], geometry: Geometry) -> Iterator[str]:
    rects = geometry.rects
    for box in root.walk():
        around = rects[box.id]
        for child in box.children:
            r = rects[child.id]
            if min(r.x - around.x, r.y - around.y) < -0.1 or not within(r, around):
                yield f"{child.id} is not inside {box.id}"
        for a, b in combinations(box.children, 2):
            if overlap(rects[a.id], rects[b.id]):
                yield f"{a.id} lies on {b.id}"
    leaves = [(b.id, rects[b.id]) for b in root.walk() if not b.open and b is not root]
    for edge, line in zip(edges, geometry.lines, strict=True):
        if not touches(line[0], rects[edge.source]) or not touches(line[-1], rects[edge.target]):
            yield f"{edge.source}-{edge.target} does not end at its boxes"
        for a, b in pairwise(line):
            if abs(a[0] - b[0]) > 0.6 and abs(a[1] - b[1]) > 0.6:
                yield f"{edge.source}-{edge.target} is askew"
            piece = Rect(min(a[0], b[0]), min(a[1], b[1]), abs(a[0] - b[0]), abs(a[1] - b[1]))
            for name, rect in leaves:
                if overlap(piece, rect):
                    yield f"{edge.source}-{edge.target} runs through {name}"


def within(inner: Rect, outer: Rect) -> bool:
    return (
        inner.x + inner.width <= outer.x + outer.width + 0.1
        and inner.y + inner.height <= outer.y + outer.height + 0.1
    )


def overlap(a: Rect, b: Rect) -> bool:
    return (
        a.x < b.x + b.width - 0.5 and b.x + 0.5 < a.x + a.width
        and a.y < b.y + b.height - 0.5 and b.y + 0.5 < a.y + a.height
    )  # fmt: skip


def touches(point: tuple[float, float], rect: Rect) -> bool:
    return (
        rect.x - 0.1 <= point[0] <= rect.x + rect.width + 0.1
        and rect.y - 0.1 <= point[1] <= rect.y + rect.height + 0.1
    )


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["down", "right"])
@pytest.mark.parametrize(
    "options", [{}, {"depth": 99, "fold": False}, {"depth": 99, "parameters": True}]
)
@pytest.mark.parametrize("name", ["resnet18", "bert-base-uncased", "gpt2", "yolov8n"])
def test_models(
    saved: Callable[[str], Profile], name: str, options: dict[str, Any], direction: str
) -> None:
    drawing = Picture(saved(name).on(), Options(**options)).drawing
    sizes = {b.id: (140.0, 44.0) for b in drawing.boxes}
    spacing = Spacing(title_across=direction == "right")
    geometry = arrange(drawing.root, drawing.edges, sizes, spacing, across=direction == "right")
    assert not list(problems(drawing.root, drawing.edges, geometry))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Box, tuple[Edge, ...]]:
    """Any boxes in boxes, in the order in which they run, and any edges forward."""
    count = draw(st.integers(2, 24))
    leaves: list[Box] = [Box(f"n{i}", "operator", f"n{i}") for i in range(count)]
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=40, unique=True))
    outputs = {pair: draw(st.integers(0, 2)) for pair in chosen}
    edges = tuple(Edge(f"n{a}", f"n{b}", 10 * a + outputs[a, b], (), (), "", 1) for a, b in chosen)
    row, made = leaves, 0
    for _ in range(draw(st.integers(0, 3))):
        cuts = sorted(draw(st.sets(st.integers(0, len(row)), max_size=6)))
        if len(cuts) >= 2:
            grouped: list[Box] = row[: cuts[0]]
            for start, end in pairwise(cuts):
                grouped.append(
                    Box(f"m{made}", "module", f"m{made}", children=tuple(row[start:end]))
                )
                made += 1
            row = grouped + row[cuts[-1] :]
    return Box("root", "module", "root", children=tuple(row)), edges


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(graphs(), st.booleans(), st.booleans(), st.sampled_from([120.0, 600.0, 1500.0, 1e9]))
def test_any_graph(
    graph: tuple[Box, tuple[Edge, ...]], across: bool, single: bool, longest: float
) -> None:
    root, edges = graph
    sizes = {b.id: (60.0 + 10 * (len(b.id) % 5), 30.0) for b in root.walk()}
    spacing = Spacing(title_across=across, longest=longest, slimmest=0.5, single=single)
    geometry = arrange(root, edges, sizes, spacing, across=across)
    assert list(problems(root, edges, geometry)) == []
    for box in root.walk() if single and longest == 1e9 else ():
        for above, below in pairwise(geometry.rects[child.id] for child in box.children):
            if across:
                assert above.x + above.width < below.x
            else:
                assert above.y + above.height < below.y
