"""The partition into fused subgraphs: every node once, each with a reason; what fusion saves."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

import opgraph
from opgraph.analysis.fusion.partition import fused_subgraphs, savings, singletons
from opgraph.record.graph import Graph


def parts_of(module: nn.Module, *inputs: torch.Tensor) -> list[tuple[str, list[str]]]:
    """Rules and operators of the subgraphs that do something."""
    graph = opgraph.profile(module, inputs).graph
    return [
        (p.rule, [graph.node(i).op for i in p.nodes])
        for p in fused_subgraphs(graph)
        if p.rule not in ("boundary", "view")
    ]


class ConvBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)

    def forward(self, x):
        x = self.bn(self.conv(x))
        return x * torch.sigmoid(x)


class SpelledAttention(nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1) / 8 + 1
        return torch.softmax(scores, -1) @ v


class AttentionWithItsScores(SpelledAttention):
    def forward(self, q, k, v):
        scores = torch.softmax(q @ k.transpose(-2, -1), -1)
        return scores @ v, scores


class RootMeanSquare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)

    def forward(self, x, y):
        x = x + y
        return x + self.norm(x)


class TwoUsers(nn.Module):
    """The convolution's result is needed twice: the epilogue may not swallow it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

    def forward(self, x):
        x = self.one(x)
        return torch.relu(x) + self.two(x)


def tokens(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


@pytest.mark.parametrize(
    ("module", "inputs", "expected"),
    [
        (ConvBlock(), (tokens(1, 3, 8, 8),),
         [("contraction", ["conv2d", "batch_norm", "sigmoid", "mul"])]),
        (SpelledAttention(), (tokens(1, 2, 4, 8),) * 3,
         [("attention", ["transpose", "matmul", "div", "add", "softmax", "matmul"])]),
        (AttentionWithItsScores(), (tokens(1, 2, 4, 8),) * 3,
         [("contraction", ["transpose", "matmul"]), ("softmax", ["softmax"]),
          ("contraction", ["matmul"])]),
        (RootMeanSquare(), (tokens(2, 16),),
         [("normalization", ["pow", "mean", "add", "rsqrt", "mul", "mul"])]),
        (Residual(), (tokens(2, 16), tokens(2, 16)),
         [("normalization", ["add", "layer_norm", "add"])]),
        (TwoUsers(), (tokens(1, 3, 8, 8),),
         [("contraction", ["conv2d"]), ("elementwise", ["relu"]), ("contraction", ["conv2d", "add"])]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)  # fmt: skip
def test_what_goes_together(module, inputs, expected):
    assert parts_of(module, *inputs) == expected


class FarView(nn.Module):
    """A view stands too far behind what made its data to be held together with it."""

    def forward(self, x):
        early = torch.cumsum(x, -1)
        for _ in range(450):
            x = torch.cumsum(x, -1)
        return early.unsqueeze(0) + x


def test_a_view_that_nothing_takes_in_stands_alone():
    graph = opgraph.profile(FarView(), inputs=(tokens(4, 8),)).graph
    parts = fused_subgraphs(graph)
    assert sorted(i for p in parts for i in p.nodes) == [n.id for n in graph.nodes]
    assert all(p.nodes for p in parts)


def test_traffic_by_hand():
    """2x16 floats: 128 bytes in, 128 out, the weight's 64 bytes once; the mean is never written."""
    graph = opgraph.profile(RootMeanSquare(), (tokens(2, 16),)).graph
    part = next(p for p in fused_subgraphs(graph) if p.rule == "normalization")
    assert (part.fused_read, part.fused_written) == (128 + 64, 128)
    assert part.cost.bytes == sum(k.bytes for n in graph.nodes for k in n.kernels)


NAMES = ("resnet18", "bert-base-uncased", "gpt2", "yolov8n")


@pytest.mark.parametrize("name", NAMES)
def test_the_partition_of_well_known_models(saved, golden, name):
    graph = saved(name).graph
    shapes = Counter(
        (p.rule, " ".join(graph.node(i).op for i in p.nodes)) for p in fused_subgraphs(graph)
    )
    lines = [f"{count:4} {rule:14} {ops}" for (rule, ops), count in sorted(shapes.items())]
    saving = [
        f"{s.rule:14} {s.kernels:4} kernels -> {s.fused_kernels:4}"
        f"  {s.bytes:12,} bytes -> {s.fused_bytes:12,}"
        for s in savings(fused_subgraphs(graph))
    ]
    head = f"{len(graph.nodes)} nodes in {sum(shapes.values())} subgraphs"
    golden("\n".join([head, "", *lines, "", *saving, ""]), f"partition-{name}.txt")


def depends(graph: Graph, parts) -> dict[int, set[int]]:
    """Which subgraphs each subgraph reads from."""
    home = {i: p.id for p in parts for i in p.nodes}
    edges: dict[int, set[int]] = {p.id: set() for p in parts}
    for node in graph.nodes:
        for value in node.inputs:
            source = graph.producer.get(value)
            if source is not None and home[source.id] != home[node.id]:
                edges[home[node.id]].add(home[source.id])
    return edges


@pytest.mark.parametrize("name", NAMES)
def test_every_node_is_in_one_subgraph_and_subgraphs_can_run_as_a_whole(saved, name):
    graph = saved(name).graph
    parts = fused_subgraphs(graph)
    assert sorted(i for p in parts for i in p.nodes) == [n.id for n in graph.nodes]
    edges = depends(graph, parts)
    done: set[int] = set()
    waiting = set(edges)
    while waiting:
        ready = {i for i in waiting if edges[i] <= done}
        assert ready, "subgraphs wait for one another"
        done |= ready
        waiting -= ready


@pytest.mark.parametrize("name", NAMES)
def test_costs_are_kept_and_fusion_never_moves_more(saved, name):
    profile = saved(name)
    for parts in (fused_subgraphs(profile.graph), singletons(profile.graph)):
        assert sum(p.cost.flops for p in parts) == profile.totals.flops
        assert sum(p.cost.bytes for p in parts) == profile.totals.bytes
        assert all(p.fused_bytes <= p.cost.bytes for p in parts)
