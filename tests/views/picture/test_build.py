"""What is drawn: one box for each operator, one edge for each pair that share a tensor, and with repeats
folded or modules closed still every node in exactly one box and every FLOP in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import opgraph
from opgraph import Profile
from opgraph.analysis.tree import build_tree
from opgraph.record.graph import Graph
from opgraph.views.picture.build import FITTING_BOXES, build
from opgraph.views.picture.layout import Spacing, arrange
from opgraph.views.picture.model import Drawing
from opgraph.views.picture.picture import folded

MODELS = ("resnet18", "bert-base-uncased", "gpt2", "yolov8n")
WHOLE: dict[str, Any] = {"depth": 99, "fold": False}


def draw(graph: Graph, *, fold: bool = True, **options: Any) -> Drawing:
    return build(build_tree(graph, fold=fold), **options)


def operators(profile: Profile) -> set[int]:
    return {n.id for n in profile.graph.nodes if n.kind not in ("constant", "control")}


def pairs(profile: Profile) -> set[tuple[int, int]]:
    graph, shown = profile.graph, operators(profile)
    return {
        (graph.producer[v].id, n.id)
        for n in graph.nodes
        for v in n.inputs
        if n.id in shown and v in graph.producer and graph.producer[v].id in shown
    }


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_residuals_around_a_list_of_modules(depth: int) -> None:
    """The commonest layout: each module of a list holds one other, and what it gives is added."""

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)  # type: ignore[no-any-return]

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.ModuleList(Around() for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for a in self.l:
                x = a(x) + x
            return x

    profile = opgraph.profile(Stack(), torch.randn(2, 4))
    boxes = draw(profile.graph, depth=depth).boxes
    assert {n for box in boxes for n in box.nodes} == operators(profile)


@pytest.mark.parametrize("name", MODELS)
def test_the_whole_graph_has_a_box_for_each_operator_and_an_edge_for_each_pair(
    saved: Callable[[str], Profile], name: str
) -> None:
    profile = saved(name)
    drawing = draw(profile.graph, **WHOLE)
    assert {b.id for b in drawing.leaves} == {f"n{n}" for n in operators(profile)}
    drawn = {(int(e.source[1:]), int(e.target[1:])) for e in drawing.edges}
    assert drawn == pairs(profile)
    assert len(drawing.edges) == len(drawn)


@pytest.mark.parametrize("options", [WHOLE, {}, {"depth": 1}, {"depth": 2}, {"depth": 99}])
@pytest.mark.parametrize("name", MODELS)
def test_every_node_is_in_exactly_one_box_and_every_cost_in_one(
    saved: Callable[[str], Profile], name: str, options: dict[str, Any]
) -> None:
    profile = saved(name)
    drawing = draw(profile.graph, **options)
    inside = sorted(n for b in drawing.root.walk() for n in b.nodes)
    assert inside == [n.id for n in profile.graph.nodes]
    assert sum(b.total.flops for b in drawing.leaves) == profile.totals.flops
    assert sum(b.all_parameters for b in drawing.leaves) == profile.totals.parameters
    assert len({b.id for b in drawing.root.walk()}) == len(drawing.boxes) + 1


@pytest.mark.parametrize("name", MODELS)
def test_by_default_the_picture_fits(saved: Callable[[str], Profile], name: str) -> None:
    drawing = draw(saved(name).graph)
    assert len(drawing.leaves) <= FITTING_BOXES
    if drawing.depth < drawing.deepest:
        assert len(draw(saved(name).graph, depth=drawing.depth + 1).leaves) > FITTING_BOXES


def test_repeats_are_one_box_with_the_costs_of_one_and_of_all(
    saved: Callable[[str], Profile],
) -> None:
    layers = next(b for b in draw(saved("bert-base-uncased").graph).boxes if b.count > 1)
    assert (layers.name, layers.cls, layers.count) == ("encoder.layer.[0-11]", "BertLayer", 12)
    assert layers.parameters * 12 == layers.all_parameters == 85_054_464
    assert layers.cost.flops * 12 == layers.total.flops
    assert layers.looped


class Loop(nn.Module):
    """A body of two modules that runs five times, and a weight that two modules share."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.step = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.out = nn.Linear(8, 8)
        self.out.weight = self.body[0].weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = x + self.step(self.body(x))
        return self.out(x)


def test_a_loop_over_several_modules_is_drawn_once() -> None:
    drawing = draw(opgraph.profile(Loop(), torch.zeros(2, 8)).graph)
    folded = [b for b in drawing.boxes if b.count > 1]
    assert [(b.count, [c.name for c in b.children]) for b in folded] == [
        (5, ["body", "step", "add"])
    ]
    assert len(drawing.leaves) == 8  # x, five in the loop, out, output


class Residual(nn.Module):
    """Sequences with a residual connection around each, some of one module and some of two."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.l = nn.ModuleList(
            nn.Sequential(*(nn.Sequential(nn.Linear(8, 8)) for _ in range(size))) for size in sizes
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for a in self.l:
            x = a(x) + x
        return x


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 2, 2), (1, 1, 1, 2, 2, 2), (3, 3, 3, 3)])
@pytest.mark.parametrize("depth", [1, 2, 99])
def test_residual_connections_around_sequences_are_drawn(
    sizes: tuple[int, ...], depth: int
) -> None:
    profile = opgraph.profile(Residual(*sizes), torch.zeros(2, 8))
    drawing = draw(profile.graph, depth=depth)
    assert sum(b.total.flops for b in drawing.leaves) == profile.totals.flops
    folded = [b for b in drawing.boxes if b.count > 1 and b.name.startswith("l.")]
    assert sum(b.count for b in folded) == len(sizes)
    assert all(b.looped for b in folded)


@pytest.mark.slow
def test_a_module_that_is_called_again_is_another_box_and_edges_never_turn_back() -> None:
    profile = opgraph.profile(Loop(), torch.zeros(2, 8))
    drawing = draw(profile.graph, depth=1, fold=False)
    assert [(b.name, b.turn, b.turns) for b in drawing.leaves if b.name == "step"] == [
        ("step", turn, 5) for turn in range(1, 6)
    ]
    place = {b.id: i for i, b in enumerate(drawing.leaves)}
    assert all(place[e.source] < place[e.target] for e in drawing.edges)


def test_tied_weights_are_counted_once_and_marked() -> None:
    drawing = draw(opgraph.profile(Loop(), torch.zeros(2, 8)).graph, depth=99)
    out = next(b for b in drawing.leaves if b.name == "out")
    assert out.tied == ("body.0.weight",)
    assert out.parameters == 8  # the bias


def test_parameters_are_drawn_when_asked_for(saved: Callable[[str], Profile]) -> None:
    graph = saved("resnet18").graph
    drawing = draw(graph, depth=99, fold=False, parameters=True)
    drawn = [b for b in drawing.leaves if b.kind == "parameters"]
    assert len(drawn) == sum(bool(n.parameters) for n in graph.nodes)
    assert drawn[0].lines == ("weight 64x3x7x7",)


class Tied(nn.Module):
    """A weight that is used between other layers, and again at the end, in another fragment."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third, self.last = (nn.Linear(8, 8) for _ in range(4))
        self.last.weight = self.second.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first(x))
        torch._dynamo.graph_break()
        return self.last(self.third(x))


@pytest.mark.slow
@pytest.mark.parametrize("tracer", ["eager", "dynamo"])
def test_a_parameter_used_in_several_places_is_one_box_above_the_first(tracer: str) -> None:
    graph = opgraph.profile(Tied(), torch.zeros(2, 8), tracer=tracer).graph
    assert len(graph.breaks) == (tracer == "dynamo")
    drawing = draw(graph, depth=99, fold=False, parameters=True)
    (weight,) = (b for b in drawing.leaves if b.lines[-1:] == ("used in 2 places",))
    assert weight.lines[0] == "weight 8x8 (tied)"
    users = [drawing.box[e.target].name for e in drawing.edges if e.source == weight.id]
    assert users == ["second", "last"]
    sizes = {b.id: (140.0, 44.0) for b in drawing.boxes}
    rects = arrange(drawing.root, drawing.edges, sizes, Spacing()).rects
    row = {b.name: rects[b.id].y for b in drawing.leaves if b.kind not in ("parameters", "seam")}
    # In the row before its first use, and so the input stays where it is, in the first row.
    assert rects[weight.id].y == row["first"] > row["x"]
    assert row["x"] == min(rects[b.id].y for b in drawing.leaves)


def test_a_part_has_its_neighbours_as_stubs(saved: Callable[[str], Profile]) -> None:
    graph = saved("bert-base-uncased").graph
    module = "encoder.layer.3"
    nodes = tuple(n for n in graph.nodes if n.scope.startswith(f"{module}."))
    drawing = build(build_tree(graph, nodes, root=module), module=module)
    stubs = [b.name for b in drawing.leaves if b.kind == "stub"]
    assert stubs == ["encoder.layer.2", "encoder.layer.4"]
    assert {n for b in drawing.root.walk() for n in b.nodes} == {n.id for n in nodes}


class Branching(nn.Module):
    """A branch on the value of a tensor: a graph break."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if y.sum() > 0:
            y = y * 2
        return x + y


@pytest.mark.slow
def test_graph_breaks_are_seams_between_what_is_before_and_behind() -> None:
    profile = opgraph.profile(
        nn.Sequential(Branching(), Branching()), torch.ones(2, 8), tracer="dynamo"
    )
    drawing = draw(profile.graph, depth=99, fold=False)
    seams = [b for b in drawing.leaves if b.kind == "seam"]
    assert len(seams) >= 2
    assert [b.breaks for b in seams] == [(b,) for b in profile.graph.breaks]
    assert "tensor" in seams[0].lines[0]
    order = [b.id for b in drawing.leaves]
    last = max(n.id for n in profile.graph.nodes if n.fragment == 1)
    assert order.index(f"n{last}") < order.index(seams[0].id) < order.index(f"n{last + 1}")


@pytest.mark.slow
def test_a_failed_node_says_why() -> None:
    class Bad(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.ReLU(), nn.Linear(3, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x)  # type: ignore[no-any-return]

    drawing = draw(opgraph.profile(Bad(), torch.ones(2, 8), partial=True).graph, depth=99)
    failed = next(b for b in drawing.leaves if b.error)
    assert failed.name == "1"
    assert "RuntimeError" in (failed.error or "")
    closed = draw(opgraph.profile(Bad(), torch.ones(2, 8), partial=True).graph, depth=1)
    assert next(b for b in closed.leaves if b.name == "body").error == failed.error


def test_repeats_of_one_name_are_told_apart_beneath_the_picture() -> None:
    class Half(nn.Sequential):
        def __init__(self) -> None:
            blocks = (nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))
            super().__init__()
            self.block, self.norm = nn.Sequential(*blocks), nn.LayerNorm(4)

    model = nn.Sequential(Half(), nn.ReLU(), Half())
    said = folded(draw(opgraph.profile(model, torch.zeros(2, 4)).graph))
    assert said.endswith("Drawn once: 0.block.[0-2] × 3, 2.block.[0-2] × 3."), said
