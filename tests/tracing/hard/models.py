"""What the tests of hard cases share: a model of one function, and its profile beside torch's counter."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry

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


def counter() -> FlopCounterMode:
    """torch's counter, which takes a product of complex numbers for one of real ones; it is four. Before
    torch 2.15 it did not know attention on a CPU."""
    aten = torch.ops.aten
    names = (aten.mm, aten.bmm, aten.addmm, aten.baddbmm)
    mapping = {name: _complex_too(name) for name in names}
    attention = _complex_too(aten._scaled_dot_product_flash_attention)
    mapping[aten._scaled_dot_product_flash_attention_for_cpu] = attention
    return FlopCounterMode(display=False, custom_mapping=mapping)


def _complex_too(name):
    plain = flop_registry[name]

    def formula(*args, **kwargs) -> int:
        four = any(isinstance(a, torch.Tensor) and a.is_complex() for a in args)
        return plain(*args, **kwargs) * (4 if four else 1)

    formula._get_raw = True
    return formula


def counted(model, *inputs) -> int:
    with torch.no_grad(), counter() as found:
        model.eval()(*inputs)
    return found.get_total_flops()


def profiled(model, *inputs, **kwargs):
    profile = opgraph.profile(model, inputs=inputs, kwargs=kwargs or None)
    assert profile.graph.failed is None, profile.graph.failed
    return profile


def agrees(model, *inputs):
    profile = profiled(model, *inputs)
    assert profile.totals.flops == counted(model, *inputs)
    return profile
