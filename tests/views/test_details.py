"""What an operator does in a few characters, read from its weights and its named arguments."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import opgraph
from opgraph.views.details import branches, details

CASES = [
    (nn.Conv2d(3, 8, 7, 2, 3), (1, 3, 32, 32), "7×7 /2"),
    (nn.Conv2d(8, 8, 3, (2, 1), 1), (1, 8, 32, 32), "3×3 /2×1"),
    (nn.Conv2d(8, 8, 3, 1, 1, groups=8), (1, 8, 32, 32), "3×3 depthwise"),
    (nn.Conv2d(8, 8, 3, padding=1, groups=2), (1, 8, 32, 32), "3×3 2 groups"),
    (nn.Conv2d(3, 8, 7), (1, 3, 8, 8), "7×7"),
    (nn.Conv1d(4, 8, 5, 3), (1, 4, 32), "5 /3"),
    (nn.Linear(16, 8), (2, 16), "16→8"),
    (nn.Linear(8, 8), (2, 8), "8→8"),
    (nn.MaxPool2d(3, 2), (1, 3, 32, 32), "3×3 /2"),
    (nn.ReLU(), (1, 3), ""),
]


@pytest.mark.live
@pytest.mark.parametrize(("module", "shape", "expected"), CASES, ids=lambda c: str(c)[:40])
def test_a_layer_says_what_it_does(
    module: nn.Module, shape: tuple[int, ...], expected: str
) -> None:
    graph = opgraph.profile(module, torch.randn(shape)).graph
    said = [details(graph, node) for node in graph.nodes if node.kernels]
    assert [s for s in said if s] == ([expected] if expected else [])


@pytest.mark.live
def test_arguments_have_their_names_and_leave_out_what_is_usual() -> None:
    class Layers(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = nn.functional.conv2d(x, torch.ones(4, 3, 3, 3), None, 2, (1, 1), 1, groups=1)
            x = torch.cat([x, x], 1).transpose(1, 2)
            return nn.functional.softmax(x, dim=-1)

    graph = opgraph.profile(Layers(), torch.randn(1, 3, 8, 8)).graph
    said = {node.op: node.arguments for node in graph.nodes}
    assert said["conv2d"] == "stride=2, padding=(1, 1)"
    assert said["cat"] == "dim=1"
    assert said["transpose"] == "1, 2"
    assert said["softmax"] == "dim=-1"


READS = {
    "bool": (lambda x: x.mean() > -9, ["branch taken: True"]),
    "item": (lambda x: x.mean().item() > -9, ["value read by Python"]),
    "mask": (lambda x: bool(torch.ones(2, dtype=torch.bool).all()), []),
}


@pytest.mark.live
@pytest.mark.parametrize("way", READS)
def test_where_python_got_to_know_what_came_in_is_said(way: str) -> None:
    class Asking(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() if READS[way][0](x) else x

    graph = opgraph.profile(Asking(), torch.zeros(2, 3)).graph
    assert list(branches(graph).values()) == READS[way][1]
