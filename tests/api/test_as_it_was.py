"""What a model's own code sets where it is imported and built holds as long as opgraph runs it."""

from __future__ import annotations

import importlib
import logging
import os
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
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


SEEN = torch.zeros(4)


class Watched(nn.Module):
    """What a hook and a global keep of it: a copy has the same ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.layer.register_forward_hook(lambda _, __, out: self.note(out))

    def note(self, out: torch.Tensor) -> None:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(out.mean(0), alpha=0.1)  # type: ignore[operator]
            SEEN.add_(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


class Counting(nn.Module):
    """A loss that learns, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.centre, self.calls = nn.Parameter(torch.ones(4)), 0
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, out: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.mean.lerp_(out.detach().mean(0), 0.5)  # type: ignore[operator]
        return (out - self.centre).square().sum()


@pytest.mark.live
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_what_a_measured_copy_writes_to_outside_of_itself(mode: str) -> None:
    model, loss = Watched(), Counting()
    options = {"mode": mode, "loss": loss} if mode == "train" else {}
    opgraph.measure(model, torch.ones(2, 4), device="cpu", steps=2, **options)
    kept = [SEEN, model.mean, loss.mean]
    assert all(torch.equal(each, torch.zeros(4)) for each in kept)  # type: ignore[arg-type]
    assert not any(each._version for each in kept)  # type: ignore[union-attr]
    assert loss.calls == 0
    assert loss.centre.grad is None


@pytest.mark.live
def test_a_recording_leaves_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    model = nn.Linear(4, 4)
    with opgraph.recording(model), torch.no_grad():
        for _ in range(3):
            model(torch.ones(2, 4))
    assert "KINETO_LOG_LEVEL" not in os.environ


OF_A_FOLDER = """
from __future__ import annotations
from dataclasses import dataclass
from typing import get_type_hints
import torch
from layers import Layer
from parts.sizes import SIZE


@dataclass
class Sizes:
    of: SIZE_CLASS
    width: int = SIZE


class SIZE_CLASS:
    here = SIZE


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Layer(SIZE)
        assert get_type_hints(Sizes)["of"].here == SIZE

    def forward(self, x):
        from layers import after

        return after(self.layer(x))
"""


def _folder(at: Path, size: int, operator: str) -> str:
    (at / "parts").mkdir(parents=True)
    (at / "model.py").write_text(OF_A_FOLDER)
    (at / "parts" / "sizes.py").write_text(f"SIZE = {size}\n")
    (at / "layers.py").write_text(
        "import torch\nclass Layer(torch.nn.Linear):\n    def __init__(self, size):\n"
        f"        super().__init__(4, size)\ndef after(x): return x.{operator}()\n"
    )
    return f"{at}/model.py:Net"


def test_files_of_one_name_are_those_of_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what they import from there, whatever has that name in the process."""
    a = _folder(tmp_path / "a", 8, "relu")
    b = _folder(tmp_path / "b", 16, "sigmoid")
    own = ModuleType("layers")
    own.__file__ = str(tmp_path / "layers.py")
    monkeypatch.setitem(sys.modules, "layers", own)
    for name in ("model", "parts", "parts.sizes"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    x = torch.ones(1, 4)
    for of, size, operator in ((a, 8, "relu"), (b, 16, "sigmoid"), (a, 8, "relu")):
        found = opgraph.profile(of, x)
        assert found.graph.nodes[-2].op == operator
        assert sum(p.numel for p in found.graph.parameters) == 5 * size
        assert sys.modules["layers"] is own
    assert str(sys.modules["model"].__file__).startswith(str(tmp_path / "a"))
    for name in ("model", "parts", "parts.sizes"):
        del sys.modules[name]


NAMED_AS_PYTHONS = """
import torch
COUNT, SEEN = 0, []


class Net(torch.nn.Linear):
    def forward(self, x):
        global COUNT
        COUNT += 1
        SEEN.append(x)
        torch.nn.functional.relu6 = None
        return super().forward(x)


MODEL = Net(4, 4)
"""


@pytest.mark.parametrize("how", ["loaded", "imported"])
def test_a_file_that_has_the_name_of_one_of_pythons(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.nn.functional as functional

    (tmp_path / "sched.py").write_text(NAMED_AS_PYTHONS)
    before = functional.relu6
    if how == "loaded":
        opgraph.profile(f"{tmp_path}/sched.py:MODEL", torch.ones(1, 4))
        code: Any = sys.modules.pop("sched_py")
    else:
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "sched", raising=False)
        code = importlib.import_module("sched")
        opgraph.profile(code.MODEL, torch.ones(1, 4))
        del sys.modules["sched"]
    assert (code.COUNT, code.SEEN, functional.relu6) == (0, [], before)
