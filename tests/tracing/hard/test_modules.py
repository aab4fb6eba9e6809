"""Modules that are called in other ways than once, by their parent, with their own weights."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.tracing.hard.models import Function, X, agrees, profiled
from torch import nn


def test_data_parallel():
    assert profiled(nn.DataParallel(nn.Linear(8, 8)), X).totals.flops == 2 * 4 * 8 * 8


def test_hooks_that_change_values():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    model[0].register_forward_hook(lambda module, args, output: output.relu())
    model[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    profile = agrees(model, X)
    assert [n.op for n in profile.nodes] == ["input", "linear", "relu", "add", "linear", "output"]


@pytest.mark.parametrize(
    "parametrize",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        nn.utils.parametrizations.orthogonal,
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_parametrizations(parametrize):
    profile = profiled(parametrize(nn.Linear(8, 8)), X)
    assert any(n.op == "linear" for n in profile.graph.nodes)
    assert profile.totals.flops >= 2 * 4 * 8 * 8


def test_a_module_called_many_times():
    def run(self, x):
        for _ in range(5):
            x = self.linear(x)
        return x

    profile = agrees(Function(run), X)
    assert profile.totals.parameters == 72
    assert profile.graph.scope["linear"].calls == 5
    names = [n.name for n in profile.nodes if n.op == "linear"]
    assert len(set(names)) == 5


def test_a_module_that_is_never_called():
    profile = agrees(Function(lambda self, x: self.linear(x), nn.Linear(8, 100)), X)
    assert profile.graph.scope["parts.0"].calls == 0
    assert profile.totals.parameters == 72 + 900


def test_direct_calls_of_forward():
    profile = agrees(Function(lambda self, x: self.parts[0].forward(x), nn.Linear(8, 3)), X)
    assert profile.graph.nodes[1].parameters == ("parts.0.weight", "parts.0.bias")


def test_an_activation_as_attribute():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.activation = F.relu

        def forward(self, x):
            return self.activation(x)

    assert [n.op for n in profiled(Model(), X).nodes] == ["input", "relu", "output"]


def test_weights_in_a_list():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.randn(8, 8))
            self.all = [self.a]

        def forward(self, x):
            return x @ self.all[0]

    profile = agrees(Model(), X)
    assert profile.graph.nodes[1].parameters == ("a",)


def test_a_weight_used_through_views():
    profile = agrees(Function(lambda self, x: x @ self.linear.weight.t()[:, :4].contiguous()), X)
    assert any("linear.weight" in n.parameters for n in profile.graph.nodes)


def test_a_module_made_in_forward():
    profile = agrees(Function(lambda self, x: nn.Softmax(dim=-1)(self.linear(x))), X)
    assert any(s.cls == "Softmax" for s in profile.graph.scopes)


def test_batch_norm_in_train_mode_at_batch_1():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).train()
    profiled(model, torch.randn(1, 8))
    assert model.training
    assert model[1].num_batches_tracked == 0
