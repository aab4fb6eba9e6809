"""What runs within a forward and is no part of it: handlers of signals, imports, what ends where rubbish is
looked for. What it changes of what was found before the run stays."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol

import torch
from torch import Tensor

from opgraph.record.identity import identity
from opgraph.tracing.state.process import changed
from opgraph.tracing.state.signals import Signals

_SIGNALS = 16
"""How often that is looked at for one kind of signal: a timer may send a thousand a second."""
_NoDispatch, _NoFunction = torch._C._DisableTorchDispatch, torch._C.DisableTorchFunction
"""What brings things back goes by these, whatever a forward puts in their place."""


class Kept(Protocol):
    """Something that is brought back after the run to what it was before."""

    def now(self) -> Any:
        """What it is now."""

    def let_stay(self, then: Any) -> None:
        """What became of it since is what it was before the run, too."""


Then = list[tuple[Kept, Any]]
"""What is kept, with what it was at some time within the run."""


@contextmanager
def plainly() -> Iterator[None]:
    """Within, torch does what it is asked to, whatever modes are on."""
    with _NoDispatch(), _NoFunction():
        yield


class Aside:
    """Notes what is `kept` before something that is no part of a forward, and lets stay what that changed.
    `signals` wait meanwhile."""

    def __init__(self, kept: Callable[[], Iterable[Kept]], signals: Signals) -> None:
        self._kept, self._signals = kept, signals
        self.is_within = False
        self._came: Counter[int] = Counter()

    def begins(self) -> Then:
        """All that is kept, as it is now. Within another such thing there is nothing to note: what changes
        stays with that."""
        then: Then = []
        if self.is_within:
            return then
        self.is_within = True
        with plainly(), self._signals.kept_waiting():
            for each in self._kept():
                with suppress(Exception):  # objects may answer as they like
                    then.append((each, each.now()))
        return then

    def ends(self, then: Then, staying: tuple[type, ...] = (object,)) -> None:
        """What is another by now than it was `then` stays, if it is kept by one of the types `staying`."""
        with plainly(), self._signals.kept_waiting():
            for each, there in then:
                with suppress(Exception):
                    if isinstance(each, staying):
                        each.let_stay(there)
        self.is_within = self.is_within and not then

    def is_too_often(self, number: int) -> bool:
        """Whether a signal, which has come once more, comes as often as a timer's."""
        self._came[number] += 1
        return self._came[number] > _SIGNALS


class Variables:
    """Context variables that what is no part of a forward sets, beside others that the run has of them."""

    def __init__(self) -> None:
        self._staying: dict[ContextVar[Any], Any] = {}

    def now(self) -> Context:
        """What all are now."""
        return copy_context()

    def let_stay(self, then: Context) -> None:
        """Those that are others than they were `then` are so when the run is over: but for those of a task,
        which has a context of its own."""
        loops = sys.modules.get("asyncio.events")
        if loops is None or loops._get_running_loop() is None:
            self._staying.update(changed(then, copy_context()))

    def back(self) -> None:
        """Set them."""
        for variable, value in self._staying.items():
            variable.set(value)


class Stands:
    """What stands for weights in dictionaries."""

    def __init__(self) -> None:
        self.of: dict[int, Tensor] = {}  # by the ids of what they stand for
        self._at: list[tuple[dict[Any, Any], Any, Any, Tensor]] | None = None

    def add(self, stands: Mapping[int, Tensor]) -> None:
        """These stand for the tensors of these ids."""
        self.of |= stands
        self._at = None

    @contextmanager
    def away(self, tables: Iterable[tuple[dict[Any, Any], dict[Any, Any]]]) -> Iterator[None]:
        """Within, `tables`, which are given with what was in them before the run, have again what something
        stands for."""
        if self._at is None:
            self._at = [
                (table, key, value, stand)
                for table, before in tables
                for key, value in before.items()
                if (stand := self.of.get(identity(value))) is not None
            ]
        standing = [each for each in self._at if each[0].get(each[1]) is each[3]]
        for table, key, value, _ in standing:
            table[key] = value
        try:
            yield
        finally:
            for table, key, value, stand in standing:
                if table.get(key) is value:
                    table[key] = stand
