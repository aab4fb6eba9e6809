"""What a person's own handler of a signal raises comes out, whoever would take it on its way."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, fx, nn

import opgraph
from opgraph.cli import main

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="signals of POSIX")

X = torch.ones(2, 4)


def _late(*_: object) -> None:
    raise TimeoutError("too late")


@pytest.fixture(autouse=True)
def _handled() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _late)
    yield
    assert signal.getsignal(signal.SIGALRM) is _late
    signal.signal(signal.SIGALRM, before)


@contextmanager
def late(at: Any) -> Iterator[list[str]]:
    """Within, the time is over each time that a function is called."""
    came: list[str] = []

    def ends(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code is at.__code__:
            came.append(frame.f_code.co_name)
            signal.raise_signal(signal.SIGALRM)

    before = sys.getprofile()
    sys.setprofile(ends)
    try:
        yield came
    finally:
        sys.setprofile(before)


def comes_out(run: Callable[[], object]) -> None:
    with pytest.raises(TimeoutError, match="too late") as raised:
        run()
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


def test_while_a_model_is_built_by_name() -> None:
    """It is not built another way: with pretended weights, or with real ones."""
    with late(torchvision.models.ResNet.__init__) as came:
        comes_out(lambda: opgraph.profile("resnet18"))
    assert came == ["__init__"]


SOURCES = {
    "plain": "signal.raise_signal(signal.SIGALRM)",
    "takes errors": "try:\n            signal.raise_signal(signal.SIGALRM)\n"
    "        except Exception:\n            pass",
    "takes all": "try:\n            signal.raise_signal(signal.SIGALRM)\n"
    "        except BaseException:\n            pass",
    "fails then": "try:\n            signal.raise_signal(signal.SIGALRM)\n"
    "        finally:\n            raise ValueError('of mine')",
}


@pytest.mark.parametrize("how", SOURCES)
def test_while_a_model_of_a_file_is_built(how: str, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import signal, torch\n\n\nclass Slow(torch.nn.Linear):\n    def __init__(self):\n"
        f"        super().__init__(4, 4)\n        {SOURCES[how]}\n"
    )
    comes_out(lambda: opgraph.profile(f"{tmp_path}/slow.py:Slow", X))


class Slow(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        signal.raise_signal(signal.SIGALRM)
        return y


@pytest.mark.parametrize("tracer", ["eager", "fx", "dynamo", "export", "hybrid"])
def test_while_a_tracer_runs_a_forward(tracer: str) -> None:
    comes_out(lambda: opgraph.profile(Slow(4, 4), X, tracer=tracer))


@pytest.mark.parametrize("run", [
    lambda model: opgraph.profile(model, X, mode="train", loss="sum"),
    lambda model: opgraph.profile(model, torch.ones(2, 4, device="meta"), memory_limit=1.0),
    lambda model: opgraph.measure(model, X),
    lambda model: opgraph.profile(nn.Sequential(nn.LazyLinear(4), model), X),
    lambda model: opgraph.check(model, X),
])  # fmt: skip
def test_while_a_forward_is_run_otherwise(run: Callable[[nn.Module], object]) -> None:
    comes_out(lambda: run(Slow(4, 4)))


@pytest.mark.slow
@pytest.mark.parametrize(("which", "at"), [
    ("export", nn.Linear.forward), ("fx", nn.Linear.forward),
    ("dynamo", fx.GraphModule.recompile),  # which Dynamo makes an error of its own of
])  # fmt: skip
def test_while_torch_captures_a_forward(which: str, at: Any) -> None:
    model = nn.Linear(4, 4)
    captured = opgraph.profile(model, X).captured
    with late(at):
        comes_out(lambda: getattr(captured, which))


@pytest.mark.slow
def test_while_a_compiler_or_an_exporter_works(tmp_path: Path) -> None:
    from torch._inductor.graph import GraphLowering

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with late(GraphLowering.run):
        comes_out(lambda: opgraph.profile(model, X, inductor=True).totals)


@pytest.mark.slow
def test_a_forward_that_waits_for_its_own_handler_goes_on() -> None:
    class Patient(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            with contextlib.suppress(TimeoutError):
                signal.raise_signal(signal.SIGALRM)
                x = x + 1
            return super().forward(x)

    profile = opgraph.profile(Patient(4, 4), X)
    assert [n.op for n in profile.graph.nodes] == ["input", "linear", "output"]
    model = Patient(4, 4)

    class Around(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            try:
                opgraph.profile(Slow(4, 4), X)
            except TimeoutError:  # that of the profile within
                return model(x)
            return x

    inner = opgraph.profile(Around(), X)
    assert "linear" in [n.op for n in inner.graph.nodes]


def test_a_command_ends_by_it(tmp_path: Path) -> None:
    with late(torchvision.models.ResNet.__init__), pytest.raises(TimeoutError):
        main(["profile", "resnet18", "--debug"])
