"""Automatic mixed precision on paper: which dtype everything has, and what is converted."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import opgraph
from opgraph.analysis.cost.precision import autocast
from opgraph.record.verify import verify


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 1)
        self.bn = nn.BatchNorm2d(8)
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x):
        x = self.bn(self.conv(x)).flatten(2).transpose(1, 2)
        y = self.linear(self.norm(x))
        return torch.softmax(y * self.scale + x, -1)


@pytest.fixture(scope="module")
def half():
    return autocast(opgraph.profile(Block(), (torch.zeros(2, 4, 4, 4),)).graph)


def dtypes(graph):
    return {n.op: graph.value[n.outputs[0]].dtype for n in graph.nodes if n.kind == "call"}


def test_each_operator_has_the_dtype_that_autocast_gives_it(half):
    assert dtypes(half) == {
        "conv2d": "float16",  # a contraction
        "batch_norm": "float16",  # follows its input, whatever its weights are
        "flatten": "float16",
        "transpose": "float16",
        "layer_norm": "float32",  # kept in float32
        "linear": "float16",
        "mul": "float32",  # a float32 parameter widens it
        "add": "float32",
        "softmax": "float32",
    }


def test_conversions_are_kernels_and_parameters_are_converted_once(half):
    copies = {n.op: [k.shapes[0] for k in n.kernels if k.op == "aten._to_copy"] for n in half.nodes}
    assert copies["conv2d"] == [(2, 4, 4, 4), (8, 4, 1, 1), (8,)]
    assert copies["layer_norm"] == [(2, 16, 8)]
    assert copies["batch_norm"] == copies["mul"] == copies["softmax"] == []
    twice = nn.Linear(8, 8)
    graph = opgraph.profile(nn.Sequential(twice, twice), (torch.zeros(2, 8),)).graph
    copies = [k for n in autocast(graph).nodes for k in n.kernels if k.op == "aten._to_copy"]
    assert [k.shapes[0] for k in copies] == [(2, 8), (8, 8), (8,)]


def test_bytes_by_hand(half):
    conv = next(n for n in half.nodes if n.op == "conv2d").kernels[-1]
    assert (conv.dtype, conv.read, conv.written) == ("float16", 2 * (128 + 32 + 8), 2 * 256)
    softmax = next(n for n in half.nodes if n.op == "softmax").kernels[-1]
    assert (softmax.read, softmax.written) == (4 * 256, 4 * 256)


@pytest.mark.parametrize("name", ["resnet18", "bert-base-uncased", "gpt2", "yolov8n"])
@pytest.mark.parametrize("lower", ["float16", "bfloat16"])
def test_whole_models(saved, name, lower):
    before = saved(name).graph
    after = verify(autocast(before, lower))
    assert sum(n.flops for n in after.nodes) == sum(n.flops for n in before.nodes)
    contractions = {k.dtype for n in after.nodes for k in n.kernels if k.flops}
    assert contractions == {lower}
    assert [n.op for n in after.nodes] == [n.op for n in before.nodes]


def test_an_override_changes_the_rule(saved):
    def low(node, kernel):
        return "lower" if kernel.category == "normalization" else None

    graph = autocast(saved("bert-base-uncased").graph, override=low)
    norm = next(n for n in graph.nodes if n.op == "layer_norm")
    assert graph.value[norm.outputs[0]].dtype == "float16"
