"""The tree of a run: what is folded, how repeats are named, and that figures add up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import opgraph
from opgraph import Profile
from opgraph.analysis.calls import span
from opgraph.analysis.tree import Item, ItemKind, Metric, Tree, build_tree

Saved = Callable[[str], Profile]

COUNTED = (
    Metric.FLOPS, Metric.OTHER_FLOPS, Metric.BYTES, Metric.MEMORY, Metric.KERNELS, Metric.UNKNOWN,
)  # fmt: skip


def folds(tree: Tree) -> dict[str, int]:
    """The folds that a reader sees first, by the paths of all their repetitions, with their counts."""
    return {tree.title(i): i.count for i in tree.root.shown() if i.kind is ItemKind.FOLD}


def find(tree: Tree, title: str) -> Item:
    return next(i for i in tree.root.shown() if tree.title(i.member) == title)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet18", {"layer1.[0-1]": 2}),
        ("bert-base-uncased", {"encoder.layer.[0-11]": 12}),
        ("gpt2", {"h.[0-11]": 12}),
        ("yolov8n", {
            "model.2.m.0.cv[1-2]": 2, "model.4.m.[0-1]": 2, "model.4.m.[0-1].cv[1-2]": 2,
            "model.6.m.[0-1]": 2, "model.6.m.[0-1].cv[1-2]": 2, "model.8.m.0.cv[1-2]": 2,
            "model.9.m": 3, "model.12.m.0.cv[1-2]": 2, "model.15.m.0.cv[1-2]": 2,
            "model.18.m.0.cv[1-2]": 2, "model.21.m.0.cv[1-2]": 2, "model.22.cv2.0.[0-1]": 2,
        }),
    ],
)  # fmt: skip
def test_real_models_are_folded(saved: Saved, name: str, expected: dict[str, int]) -> None:
    assert folds(build_tree(saved(name).graph)) == expected


@pytest.mark.parametrize("name", ["resnet18", "bert-base-uncased", "gpt2", "yolov8n", "resnet50"])
@pytest.mark.parametrize("fold", [True, False])
def test_every_item_is_an_interval_and_figures_add_up(saved: Saved, name: str, fold: bool) -> None:
    profile = saved(name)
    tree = build_tree(profile.graph, fold=fold)
    assert [leaf.node for leaf in tree.leaves] == [n.id for n in profile.graph.nodes]
    for number, item in enumerate(tree.items):
        assert item.id == number
        if item.children:
            assert item.first == item.children[0].first
            assert item.last == item.children[-1].last
            for a, b in zip(item.children, item.children[1:], strict=False):
                assert a.last + 1 == b.first
        for metric in COUNTED:
            share = tree.share(metric, item)
            assert share.each * share.times == share.total
            below = sum(tree.total(metric, child) for child in item.children)
            assert not item.children or item.kind is ItemKind.FOLD or below == share.total
    for metric in (*COUNTED, Metric.PARAMETERS):
        shown = [i for i in tree.root.shown() if i.node]
        assert sum(tree.total(metric, i) for i in shown) == tree.total(metric, tree.root)
    totals = profile.totals
    assert tree.cost(tree.root) == totals.cost
    assert tree.total(Metric.PARAMETERS, tree.root) == totals.parameters


def test_what_stands_in_a_fold_counts_as_often_as_it_runs(saved: Saved) -> None:
    tree = build_tree(saved("bert-base-uncased").graph)
    attention = find(tree, "encoder.layer.[0-11].attention")
    assert (attention.times, attention.count) == (12, 1)
    share = tree.share(Metric.FLOPS, attention)
    assert share.total == 12 * share.each
    assert share.share == share.total / tree.total(Metric.FLOPS, tree.root)
    nodes = tree.nodes_of(attention)
    assert {n.scope.split(".")[2] for n in nodes} == {str(i) for i in range(12)}
    assert sum(n.flops for n in nodes) == share.total


def test_time_of_one_repetition_is_the_mean(saved: Saved) -> None:
    graph = saved("gpt2").graph
    seconds = {n.id: n.id * 1e-6 for n in graph.nodes}
    tree = build_tree(graph, seconds=seconds)
    layers = find(tree, "h.[0-11]")
    share = tree.share(Metric.SECONDS, layers)
    assert share.each == pytest.approx(share.total / 12)
    assert share.total == pytest.approx(sum(seconds[n.id] for n in tree.nodes_of(layers)))
    assert tree.figures(layers).seconds == share
    assert build_tree(graph).figures(tree.root).seconds is None


@pytest.mark.parametrize("name", ["resnet18", "bert-base-uncased"])
def test_a_hot_spot_that_holds_modules_is_what_it_computes_itself(saved: Saved, name: str) -> None:
    profile = saved(name)
    scopes = {node.scope for node in profile.graph.nodes}
    for spot in profile.on().tree.hot_spots(every=True):
        path = profile.graph.node(spot.leaves[0].node).scope
        holds = not path or any(scope.startswith(f"{path}.") for scope in scopes)
        assert spot.label.endswith(" itself") == holds


def test_hot_spots_are_by_time_where_it_is_known_and_else_by_flops(saved: Saved) -> None:
    graph = saved("gpt2").graph
    costliest = build_tree(graph).hot_spots(3)
    assert [h.path for h in costliest] == [
        "h.[0-11].mlp.c_fc", "h.[0-11].mlp.c_proj", "h.[0-11].attn.c_attn",
    ]  # fmt: skip
    assert costliest[0].nodes == 36
    assert costliest[0].share == costliest[0].cost.flops / sum(n.flops for n in graph.nodes)
    slow = next(n for n in graph.nodes if n.op == "layer_norm")
    hottest = build_tree(graph, seconds={slow.id: 1.0}).hot_spots(1)[0]
    assert (hottest.path, hottest.seconds, hottest.share) == ("h.[0-11].ln_1", 1.0, 1.0)
    tree = build_tree(graph)
    whole, every = tree.hot_spots(), tree.hot_spots(every=True)
    assert sum(h.cost.flops for h in whole) == sum(n.flops for n in graph.nodes)
    assert all(h.share > 0 for h in whole)
    assert every[: len(whole)] == whole
    assert "h.[0-11].ln_1" in {h.path for h in every} - {h.path for h in whole}


class Residual(nn.Module):
    """Each of its blocks is one sequence that ends in an addition outside of it."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.l = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.l:
            x = block(x) + x
        return x


def test_patterns_of_modules_and_operators_are_folded() -> None:
    tree = build_tree(opgraph.profile(Residual(4), torch.randn(2, 8)).graph)
    (fold,) = [i for i in tree.items if i.kind is ItemKind.FOLD]
    assert (fold.count, fold.member.kind) == (4, ItemKind.GROUP)
    assert [i.label for i in fold.member.children] == ["l.0", "add"]
    assert tree.title(find(tree, "l.[0-3].0")) == "l.[0-3].0"


def test_a_repetition_begins_where_it_reads_the_fewest_results() -> None:
    """An addition before a loop of additions is none of the loop's, although it looks like one."""

    class Looped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
            x = x + p
            for _ in range(4):
                x = x + self.c(x)
            return x

    graph = opgraph.profile(Looped(), (torch.randn(2, 8), torch.randn(2, 8))).graph
    (fold,) = [i for i in build_tree(graph).items if i.kind is ItemKind.FOLD]
    assert (fold.count, [i.label for i in fold.member.children]) == (4, ["c", "add_1"])


class Shared(nn.Module):
    """A block that is called three times at once, a tied head, and a layer that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 8, bias=False)
        self.head.weight = self.block[0].weight
        self.unused = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = self.block(x)
        return self.head(x)


def test_calls_of_one_module_are_told_apart_and_parameters_count_once() -> None:
    profile = opgraph.profile(Shared(), torch.randn(2, 8))
    tree = build_tree(profile.graph)
    (fold,) = [i for i in tree.items if i.kind is ItemKind.FOLD]
    assert (fold.label, fold.count) == ("block", 3)
    assert [i.call for i in fold.children] == [1, 2, 3]
    assert tree.total(Metric.PARAMETERS, fold) == 72
    assert tree.total(Metric.PARAMETERS, find(tree, "head")) == 0
    assert [(m.path, m.cls, m.parameters, m.owner) for m in tree.idle] == [
        ("unused", "Linear", 27, tree.root.id)
    ]
    assert tree.total(Metric.PARAMETERS, tree.root) == profile.totals.parameters == 99


class Partly(nn.Module):
    """Of a list two layers run, another module not at all, and of a third the parent uses a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.off = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)))
        self.part = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[1](self.layers[0](x)) @ self.part.weight


def test_what_never_runs_is_one_module_the_outermost() -> None:
    profile = opgraph.profile(Partly(), torch.ones(2, 4))
    tree = build_tree(profile.graph)
    assert [(m.path, m.cls, m.parameters) for m in tree.idle] == [
        ("", "Partly", 3), ("layers.2", "Linear", 20), ("off", "Sequential", 40), ("part", "Linear", 4),
    ]  # fmt: skip
    assert tree.total(Metric.PARAMETERS, tree.root) == profile.totals.parameters == 123


class Pyramid(nn.Module):
    """One head on maps of two sizes, as detectors have it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.head(x), self.head(x[..., ::2, ::2])


def test_each_call_of_one_module_has_its_own_output() -> None:
    tree = build_tree(opgraph.profile(Pyramid(), torch.randn(1, 3, 8, 8)).graph)
    calls = [i for i in tree.items if i.path in ("head", "head.0") and i.call]
    shapes = {(i.path, i.call): value.shape for i in calls if (value := tree.output(i)) is not None}
    large, small = (1, 5, 8, 8), (1, 5, 4, 4)
    assert shapes == {
        ("head", 1): large, ("head", 2): small, ("head.0", 1): large, ("head.0", 2): small,
    }  # fmt: skip


def test_the_backward_of_a_call_hands_on_the_gradient_of_its_input() -> None:
    """That of the first call, whose input needs none, ends with the gradients of its weights."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(torch.relu(self.a(x)[:1]))

    graph = opgraph.profile(Twice(), torch.zeros(3, 4), mode="train", loss="sum").graph
    tree = build_tree(graph)
    (backward,) = (i for i in tree.root.children if i.label == "backward")
    found = [tree.output(i) for i in backward.children if i.path == "a"]
    assert [value and value.shape for value in found] == [(1, 4), (4, 4)]


def test_marks_keep_nodes_apart(saved: Saved) -> None:
    graph = saved("gpt2").graph
    changed = next(n.id for n in graph.nodes if n.scope == "h.5.attn.c_attn")
    tree = build_tree(graph, mark=lambda n: n.id == changed)
    assert folds(tree) == {"h.[0-4]": 5, "h.[6-11]": 6}


def test_phases_stand_first() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    graph = opgraph.profile(model, torch.randn(2, 8), mode="train").graph
    tree = build_tree(graph)
    *phases, returned = tree.root.children
    assert [i.label for i in phases] == ["forward", "backward", "optimizer"]
    assert {i.kind for i in phases} == {ItemKind.PHASE}
    assert returned.label == "output"


def test_part_of_a_graph(saved: Saved) -> None:
    graph = saved("bert-base-uncased").graph
    inside = [n for n in graph.nodes if n.scope.startswith("encoder.layer.3")]
    tree = build_tree(graph, inside, root="encoder.layer.3")
    assert (tree.root.path, tree.root.cls) == ("encoder.layer.3", "BertLayer")
    assert {i.path for i in tree.root.children} >= {"encoder.layer.3.attention"}
    assert tree.total(Metric.FLOPS, tree.root) == sum(n.flops for n in inside)
    assert tree.idle == ()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["layer.0", "layer.1", "layer.11"], "layer.[0-11]"),
        (["0", "1"], "[0-1]"),
        (["[0-1]", "[2-3]", "[4-5]"], "[0-5]"),
        (["0", "2", "4"], "[0-4:2]"),
        (["cv1.conv", "cv2.conv"], "cv[1-2].conv"),
        (["relu", "relu"], "relu"),
        (["left", "right"], "left … right"),
    ],
)
def test_repeats_have_one_name(labels: list[str], expected: str) -> None:
    assert span(labels) == expected


def test_operators_that_repeat_alone_belong_to_the_module_around_them() -> None:
    class Sines(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(5):
                x = x.sin()
            return x

    (spot,) = build_tree(opgraph.profile(Sines(), torch.randn(2)).graph).hot_spots()
    assert (spot.path, spot.cls, spot.nodes) == ("", "Sines", 7), "input and output, too"


def layer(*functions: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], nn.Module]:
    class Layer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for function in functions:
                x = function(x)
            return x

    return Layer


def test_patterns_of_several_lengths_keep_all_that_is_in_them() -> None:
    a, b, c = layer(torch.sin, torch.cos), layer(torch.tan, torch.exp), layer(torch.erf, torch.abs)
    kinds = [a, b, a, b, a, b, nn.ReLU, a, b, c, a, b, c, a, b, c]
    tree = build_tree(opgraph.profile(nn.Sequential(*(k() for k in kinds)), torch.randn(2)).graph)
    assert folds(tree) == {"[0-5]": 3, "[7-15]": 3}
    assert len(tree.leaves) == len(tree.nodes)


def test_members_of_a_fold_are_wired_alike() -> None:
    """The second pair adds what its first part reads, too: it is like no other."""

    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.ModuleList(layer(torch.sin, torch.cos)() for _ in range(8))
            self.b = nn.ModuleList(nn.Bilinear(4, 4, 4) for _ in range(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for i, (a, b) in enumerate(zip(self.a, self.b, strict=True)):
                made = a(x)
                x = b(made, x if i == 3 else made)
            return x

    tree = build_tree(opgraph.profile(Pairs(), torch.randn(2, 4)).graph)
    assert [(i.kind, i.count) for i in tree.root.children if i.kind is not ItemKind.NODE] == [
        (ItemKind.FOLD, 3), (ItemKind.MODULE, 1), (ItemKind.FOLD, 4),
    ]  # fmt: skip


@pytest.mark.slow
def test_long_lists_take_no_quadratic_work() -> None:
    """Equal operators side by side: none reads what another makes, so none is folded."""

    class Wide(nn.Module):
        def __init__(self, count: int) -> None:
            super().__init__()
            self.count = count

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(self.count):
                x.relu()
            return x

    def lines(count: int) -> int:
        """How many lines of Python it takes."""
        graph, ran = opgraph.profile(Wide(count), torch.randn(2)).graph, 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal ran
            ran += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            tree = build_tree(graph)
        finally:
            sys.settrace(before)
        assert not folds(tree)
        return ran

    assert lines(800) < 2.5 * lines(400)
