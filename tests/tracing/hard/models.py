"""What the tests of hard cases share: a model of one function, and its profile beside torch's counter."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import opgraph

X = torch.randn(4, 8)


class Function(nn.Module):
    """A forward that is one function of a linear layer and the inputs."""

    def __init__(self, function, *modules) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.parts = nn.ModuleList(modules)
        self.function = function

    def forward(self, *inputs):
        return self.function(self, *inputs)


def counted(model, *inputs) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(*inputs)
    return counter.get_total_flops()


def profiled(model, *inputs, **kwargs):
    profile = opgraph.profile(model, inputs=inputs, kwargs=kwargs or None)
    assert profile.graph.failed is None, profile.graph.failed
    return profile


def agrees(model, *inputs):
    profile = profiled(model, *inputs)
    assert profile.totals.flops == counted(model, *inputs)
    return profile
