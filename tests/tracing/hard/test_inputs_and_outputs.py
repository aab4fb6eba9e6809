"""Models that take and give more than tensors."""

from __future__ import annotations

import dataclasses
import sys
from typing import NamedTuple

import numpy as np
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


ARRAY = X.numpy()


@pytest.mark.parametrize(
    ("inputs", "kwargs", "note"),
    [
        ((X,), {}, ""),
        ({"input": X}, {}, ""),
        ([X], {}, "taken as the arguments"),
        (ARRAY, {}, "arrays are taken as tensors"),
        ([ARRAY], {}, "takes no list; arrays are taken as tensors"),
        (None, {"input": ARRAY}, "arrays are taken as tensors"),
    ],
)
def test_inputs_as_people_hold_them(inputs, kwargs, note):
    profile = opgraph.profile(nn.Linear(X.shape[-1], 3), inputs, kwargs)
    assert profile.totals.flops == 2 * X.numel() * 3
    assert [v.name for v in profile.graph.values if v.kind == "input"] == ["input"]
    assert note in " ".join(profile.model.notes)
    assert bool(note) == bool(profile.model.notes)


@pytest.mark.parametrize("inputs", [ARRAY, [X], {"x": ARRAY}])
def test_arrays_and_lists_where_values_are_asked_for(inputs):
    class Some(nn.Linear):
        def forward(self, x):
            return super().forward(x[x.mul(2) > -99].view(-1, x.shape[-1]))

    profile = opgraph.profile(Some(X.shape[-1], 3), inputs)
    assert profile.totals.flops == 2 * X.numel() * 3


def test_lists_dictionaries_and_arrays_that_forward_takes_stay_what_they_are():
    class Each(nn.Module):
        def forward(self, items):
            items = items["all"] if isinstance(items, dict) else items
            return [
                torch.from_numpy(i).relu() if isinstance(i, np.ndarray) else i.relu() for i in items
            ]

    for inputs in ([X, X], {"all": [X, X]}, [ARRAY, ARRAY], ([X, X],)):
        profile = opgraph.profile(Each(), inputs)
        assert (len(profile.graph.outputs), profile.model.notes) == (2, ())


def test_what_no_forward_takes_is_refused():
    with pytest.raises(opgraph.TraceError, match="must be Tensor, not str"):
        opgraph.profile(nn.Linear(4, 3), "abc")


@pytest.mark.parametrize("training", [False, True])
def test_lazy_layers_learn_their_sizes_from_a_copy(training):
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(affine=False)).train(training)
    before = torch.get_rng_state()
    assert opgraph.profile(model, torch.ones(1, 8)).totals.flops == 2 * 8 * 4
    assert model[0].has_uninitialized_params()
    assert model[1].has_uninitialized_params()
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(opgraph.InputError, match="learn their sizes from a first run"):
        opgraph.profile(model, torch.ones(1, 8, dtype=torch.long))
    with pytest.raises(opgraph.InputError, match="LazyLinear takes any size"):
        opgraph.profile(model)


def test_a_lazy_model_that_ends_the_process_is_an_error_like_others():
    class Ends(nn.LazyLinear):
        def forward(self, x):
            sys.exit(3)

    with pytest.raises(opgraph.InputError, match="run of a copy, which failed: SystemExit: 3"):
        opgraph.profile(Ends(4), torch.ones(1, 8))


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
