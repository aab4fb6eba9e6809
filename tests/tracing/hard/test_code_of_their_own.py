"""Operators and functions that a model brings along, scripted, compiled or written by hand."""

from __future__ import annotations

import pytest
import torch
from tests.tracing.hard.models import Function, X, agrees, profiled
from torch import nn


def test_custom_autograd_function():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            return x @ w * 2

        @staticmethod
        def backward(ctx, grad):
            return grad, grad

    agrees(Function(lambda self, x: Twice.apply(x, self.linear.weight)), X)


def test_custom_operator_with_a_fake_implementation():
    @torch.library.custom_op("opgraph_hard::with_fake", mutates_args=())
    def with_fake(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    with_fake.register_fake(torch.empty_like)
    profile = profiled(Function(lambda self, x: with_fake(self.linear(x))), X)
    assert profile.totals.unknown == (("opgraph_hard.with_fake", 1),)


def test_custom_operator_without_a_fake_implementation_runs_for_real():
    @torch.library.custom_op("opgraph_hard::without_fake", mutates_args=())
    def without_fake(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    profile = profiled(Function(lambda self, x: without_fake(self.linear(x))), X)
    assert profile.tracing.tensors == "real"
    assert profile.totals.flops == 2 * 4 * 8 * 8


def test_script_module():
    class Scripted(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.linear(x))

    agrees(torch.jit.script(Scripted()), X)
    agrees(nn.Sequential(torch.jit.script(Scripted()), nn.Linear(8, 2)), X)
    agrees(torch.jit.trace(Scripted(), X), X)


@pytest.mark.slow
def test_compiled_parts():
    inner = torch.compile(nn.Linear(8, 8))

    @torch.compile
    def gate(x):
        return x * torch.sigmoid(x)

    profile = profiled(Function(lambda self, x: gate(self.parts[0](x)), inner), X)
    assert profile.totals.flops == 2 * 4 * 8 * 8
    assert profiled(torch.compile(nn.Linear(8, 8)), X).totals.flops == 2 * 4 * 8 * 8
