"""What holds for a whole request, whatever attempts it takes: what any of them left behind is said, and an
interrupt at its end leaves nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import torch
from torch import nn

import opgraph
from opgraph.integrations.meter import Meter


class Once(nn.Module):
    """Makes a file at its first call alone, as a library makes a table or compiles an extension."""

    def __init__(self, path: Path, layer: nn.Module) -> None:
        super().__init__()
        self.path, self.layer = path, layer

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        if not self.path.exists():
            self.path.write_text("made", encoding="utf-8")
        found: torch.Tensor = self.layer(x)
        return found if y is None else found + y


X = torch.randn(2, 8)
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (X, {}),
    "warm-up": (X, {"warm_up": True}),
    "list": ([X, X], {}),
    "array": (X.numpy(), {}),
    "dynamo": (X, {"tracer": "dynamo"}),
    "hybrid": (X, {"tracer": "hybrid"}),
    "train": (X, {"mode": "train"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_an_attempt_leaves_is_said_whichever_it_is(way: str, tmp_path: Path) -> None:
    inputs, options = WAYS[way]
    found = opgraph.profile(Once(tmp_path / "made", nn.Linear(8, 8)), inputs, **options)
    said = [r for r in found.remarks if r.code == "state" and str(tmp_path / "made") in r]
    assert len(said) == 1, found.remarks


@pytest.mark.slow
def test_so_it_is_of_lazy_layers_and_by_check(tmp_path: Path) -> None:
    lazy = opgraph.profile(Once(tmp_path / "lazy", nn.LazyLinear(8)), X)
    assert any("lazy" in r for r in lazy.remarks if r.code == "state")
    checked = opgraph.check(Once(tmp_path / "checked", nn.Linear(8, 8)), X, counters=False)
    assert any("checked" in r for r in checked.remarks if r.code == "state")


@pytest.mark.slow
def test_an_error_says_it_too(tmp_path: Path) -> None:
    class Fails(Once):
        def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
            return super().forward(x, y)[int(x.argmax()) :].view(-1, 10**9)

    with pytest.raises(opgraph.TraceError) as raised:
        opgraph.profile(Fails(tmp_path / "made", nn.Linear(8, 8)), X, tracer="export")
    assert any(str(tmp_path / "made") in note for note in raised.value.__notes__)


def _interrupted(model: Any, there: Callable[[Any], bool]) -> None:
    """Interrupt a profile as a function is called, the first time that it is the one."""
    came = []

    def interrupts(frame: Any, event: str, _: Any) -> None:
        if event == "call" and not came and there(frame):
            came.append(frame.f_code)
            signal.raise_signal(signal.SIGINT)

    before = sys.getprofile()
    sys.setprofile(interrupts)
    try:
        with pytest.raises(KeyboardInterrupt):
            opgraph.profile(model, X)
    finally:
        sys.setprofile(before)
    assert came


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("at", ["changed", "back"])
def test_an_interrupt_waits_until_settings_are_back(at: str, tmp_path: Path) -> None:
    """It comes as the first of them is looked at, or the loggers are."""
    file = tmp_path / "of_one_file.py"
    file.write_text(
        "import torch\nclass Net(torch.nn.Linear):\n    def __init__(self):\n"
        "        super().__init__(4, 4)\n        torch.set_num_threads(torch.get_num_threads() + 1)\n",
        encoding="utf-8",
    )
    threads = torch.get_num_threads()

    def there(frame: Any) -> bool:
        return frame.f_code.co_name == at and frame.f_back.f_code.co_name == "put_back"

    _interrupted(f"{file}:Net", there)
    assert torch.get_num_threads() == threads


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interrupt_while_a_tensor_is_freed_is_not_dropped() -> None:
    """Python only prints what is raised by what it calls then."""
    after: list[int] = []

    class Frees(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            y = x + y  # the first one is freed
            after.append(1)
            return y * 2

    _interrupted(Frees(), lambda frame: frame.f_code.co_name == "_freed")
    assert after == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interrupt_while_what_is_held_weakly_goes_is_not_dropped() -> None:
    class Forgets(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            part = nn.Identity()
            held = WeakSet([part])
            del part
            return x + len(held)

    def there(frame: Any) -> bool:
        above = frame.f_back
        by = None if above is None else above.f_code
        return frame.f_code.co_name == "_remove" and by is Forgets.forward.__code__

    _interrupted(Forgets(), there)


INTERRUPTED = """
import signal, sys, torch, opgraph

model, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
opgraph.profile(model, x, mode="train")
for at in range(1, LAST + 1):
    count = 0

    def interrupts(frame, event, _):
        global count
        if event == "call" and frame.f_code is CODE:
            count += 1
            if count == at:
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(interrupts)
    try:
        opgraph.profile(model, x, mode="train")
    except KeyboardInterrupt:
        continue
    finally:
        sys.setprofile(None)
    sys.exit(f"the interrupt at call {at} is lost")
"""


@pytest.mark.parametrize(
    ("code", "last"),
    [
        # which C++ asks where it lets no error out
        ("torch._library.simple_registry.find_torch_dispatch_rule", 24),
        # by which hooks of a run go, one after the other
        ("torch.utils.hooks.RemovableHandle.remove", 4),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interrupt_in_training_ends_the_profile_alone(code: str, last: int) -> None:
    text = INTERRUPTED.replace("CODE", f"{code}.__code__").replace("LAST", str(last))
    command = [sys.executable, "-c", text]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="timers of POSIX")
def test_a_timer_that_ends_within_does_so_once() -> None:
    heard: list[int] = []

    class Waits(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while signal.getitimer(signal.ITIMER_REAL)[0]:
                time.sleep(0.0001)
            return super().forward(x)

    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    try:
        for _ in range(20):  # of a moment that is rounded, half are later than it
            heard.clear()
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            opgraph.profile(Waits(8, 8), X)
            time.sleep(0.01)
            assert len(heard) == 1
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("how", ["recording", "meter"])
def test_a_model_compiled_in_place_is_followed(how: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    model.compile(backend="eager", fullgraph=True)  # where a hook would have no place
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def steps() -> list[float]:
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(X).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    state = {name: value.clone() for name, value in model.state_dict().items()}
    expected = steps()
    model.load_state_dict(state)
    if how == "meter":
        meter = Meter()
        meter.attach([model])
        assert steps() == expected
        assert meter.take()["flops_per_second"] > 0
        meter.detach()
    else:
        with opgraph.recording(model) as run:
            assert steps() == expected
        assert run.measured.record.source == "recording"


@pytest.mark.slow
@pytest.mark.parametrize("shown", ["str(p)", "p._repr_html_()", "str(opgraph.compare(p, p))"])
def test_what_is_shown_first_draws_no_random_number(shown: str) -> None:
    code = (
        "import random, torch, opgraph\n"
        "p = opgraph.profile(torch.nn.Linear(4, 4), torch.ones(1, 4))\n"
        f"before = random.getstate()\n{shown}\n"
        "assert random.getstate() == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
