"""What a person's own modules keep is as before, by whatever way the code that changes it is found."""

from __future__ import annotations

import importlib
import importlib.util
import json
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from operator import methodcaller
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from tests.tracing.state.using import Using
from torch import Tensor, nn

import opgraph

X = torch.ones(2, 8)
NOTES = """
import collections
CALLS, TABLE, NUMBER, QUEUE = [], {}, 0, collections.deque()
class Kept:
    calls = []
    def __init__(self):
        self.seen = {}
KEPT = Kept()
def note(*_):
    global NUMBER
    NUMBER += 1
    CALLS.append(NUMBER)
    TABLE[f"call {NUMBER}"] = NUMBER
    QUEUE.append(NUMBER)
    Kept.calls.append(NUMBER)
    KEPT.seen[NUMBER] = [NUMBER]
def state():
    return [NUMBER, list(CALLS), dict(TABLE), list(QUEUE), list(Kept.calls), dict(KEPT.seen)]
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package of a person's own with a module in it, which nothing here names."""
    package = tmp_path / "noting_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "kept.py").write_text(NOTES)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("noting_package.kept")
    for name in [name for name in sys.modules if name.startswith("noting_package")]:
        del sys.modules[name]


class Written:
    """Stands in for a file."""

    def __init__(self, note: Callable[..., None]) -> None:
        self.note = note

    def write(self, _: str) -> None:
        self.note()


class Set:
    """Notes what is set."""

    def __init__(self, note: Callable[..., None]) -> None:
        self.__dict__["_note"] = note

    @property
    def mode(self) -> int:
        return 1

    @mode.setter
    def mode(self, _: int) -> None:
        self.__dict__["_note"]()

    @property
    def rank(self) -> int:
        self.__dict__["_note"]()
        return 0


class Config(NamedTuple):
    path: str = "noting_package.kept"


def _by_a_text_of_a_class(_: Any) -> Callable[[], Any]:
    return lambda: vars(importlib.import_module(Config().path))["note"]()  # noqa: PLW0108  (found as it is called)


def _by_a_file(notes: Any) -> Callable[[], Any]:
    file: Any = Written(notes.note)
    return lambda: print("text", file=file)


def _by_what_a_library_calls(notes: Any) -> Callable[[], Any]:
    file: Any = Written(notes.note)
    return lambda: json.dump([1], file)


def _by_a_setter(notes: Any) -> Callable[[], Any]:
    return partial(setattr, Set(notes.note), "mode", 1)


def _as_it_is_asked_for(notes: Any) -> Callable[[], Any]:
    return partial(hasattr, Set(notes.note), "rank")


def _by_a_method_that_is_held(notes: Any) -> Callable[[], Any]:
    call = methodcaller("note")
    return lambda: call(notes)


WAYS = [_by_a_text_of_a_class, _by_a_file, _by_what_a_library_calls, _by_a_setter, _as_it_is_asked_for,
        _by_a_method_that_is_held]  # fmt: skip


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_module_of_ones_own_keeps(
    way: Callable[[Any], Callable[[], Any]], values: bool, notes: Any
) -> None:
    use = way(notes)
    use()
    before = notes.state()
    for options in ({}, {"mode": "train"}):
        profile = opgraph.profile(Using(use, values), X, **options)  # type: ignore[arg-type]
        assert notes.state() == before
        assert not [remark for remark in profile.remarks if remark.code == "state"]
    use()
    assert notes.state() != before


def test_a_function_in_the_place_of_one_of_a_library(
    notes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that the forward names leads to it."""
    plain = nn.functional.relu

    def counted(*args: Any, **kwargs: Any) -> Tensor:
        notes.note()
        return plain(*args, **kwargs)

    monkeypatch.setattr(nn.functional, "relu", counted)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    model(X)
    before = notes.state()
    opgraph.profile(model, X)
    assert notes.state() == before


def test_what_another_thread_keeps_meanwhile_stays(notes: Any) -> None:
    """It runs in code of a person's own: what is not within reach of the forward is its own."""
    done, going = threading.Event(), threading.Event()

    def run() -> None:
        while not done.is_set():
            notes.note()
            going.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        going.wait()
        opgraph.profile(nn.Linear(8, 8), X)
    finally:
        done.set()
        thread.join()
    assert [*range(1, notes.NUMBER + 1)] == notes.CALLS


def test_a_module_of_a_class_of_its_own(notes: Any) -> None:
    """As lazy ones are, of which each attribute is looked up by code."""

    class Module(ModuleType):
        def __getattr__(self, name: str) -> Any:
            return getattr(notes, name)

    module: Any = Module("lazy_notes")
    sys.modules["lazy_notes"] = module
    try:
        module.note()
        before = notes.state()
        opgraph.profile(Using(lambda: module.note()), X)  # noqa: PLW0108  (found as it is called)
        assert notes.state() == before
    finally:
        del sys.modules["lazy_notes"]


def test_a_big_array_of_ones_own_is_not_copied(notes: Any) -> None:
    """No forward reaches it."""
    notes.big = torch.ones(1 << 20).numpy()
    profile = opgraph.profile(nn.Linear(8, 8), X, memory_limit=0.001)
    assert not [remark for remark in profile.remarks if remark.code == "state"]


def test_what_ends_meanwhile_is_not_held_again(notes: Any) -> None:
    """A weak table, where what is in it goes as the forward runs, or as Python looks for rubbish."""
    held = weakref.WeakValueDictionary({1: Written(notes.note), 2: (kept := Written(notes.note))})
    notes.weakly, both = held, [Written(notes.note)]
    notes.weakly[3] = both[0]

    class Drops(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            both.clear()
            return super().forward(x)

    opgraph.profile(Drops(8, 8), X)
    assert held[2] is kept
    assert all(reference() is not None for reference in held.valuerefs())


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals of POSIX")
def test_what_a_handler_of_a_signal_notes_stays(notes: Any) -> None:
    """It is no part of the forward, and may have come from elsewhere."""
    before = signal.signal(signal.SIGUSR1, lambda *_: notes.note())
    try:
        opgraph.profile(Using(lambda: signal.raise_signal(signal.SIGUSR1)), X)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert notes.CALLS


@pytest.mark.parametrize("size", [10, 300_000])
def test_a_big_table_does_not_hide_the_others(size: int, notes: Any) -> None:
    notes.words = [str(number) for number in range(size)]
    notes.note()
    before = notes.state()
    opgraph.profile(Using(_by_a_setter(notes)), X)
    assert notes.state() == before
