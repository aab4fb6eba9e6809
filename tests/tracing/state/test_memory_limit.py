"""Runs on real tensors take no more memory than they may, or are refused with the reason and the figure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opgraph
from opgraph.api.pipeline import resolved
from opgraph.cli import main
from opgraph.inputs.base import Example
from opgraph.record.errors import InputError, TraceError
from opgraph.sources.weightless import give_back, resident
from opgraph.tracing.capture import recorder
from opgraph.tracing.eager import trace_either
from opgraph.tracing.state.guard import Guard, Stopped
from opgraph.tracing.state.memory import free_bytes

pytestmark = pytest.mark.live


class Looking(nn.Module):
    """Looks at a value, so that it runs on real tensors, and does something."""

    def __init__(self, width: int, change: Any = None) -> None:
        super().__init__()
        self.layer, self.change = nn.Linear(width, width, bias=False), change

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if y.sum().item() and self.change is not None:
            with torch.no_grad():
                return self.change(self, y)
        return y


def refused(model: nn.Module, limit: float) -> str:
    width = model.layer.weight.shape[0]
    with pytest.raises(TraceError) as caught:
        opgraph.profile(model, torch.zeros(1, width).normal_(), memory_limit=limit)
    profile = caught.value.profile
    assert profile is not None
    reason = next(a.error for a in profile.tracing.attempts if a.tensors == "real")
    assert profile.model.notes[-1] == f"was not traced on real tensors: {reason}"
    assert f"; it was not traced on real tensors: {reason}" in str(caught.value)
    return reason


def test_weights_that_would_have_to_be_made() -> None:
    with torch.device("meta"):
        model = Looking(2048)
    assert refused(model, 0.01) == (
        "weights of 16 MiB are more than the 10.24 MiB that a run on real tensors may take (--memory-limit)"
    )
    assert opgraph.profile(model, torch.randn(1, 2048), memory_limit=1).tracing.tensors == "real"


def test_copies_of_weights_that_a_forward_writes_to() -> None:
    model = Looking(1024, lambda self, y: y @ self.layer.weight.mul_(2))
    before = model.layer.weight.clone()
    reason = refused(model, 0.002)
    assert reason == (
        "the forward writes to 4 MiB of tensors, and copies of them, to bring them back from, may take "
        "2.05 MiB (--memory-limit)"
    )
    assert torch.equal(model.layer.weight, before)
    opgraph.profile(model, torch.randn(1, 1024), memory_limit=1)
    assert torch.equal(model.layer.weight, before)


@pytest.mark.parametrize("optimizer", ["adamw-loop", "adamw-foreach"])
def test_a_step_of_training_takes_copies_of_the_weights_alone(optimizer: str) -> None:
    """Of 4 MiB of weights: a copy, a gradient, two moments, and up to three of what Adam computes at once.
    Nothing of that is the model's, and none of it is copied once more to be brought back."""
    model, x = Looking(1024), torch.randn(1, 1024)
    before = model.layer.weight.clone()

    def trained(megabytes: float) -> Any:
        return opgraph.profile(
            model, x, mode="train", loss="sum", optimizer=optimizer,
            memory_limit=megabytes / 2**10, partial=True,
        )  # fmt: skip

    assert trained(7 * 4 + 1).tracing.tensors == "real"
    assert torch.equal(model.layer.weight, before)
    assert model.layer.weight.grad is None
    (note,) = (n for n in trained(3).model.notes if n.code == "real-tensors")
    assert note.endswith("needs more than the 3 MiB that it may take (--memory-limit)")


def test_what_a_run_makes() -> None:
    model = Looking(64, lambda self, y: y.repeat(10_000, 1) + 1)
    reason = refused(model, 0.002)
    assert reason == (
        "a run on real tensors needs more than the 2.05 MiB that it may take (--memory-limit)"
    )


def test_what_one_operator_is_about_to_make_is_not_made() -> None:
    made = []

    def change(self: Any, y: Tensor) -> Tensor:
        out = y.repeat(2**20, 1)  # 256 MiB
        made.append(out.shape)
        return out

    reason = refused(Looking(64, change), 0.002)
    assert reason == (
        "a run on real tensors needs more than the 2.05 MiB that it may take (--memory-limit)"
    )
    assert not made


def test_a_convolution_copies_what_it_reads_and_returns() -> None:
    """An image of 1 MiB, a map of 1 MiB, and both once more in the layout that oneDNN computes in."""

    def change(self: Any, y: Tensor) -> Tensor:
        return torch.conv2d(torch.ones(1, 1, 512, 512), torch.ones(1, 1, 1, 1))

    model = Looking(8, change)
    reason = refused(model, 3 / 2**10)
    assert reason == (
        "a run on real tensors needs more than the 3 MiB that it may take (--memory-limit)"
    )
    profile = opgraph.profile(model, torch.randn(1, 8), memory_limit=5 / 2**10)
    assert profile.tracing.tensors == "real"


def test_the_process_itself_stays_below_a_ceiling() -> None:
    give_back()  # what other tests have freed does not count as room
    guard = Guard([], limit=2**40, ceiling=(resident() or 0) + 2**28)
    try:
        guard.needs(0, coming=2**20)
        with pytest.raises(Stopped):
            guard.needs(0, coming=2**29)
        guard.grows(1_000)
        with pytest.raises(Stopped, match="of 1,000,000 operators so far, takes more than"):
            guard.grows(1_000_000)
    finally:
        guard.restore()


def test_a_graph_without_memory_for_it_is_not_tried_otherwise(monkeypatch) -> None:
    class Long(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(20):
                x = super().forward(x)
            return x

    monkeypatch.setattr(recorder, "MANY", 16)
    (outcome,) = trace_either(resolved(Long(2, 2)), Example((torch.ones(1, 2),)), ceiling=1)
    assert outcome.graph is None
    assert str(outcome.error).startswith("its graph, of 16 operators so far, takes more than")


def test_half_of_what_is_free_is_usual() -> None:
    with torch.device("meta"):
        model = Looking(free_bytes() // 2**17)  # about twice all that is free
    reason = refused(model, None)
    assert reason.startswith("weights of ")
    assert reason.endswith("that a run on real tensors may take (--memory-limit)")


def test_an_array_that_is_too_large_to_guard_is_remarked_on() -> None:
    model = Looking(8, lambda self, y: y)
    model.table = torch.zeros(2**20).numpy()
    profile = opgraph.profile(model, torch.randn(1, 8), memory_limit=0.001)
    assert any(
        "an array of 4 MiB that the forward can reach was not guarded" in n
        for n in profile.model.notes
    )


@pytest.mark.parametrize("limit", [0, -1, "much", float("nan")])
def test_limits_that_mean_nothing(limit: Any) -> None:
    with pytest.raises(InputError, match="memory_limit"):
        opgraph.profile(nn.Linear(2, 2), torch.ones(1, 2), memory_limit=limit)


def written(folder: Path, result: str, width: int, device: str) -> Path:
    """A file with a layer that gives this of what a linear one gives, `y`."""
    file = folder / "looking.py"
    file.write_text(
        "import torch\n"
        "class Looking(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        y = super().forward(x)\n"
        f"        return {result}\n"
        "def build():\n"
        f"    with torch.device({device!r}):\n"
        f"        return Looking({width}, {width})\n"
    )
    return file


def test_on_the_command_line(tmp_path: Path, capsys: Any) -> None:
    file = written(tmp_path, "y * y.max().item()", 2048, "meta")
    given = ["profile", f"{file}:build", "--trust", "--input-shape", "1x2048", "-v"]
    assert main([*given, "--memory-limit", "0.001"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "was not traced on real tensors: weights of 16.01 MiB are more than the 1.02 MiB" in shown
    )
    assert main([*given, "--memory-limit", "1"]) == 0


def test_sizes_that_take_too_much_are_not_said_to_be_wrong(tmp_path: Path, capsys: Any) -> None:
    file = written(tmp_path, "y * y.max().item()", 512, "cpu")
    given = ["profile", f"{file}:build", "--trust", "--memory-limit", "0.01", "--batch-size"]
    assert main([*given, "1"]) == 0
    capsys.readouterr()
    assert main([*given, "8192"]) == 1
    shown = capsys.readouterr().err
    assert "it was not traced on real tensors: " in shown
    assert "(--memory-limit)" in shown
    assert "do not fit" not in shown
    assert "guessed" not in shown


def test_sizes_that_are_wrong_are_said_to_be_where_none_are_tried_on_real_tensors(
    tmp_path: Path, capsys: Any
) -> None:
    file = written(tmp_path, "y.view(1, 4, 512)", 2048, "meta")
    given = ["profile", f"{file}:build", "--trust", "--memory-limit", "0.001", "--batch-size"]
    assert main([*given, "1"]) == 0
    assert main([*given, "7"]) == 2
    assert "do not fit" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the C library of others says nothing of it")
def test_what_a_run_on_real_tensors_took_goes_back_to_the_system(tmp_path: Path) -> None:
    file = tmp_path / "many.py"  # each weight is less than what malloc asks the system for
    file.write_text(MANY)
    opgraph.profile(f"{file}:Many", torch.ones(1, 1024), memory_limit=1 / 2**10, partial=True)
    give_back()
    before = resident() or 0
    profile = opgraph.profile(f"{file}:Many", torch.ones(1, 1024))
    assert profile.tracing.tensors == "real"
    assert profile.totals.weight_bytes > 2**28
    assert (resident() or 0) - before < 2**26


MANY = """
from torch import nn

class Many(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(80))
        self.itself = [self]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x if int(x.isnan().sum()) else -x
"""
