"""What a model's own code sets where it is imported and built holds as long as opgraph runs it."""

from __future__ import annotations

import logging
import os
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opgraph
from opgraph.record.errors import SourceError

CODE = """
import logging, os, random, sys, warnings
import torch

torch.manual_seed(3)
random.seed(3)
warnings.filterwarnings("ignore", "of its own")
logging.basicConfig(level=logging.INFO, force=True)
logging.getLogger("torch.nn").setLevel(logging.CRITICAL)
os.environ["OPGRAPH_OF_A_FILE"] = "1"
sys.path.append("of a file")
torch.set_float32_matmul_precision("high")
torch.set_num_threads(torch.get_num_threads() + 1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.use_deterministic_algorithms(True)
        torch.set_printoptions(precision=2)
        self.embed, self.layer = torch.nn.Embedding(9, 8), torch.nn.Linear(8, 8)

    def forward(self, input_ids):
        assert os.environ["OPGRAPH_OF_A_FILE"] == "1" and sys.path[-1] == "of a file"
        assert torch.are_deterministic_algorithms_enabled()
        return self.layer(self.embed(input_ids))
"""


def _looks() -> dict[str, Any]:
    root, named = logging.getLogger(), logging.getLogger("torch.nn")
    return {
        "random numbers": (torch.get_rng_state().tolist(), random.getstate()),
        "warnings": list(warnings.filters),
        "logging": (root.level, list(root.handlers), root.manager.disable, named.level),
        "environment": dict(os.environ),
        "paths": list(sys.path),
        "precision": (
            torch.get_float32_matmul_precision(),
            torch.backends.cuda.matmul.fp32_precision,
        ),
        "threads": torch.get_num_threads(),
        "determinism": torch.are_deterministic_algorithms_enabled(),
        "printing": dict(vars(torch._tensor_str.PRINT_OPTS)),
    }


X = torch.ones(1, 4, dtype=torch.long)


@pytest.mark.parametrize(
    "ask",
    [
        lambda of: opgraph.profile(of, X),
        lambda of: opgraph.profile(of, X).captured.export,
        lambda of: opgraph.check(of, X, tracers=["auto", "export"], counters=False),
        lambda of: opgraph.measure(of, X, device="cpu", steps=1),
        lambda of: opgraph.sweep(of, batch_size=[1, 2]),
    ],
    ids=["profile", "captured", "check", "measure", "sweep"],
)
def test_what_code_sets_as_it_is_imported_and_built(
    ask: Callable[[str], Any], tmp_path: Path
) -> None:
    (tmp_path / "sets_much.py").write_text(CODE)
    opgraph.profile(nn.Linear(2, 2), torch.ones(1, 2))  # what torch sets as it is imported
    before = _looks()
    ask(f"{tmp_path}/sets_much.py:Net")
    assert _looks() == before


def test_a_file_that_cannot_be_imported_is_no_module(tmp_path: Path) -> None:
    (tmp_path / "half_a_module.py").write_text("here = 1\nraise RuntimeError('no more')\n")
    with pytest.raises(SourceError, match="no more"):
        opgraph.profile(f"{tmp_path}/half_a_module.py:build")
    assert "half_a_module" not in sys.modules


CALLS: list[int] = []


class Telling(nn.Linear):
    """Notes its calls outside of itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CALLS.append(1)
        return super().forward(x)


@pytest.mark.live
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_measured_model_leaves_nothing_outside_of_its_copy(mode: str) -> None:
    opgraph.measure(Telling(4, 4), torch.ones(2, 4), device="cpu", steps=1, mode=mode)
    assert not CALLS


@pytest.mark.live
def test_a_recording_leaves_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    model = nn.Linear(4, 4)
    with opgraph.recording(model), torch.no_grad():
        for _ in range(3):
            model(torch.ones(2, 4))
    assert "KINETO_LOG_LEVEL" not in os.environ
