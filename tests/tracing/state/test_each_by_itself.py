"""What cannot be brought back keeps nothing else from it, and is said."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opgraph
from opgraph.tracing.state.reach import Reach
from opgraph.tracing.target.autocast import Followed

X = torch.ones(2, 4)
SAID = "not all is as it was before the run: AttributeError: it is as it is"


class Fixed:
    """Its value is another object each time, and nobody may set it; a library's, as it says."""

    __module__ = "torch.fixed"

    @property
    def value(self) -> object:
        return object()

    @value.setter
    def value(self, _: object) -> None:
        raise AttributeError("it is as it is")


FIXED, HELD = Fixed(), []


@lru_cache
def times(number: int) -> int:
    return 2 * number


class Stubborn(nn.Linear):
    """It tries to set what nobody may set, changes a list and fills a cache."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__(4, 4)
        self.calls, self.fails = 0, fails

    def forward(self, x: Tensor) -> Tensor:
        with contextlib.suppress(AttributeError):
            FIXED.value = 1
        self.calls += times(2)
        HELD.append(self.calls)
        if self.fails:
            raise ValueError("no")
        return super().forward(x)


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    times.cache_clear()
    yield
    times.cache_clear()


def test_the_others_are_brought_back_where_one_cannot_be() -> None:
    model = Stubborn()
    found = Reach.of([model])
    model(X)
    assert times.cache_info().currsize
    assert found.restore() == [SAID]
    assert (model.calls, HELD, times.cache_info().currsize) == (0, [], 0)


@pytest.mark.parametrize("tracer", ["eager", "fx", "dynamo", "export", "hybrid"])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.slow
def test_a_profile_says_what_cannot_be_brought_back_and_ends_as_it_would(
    tracer: str, fails: bool
) -> None:
    """So it does behind a warm-up that fails, and where what `torch.fx` has put into a model goes."""
    model = Stubborn(fails=fails)
    if fails:
        with pytest.raises(opgraph.TraceError, match="no") as raised:
            opgraph.profile(model, X, tracer=tracer)
        said = getattr(raised.value, "__notes__", [])
        partial = raised.value.profile
        said += [] if partial is None else partial.model.notes
    else:
        said = opgraph.profile(model, X, tracer=tracer).model.notes
    assert any(SAID in text for text in said)
    assert (model.calls, HELD, times.cache_info().currsize) == (0, [], 0)


class Odd:
    """Keys that are all in one place of a table, and may not be compared once `shut`."""

    shut = False

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        if self.shut:
            raise TypeError("not to be compared")
        return self is other


class Puts(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)
        self.table: dict[Any, int] = {Odd(): 1, Odd(): 2}
        self.members: Any = {Odd(), Odd()}

    def forward(self, x: Tensor) -> Tensor:
        self.table[Odd()] = 3
        self.table[next(iter(self.table))] = 5
        self.members.add(Odd())
        Odd.shut = True
        return super().forward(x)


def test_a_table_whose_keys_do_not_let_themselves_be_compared_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Odd, "shut", False)
    model = Puts()
    table, members = list(map(id, model.table)), set(map(id, model.members))
    found = Reach.of([model])
    model(X)
    assert found.restore() == []
    assert (list(map(id, model.table)), list(model.table.values())) == (table, [1, 2])
    assert set(map(id, model.members)) == members


def test_a_global_that_does_not_answer_keeps_no_other_module_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Silent:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    for name in ("opgraph_one", "opgraph_two"):
        module: Any = ModuleType(name)
        module.value = 1
        monkeypatch.setitem(sys.modules, name, module)
    one, two = (sys.modules[name] for name in ("opgraph_one", "opgraph_two"))

    class Sets(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            for module in self.held:
                vars(module).update(value=Silent(), more=Silent())
            return super().forward(x)

    model = Sets(4, 4)
    model.held = [one, two]
    profile = opgraph.profile(model, X)
    assert not profile.remarks
    for module in (one, two):
        assert (module.value, hasattr(module, "more")) == (1, False)


FOLLOWED = ("is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype",
            "clear_autocast_cache")  # fmt: skip


def followed() -> list[Any]:
    cls = torch.amp.autocast_mode.autocast
    return [vars(torch)[n] for n in FOLLOWED] + [vars(cls)[n] for n in ("__init__", "__enter__")]


@pytest.mark.parametrize("put", range(1, 8))
@pytest.mark.parametrize("event", ["call", "return"])
def test_autocast_is_not_followed_after_an_interrupt_half_way(put: int, event: str) -> None:
    before, calls = followed(), 0

    def interrupts(frame: Any, what: str, _: Any) -> None:
        nonlocal calls
        if what == event and frame.f_code is Followed._put.__code__:
            calls += 1
            if calls == put:
                raise KeyboardInterrupt

    profiler = sys.getprofile()
    sys.setprofile(interrupts)
    try:
        with pytest.raises(KeyboardInterrupt):
            Followed("cuda", "cpu", lambda _: None).__enter__()
    finally:
        sys.setprofile(profiler)
    assert followed() == before


def test_autocast_is_not_followed_any_more_where_leaving_it_fails() -> None:
    before = followed()
    context = Followed("cuda", "cpu", lambda _: None)
    context.__enter__()
    assert followed() != before

    def fails() -> None:
        raise RuntimeError("no")

    context._stack.callback(fails)
    with pytest.raises(RuntimeError):
        context.__exit__()
    assert followed() == before
