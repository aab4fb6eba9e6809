"""A node stands in the module that made the call, also where several modules own the same one."""

from __future__ import annotations

import torch
from torch import nn

import opgraph


class Block(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.inner = nn.ModuleList([nn.Linear(4, 4), activation])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for module in self.inner:
            x = module(x)
        return x


def test_a_shared_module_is_found_under_each_caller() -> None:
    shared = nn.SiLU()
    model = nn.Sequential(Block(shared), Block(shared))
    graph = opgraph.profile(model, torch.zeros(1, 4)).graph
    assert [n.scope for n in graph.nodes if n.op == "silu"] == ["0.inner.1", "1.inner.1"]
    assert graph.scope["1.inner.1"].cls == "SiLU"
