"""What is between two batches is what tracing gives there, or nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import opgraph
from opgraph.analysis.scaling.between import between


class Table(nn.Module):
    """Rows which all of a large batch share."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(rows, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.rows(x.argmax(-1))


class Shared(nn.Module):
    """A table that is expanded to a row for each item."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, rows))

    def forward(self, x: Tensor) -> Tensor:
        return self.table.expand(len(x), -1).gather(1, x.argmax(-1))


class Own(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize(
    ("model", "lines"),
    [
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), True),
        (nn.Sequential(nn.Linear(8, 8), Own(lambda x: x + x.mean(1, keepdim=True))), True),
        (nn.Sequential(nn.Linear(8, 8), Own(lambda x: x.flatten(1) @ x.flatten(1).T)), False),
        (nn.Sequential(nn.Linear(8, 8), Own(lambda x: x.sort(0).values)), False),
        (Table(16), False),
        (
            Table(38),
            False,
        ),  # 8 rows are read of a batch of 2 and 38 of 32, which is one more an item
        (Table(200), True),
        (Shared(38), False),
        (Shared(200), True),
    ],
)
def test_what_is_a_line_in_the_batch_is_that_of_a_trace(
    model: nn.Module, lines: bool, mode: str
) -> None:
    """Similarities of all items, sorting them, and rows that they share are no lines."""
    small, traced, large = (
        opgraph.profile(model, torch.randn(n, 4, 8), mode=mode) for n in (2, 3, 32)
    )
    found = between(small, large, (2, 32), 3)
    assert (found is not None) == lines
    if found is not None:
        assert found.graph == traced.graph
        assert found.tracing.tracer == "derived"


def test_a_batch_of_one_is_contiguous_where_others_are_not() -> None:
    model = Own(lambda x: x.transpose(0, 1) * 2).eval()
    one, traced, large = (opgraph.profile(model, torch.randn(n, 4, 8)) for n in (1, 4, 32))
    found = between(one, large, (1, 32), 4)
    assert found is not None
    assert found.graph == traced.graph


def test_two_traces_that_differ_in_more_have_nothing_between_them() -> None:
    model = Own(lambda x: x * 2 if len(x) < 8 else x + 1).eval()
    small, large = (opgraph.profile(model, torch.randn(n, 4, 8)) for n in (2, 32))
    assert between(small, large, (2, 32), 4) is None
