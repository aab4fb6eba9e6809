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
    with pytest.raises(
        opgraph.TraceError, match="second: Linear takes 5 features, got 2x4"
    ) as raised:
        opgraph.profile(Raises(), inputs=torch.randn(2, 4))
    assert "hint: error.profile holds the graph up to there" in raised.value.__notes__[0]
    profile = opgraph.profile(Raises(), inputs=torch.randn(2, 4), partial=True)
    assert raised.value.profile.graph == profile.graph
    failed = profile.graph.failed
    assert failed is not None
    assert (failed.id, failed.name, failed.op) == (3, "second", "linear")
    assert failed.error is not None
    assert failed.error.startswith("second: Linear takes 5 features, got 2x4 (RuntimeError: ")
    assert failed.file == "tests/tracing/test_failures.py"
    assert profile.totals.flops == 2 * 2 * 4 * 4


@pytest.mark.parametrize(
    ("layer", "shape", "reason"),
    [
        (nn.Linear(16, 4), (8, 17), "Linear takes 16 features, got 8x17 (RuntimeError: "),
        (nn.Conv2d(3, 8, 3), (1, 4, 9, 9), "Conv2d takes 3 channels, got 1x4x9x9 ("),
        (nn.Conv1d(3, 8, 3), (4, 9), "Conv1d takes 3 channels, got 4x9 ("),
        (nn.Conv2d(3, 8, 3), (3,), "Conv2d takes 4 dimensions and not 1, got 3 ("),
        (nn.BatchNorm2d(9), (1, 8, 6, 6), "BatchNorm2d takes 9 channels, got 1x8x6x6 ("),
        (nn.GroupNorm(3, 9), (1, 8, 6), "GroupNorm takes 9 channels, got 1x8x6 ("),
        (nn.LayerNorm((4, 5)), (2, 5, 5), "LayerNorm takes 4x5 features, got 2x5x5 ("),
        (nn.LSTM(5, 6), (3, 2, 7), "LSTM takes 5 features, got 3x2x7 (RuntimeError: "),
        (nn.Bilinear(4, 4, 2), (2, 4), "TypeError: "),
        (nn.Unflatten(1, (2, 2)), (1, 5), "RuntimeError: "),
    ],
)
def test_a_size_that_does_not_fit_names_the_layer_and_both_shapes(layer, shape, reason):
    failed = opgraph.profile(
        nn.Sequential(nn.Identity(), layer), torch.randn(shape), partial=True
    ).graph.failed
    where = "" if "takes" not in reason else "1: "
    assert failed.error.startswith(where + reason)
    assert failed.failure.startswith(f"1: {reason}")


def test_an_id_beyond_a_table_is_said_on_real_tensors():
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(16, 2)

        def forward(self, ids):
            seen = self.table(ids)
            return seen if seen.sum() > 0 else -seen

    failed = opgraph.profile(Looks(), torch.tensor([3, 20]), partial=True).graph.failed
    assert failed.error.startswith("table: Embedding takes ids below 16, got an id of 20 (")


def test_a_module_of_its_own_is_not_blamed_for_names_it_shares_with_layers():
    class Patches(nn.Module):
        embed_dim = 768

        def forward(self, x):
            raise ValueError(f"an image of {x.shape[-1]} pixels is too large")

    failed = opgraph.profile(Patches(), torch.randn(1, 3, 256, 256), partial=True).graph.failed
    assert failed.error == "ValueError: an image of 256 pixels is too large"


def test_an_error_outside_of_torch_is_marked_in_its_module():
    class Inner(nn.Module):
        def forward(self, x):
            x = x + 1
            raise ValueError("no\nway")

    profile = opgraph.profile(
        nn.Sequential(nn.ReLU(), Inner()), inputs=torch.randn(2), partial=True
    )
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
    assert [n.op for n in profile.graph.nodes] == ["input", "ones", "sum", "output"]


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
    [(False, ["fake", "fake weights"]), (True, ["fake", "real"])],
)
def test_a_path_that_the_data_decides_is_traced_on_real_tensors(weighted, attempts):
    profile = opgraph.profile(Branch(weighted=weighted), inputs=torch.ones(2, 3))
    assert [a.tensors for a in profile.tracing.attempts] == attempts
    assert [n.op for n in profile.graph.nodes][-5:] == ["sum", "gt", "item", "relu", "output"]


def test_a_choice_by_the_input_of_what_weights_gave_needs_no_real_weights():
    class Chosen(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)[x[:, 0] > 0]

    profile = opgraph.profile(Chosen(3, 3), inputs=torch.tensor([[1.0, 2, 3], [-1, 2, 3]]))
    assert [a.tensors for a in profile.tracing.attempts] == ["fake", "fake weights"]
    assert profile.graph.value[profile.graph.outputs[0]].shape == (1, 3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("given", [torch.float16, torch.float64, torch.int64])
def test_factors_of_two_dtypes_are_refused_as_for_real(bias, given):
    layer = nn.Linear(4, 4, bias=bias)
    x = torch.ones(2, 4, dtype=given)
    with pytest.raises(RuntimeError, match="same dtype"):
        layer(x)
    with pytest.raises(opgraph.TraceError, match="same dtype"):
        opgraph.profile(layer, inputs=x)
    with torch.device("meta"):
        unreal = nn.Linear(4, 4, bias=bias)
    with pytest.raises(opgraph.TraceError, match="same dtype"):
        opgraph.profile(unreal, inputs=x, memory_limit=1e-9)
