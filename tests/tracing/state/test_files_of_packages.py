"""What a file of an installed package keeps is as before, whichever code of it changes that: methods of
bases and of objects, and functions that it made."""

from __future__ import annotations

import copy
import inspect
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.tracing.state.using import Using
from torch import Tensor, nn
from tqdm import tqdm

import opgraph
from opgraph.tracing.state import guard

X = torch.ones(2, 8)
LIBRARY = """
import io, itertools, queue, threading, weakref
from collections import namedtuple
from types import SimpleNamespace
Pair = namedtuple("Pair", "a b")
import torch
from torch.utils import _pytree
COUNT, LAST, LOG, SUMS = 0, None, [], {}
def _note(name):
    global COUNT, LAST
    COUNT, LAST = COUNT + 1, name
    LOG.append(name)
    SUMS[name] = SUMS.get(name, 0) + 1
class Base(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
    def __call__(self, *args):
        _note("call")
        return super().__call__(*args)
    def note(self):
        self._note()
    def _note(self):
        _note("base")
class Config:
    width = 2
    def get(self, name):
        self._asked(name)
        return getattr(self, name)
    def _asked(self, name):
        _note(name)
class Timer:
    times = {}
    def __enter__(self):
        self._start()
    def __exit__(self, *_):
        pass
    def _start(self):
        Timer.times["runs"] = len(Timer.times)
        _note("timer")
def hooks(module, name):
    def hook(*_):
        _note(name)
    return module.register_forward_hook(hook)
def counted(function):
    def wrapper(*args):
        _note("wrapper")
        return function(*args)
    return wrapper
class Box:
    pass
DONE, WORKER, BEATS, JOBS = False, None, 0, []
def once():
    global DONE
    if not DONE:
        _pytree.register_pytree_node(Box, lambda _: ([], None), lambda *_: Box())
        DONE = True
def started(done):
    global WORKER
    if WORKER is None:
        WORKER = threading.Thread(target=done.wait)
        WORKER.start()
def beats(done):
    global BEATS
    while not done.is_set():
        BEATS += 1
        JOBS.append(BEATS)
class Once(torch.nn.Linear):
    def forward(self, x):
        once()
        return super().forward(x)
class Starts(torch.nn.Linear):
    done = threading.Event()
    def forward(self, x):
        started(self.done)
        return super().forward(x)
def memo():
    cache = {}
    def recall(name):
        cache[name] = len(cache)
        recall.calls = len(cache)
        return cache
    return recall
recall, PAIR, ARGS = memo(), Pair([], {}), SimpleNamespace(step=0)
recall.calls = 0
GONE = weakref.proxy(type("Ended", (), {})())
WAITING, TEXT, NUMBERS = queue.Queue(), io.StringIO(), itertools.count()
class Recalls(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
    def use(self):
        recall(len(recall("a")))
        PAIR.a.append(1)
        ARGS.step += 1
        WAITING.put(next(NUMBERS))
        TEXT.write("used")
def activation(scale):
    return lambda x: (_note("activation"), x * scale)[1]
"""


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: Any = ModuleType("noting")
    made.__file__ = "/site-packages/noting.py"
    exec(LIBRARY, vars(made))  # noqa: S102
    monkeypatch.setitem(sys.modules, "noting", made)
    monkeypatch.setitem(globals(), "noting", made)
    return made


def _below(library: Any) -> nn.Module:
    class Below(library.Base):  # type: ignore[misc]
        def forward(self, x: Tensor) -> Tensor:
            self.note()
            y: Tensor = self.layer(x)
            return y

    return Below()


def _below_a_call(library: Any) -> nn.Module:
    class Below(library.Base):  # type: ignore[misc]
        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(x)
            return y * y.sum().item()

    return Below()


def _configured(library: Any) -> nn.Module:
    class Own(library.Config):  # type: ignore[misc]
        height = 3

    own = Own()
    return Using(lambda: own.get("height"))


def _entered(_: Any) -> nn.Module:
    def use() -> None:
        with noting.Timer():  # type: ignore[name-defined] # noqa: F821
            pass

    return Using(use)


def _hooked(library: Any) -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    library.hooks(model[0], "hook")
    return model


def _wrapped(library: Any) -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8))
    model[0].forward = library.counted(model[0].forward)
    return model


def _activated(library: Any) -> nn.Module:
    class Activates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.activation = nn.Linear(8, 8), library.activation(2.0)

        def forward(self, x: Tensor) -> Any:
            return self.activation(self.layer(x))

    return Activates()


@pytest.mark.parametrize("options", [{}, {"mode": "train"}], ids=["infer", "train"])
@pytest.mark.parametrize(
    "made", [_below, _below_a_call, _configured, _entered, _hooked, _wrapped, _activated]
)
def test_what_a_file_of_a_package_keeps(
    made: Callable[[Any], nn.Module], options: dict[str, Any], library: Any
) -> None:
    model = made(library)

    def state() -> Any:
        return copy.deepcopy(
            (library.COUNT, library.LAST, library.LOG, library.SUMS, library.Timer.times)
        )

    model(X)
    before = state()
    profile = opgraph.profile(model, X, **options)
    assert state() == before
    assert not [remark for remark in profile.remarks if remark.code == "state"]
    model(X)
    assert state() != before


def test_what_is_done_for_good_is_noted_for_good(library: Any) -> None:
    """What registers does so once, and goes by a global."""

    class Below(library.Once):  # type: ignore[misc]
        pass

    model = Below(8, 8)
    profile = opgraph.profile(model, X)
    assert any("registered with pytree" in str(remark) for remark in profile.remarks)
    assert library.DONE
    assert not [r for r in opgraph.profile(model, X).remarks if r.code == "state"]
    assert model(X).shape == (2, 8)


def test_a_thread_that_goes_on_is_not_forgotten(library: Any) -> None:
    class Below(library.Starts):  # type: ignore[misc]
        pass

    try:
        model = Below(8, 8)
        opgraph.profile(model, X)
        first = library.WORKER
        assert first.is_alive()
        opgraph.profile(model, X)
        assert library.WORKER is first
    finally:
        library.Starts.done.set()
        library.WORKER.join()


class OwnBars(tqdm):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize("bars", [tqdm, OwnBars])
def test_a_thread_that_a_class_of_a_package_has_goes_on(
    bars: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a name by which the model has something, too, and of a class of one's own below it."""
    monkeypatch.setattr(tqdm, "monitor", None)

    class Bars(nn.Linear):
        monitor = "loss"

        def forward(self, x: Tensor) -> Tensor:
            self.monitor = "validation"
            for _ in bars(range(2)):
                x = super().forward(x)
            return x

    model = Bars(8, 8)
    opgraph.profile(model, X)
    first: Any = bars.monitor
    try:
        opgraph.profile(model, X)
        assert bars.monitor is first
        assert model.monitor == "loss"
    finally:
        first.exit()


def test_what_a_thread_of_a_package_sets_stays(library: Any) -> None:
    done = threading.Event()
    thread = threading.Thread(target=library.beats, args=(done,))
    thread.start()
    try:
        opgraph.profile(_below(library), X)
    finally:
        done.set()
        thread.join()
    assert [*range(1, library.BEATS + 1)] == library.JOBS


def test_closures_records_and_queues_of_a_package(
    library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "alone", lambda: True)  # a queue is set where no other thread is

    class Below(library.Recalls):  # type: ignore[misc]
        def forward(self, x: Tensor) -> Any:
            self.use()
            return self.layer(x)

    cache = inspect.getclosurevars(library.recall).nonlocals["cache"]

    def state() -> Any:
        held = library.WAITING.qsize(), library.TEXT.getvalue(), str(library.NUMBERS)
        return dict(cache), library.recall.calls, list(library.PAIR.a), library.ARGS.step, held

    before = state()
    profile = opgraph.profile(Below(), X)
    assert state() == before
    assert not [remark for remark in profile.remarks if remark.code == "state"]
