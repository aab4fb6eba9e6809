"""A forward that raises, and one whose path the data decides."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import opgraph


class Raises(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def test_a_forward_that_raises_gives_the_graph_so_far():
    profile = opgraph.profile(Raises(), inputs=torch.randn(2, 4))
    failed = profile.graph.failed
    assert failed is not None
    assert (failed.id, failed.name, failed.op) == (3, "second", "linear")
    assert failed.error is not None
    assert failed.error.startswith("RuntimeError")
    assert failed.file == "tests/tracing/test_failures.py"
    assert profile.totals.flops == 2 * 2 * 4 * 4


def test_an_error_outside_of_torch_is_marked_in_its_module():
    class Inner(nn.Module):
        def forward(self, x):
            x = x + 1
            raise ValueError("no\nway")

    profile = opgraph.profile(nn.Sequential(nn.ReLU(), Inner()), inputs=torch.randn(2))
    failed = profile.graph.failed
    assert (failed.op, failed.scope, failed.error) == ("raise", "1", "ValueError: no")
    assert failed.line is not None


def test_an_error_that_the_model_catches_is_not_a_failure():
    class Careful(nn.Module):
        def forward(self, x):
            try:
                return x @ torch.ones(7)
            except RuntimeError:
                return x.sum()

    profile = opgraph.profile(Careful(), inputs=torch.randn(3))
    assert profile.graph.failed is None
    assert [n.op for n in profile.nodes] == ["input", "ones", "sum", "output"]


class Branch(nn.Module):
    """Goes one way or the other by the values of its input, or of what a weight makes of it."""

    def __init__(self, *, weighted: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.weighted = weighted

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.linear(x) if self.weighted else x
        return seen.relu() if seen.square().sum() > 0 else seen.tanh()


@pytest.mark.parametrize(
    ("weighted", "attempts"),
    [(False, ["fake", "fake weights"]), (True, ["fake", "fake weights", "real"])],
)
def test_a_path_that_the_data_decides_is_traced_on_real_tensors(weighted, attempts):
    profile = opgraph.profile(Branch(weighted=weighted), inputs=torch.ones(2, 3))
    assert [a.tensors for a in profile.tracing.attempts] == attempts
    assert [n.op for n in profile.nodes][-5:] == ["sum", "gt", "item", "relu", "output"]
