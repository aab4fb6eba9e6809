"""What a module consists of is what torch says, whatever it is made by."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from opgraph.tracing.parts import buffers_of, named_parts, parameters_of


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("made", ["plain", "traced", "scripted", "compiled", "within another"])
def test_parts_of_a_module(made: str) -> None:
    model: nn.Module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval()
    if made in ("traced", "within another"):
        model = torch.jit.trace(model, torch.ones(1, 2))
    if made == "within another":
        model = nn.Sequential(model, nn.Linear(3, 1))
    if made == "scripted":
        model = torch.jit.script(model)
    if made == "compiled":
        model = torch.compile(model)  # type: ignore[assignment]
    assert [name for name, _ in named_parts(model)] == [name for name, _ in model.named_modules()]
    assert [p.shape for p in parameters_of(model)] == [p.shape for p in model.parameters()]
    assert [b.shape for b in buffers_of(model)] == [b.shape for b in model.buffers()]
