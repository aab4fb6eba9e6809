"""Models that take and give more than tensors."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pytest
import torch
from tests.tracing.hard.models import Function, X, agrees, profiled
from torch import nn

import opgraph


def test_dynamic_cache_output():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=100)
    model = transformers.GPT2LMHeadModel(config)
    profile = agrees(model, torch.ones(1, 5, dtype=torch.long))
    # The logits, and a key and a value for each layer.
    assert len(profile.graph.outputs) == 1 + 2 * 2


@dataclasses.dataclass
class Result:
    first: torch.Tensor
    others: list[torch.Tensor]
    name: str = "result"


class Pair(NamedTuple):
    a: torch.Tensor
    b: None


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda y: Result(y, [y + 1, y + 2]), 3),
        (lambda y: {"a": y, "b": {"c": y * 2}}, 2),
        (lambda y: Pair(y, None), 1),
        (lambda y: (y, [y.sum(), 3, None]), 2),
        (lambda y: None, 0),
        (lambda y: int(y.shape[0]), 0),
    ],
    ids=["dataclass", "dict", "named tuple", "nested", "none", "int"],
)
def test_outputs_of_any_kind(make, count):
    profile = profiled(Function(lambda self, x: make(self.linear(x))), X)
    assert len(profile.graph.outputs) == count


def test_named_and_keyword_only_arguments():
    class Model(nn.Module):
        def forward(self, x, *, scale, flag=True):
            return x * scale if flag else x

    profile = opgraph.profile(Model(), inputs=X, kwargs={"scale": torch.ones(1), "flag": True})
    assert [v.name for v in profile.graph.values if v.kind == "input"] == ["x", "scale"]


def test_nested_inputs():
    def run(self, items):
        return self.linear(items["a"]) + items["b"][0]

    profile = profiled(Function(run), {"a": X, "b": [X]})
    assert len([n for n in profile.graph.nodes if n.kind == "input"]) in (1, 2)
