"""What objects say of what they stand for, or go by, which is asked and not set: sockets, processes,
threads, streams, loggers."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable
from functools import partial
from io import TextIOWrapper
from multiprocessing.process import current_process
from operator import attrgetter
from types import FunctionType
from typing import Any
from unittest.mock import ANY

from opgraph.tracing.state.classes import OfClasses
from opgraph.tracing.state.code import set_by
from opgraph.tracing.state.holding import MISSING
from opgraph.tracing.state.packages import is_closed, parts_of
from opgraph.tracing.state.steps import Left

_BEHIND: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("socket", "socket"): lambda s: (s.fileno(), s.fileno() < 0 or s.gettimeout()),
    ("subprocess", "Popen"): lambda p: p.returncode,
    ("multiprocessing.process", "BaseProcess"): lambda p: p._popen,
    ("concurrent.futures._base", "Executor"): lambda e: (
        getattr(e, "_shutdown", None), getattr(e, "_shutdown_thread", None)),
    ("asyncio.events", "AbstractEventLoop"): lambda e: (e.is_closed(), e.get_debug()),
    ("multiprocessing.connection", "_ConnectionBase"): lambda c: c.closed,
    ("multiprocessing.pool", "Pool"): lambda p: p._state,
    ("multiprocessing.queues", "Queue"): lambda q: q._closed,
    ("sqlite3", "Connection"): lambda c: (
        c.total_changes, c.in_transaction, c.row_factory, c.text_factory, c.isolation_level),
    ("_lsprof", "Profiler"): lambda p: (
        ANY if _is_on(p) else sum(each.callcount for each in p.getstats())),
    ("numba.typed.typedlist", "List"): lambda held: pickle.dumps(list(held)),
    ("numba.typed.typeddict", "Dict"): lambda held: pickle.dumps(list(held.items())),
    ("_box", "Box"): lambda made: pickle.dumps(
        [getattr(made, name) for name in type(made)._numba_type_.struct]),
}  # fmt: skip
"""Classes whose objects stand for what is outside of Python, by module and name, and what they say of it.
To set it again would make them say what is not so."""


_ENDED: dict[tuple[str, str], Callable[[Any], bool]] = {
    ("_io", "_IOBase"): lambda f: f.closed,
    ("socket", "socket"): lambda s: s.fileno() < 0,
    ("subprocess", "Popen"): lambda p: p.returncode is not None,
    ("concurrent.futures._base", "Executor"): lambda e: bool(
        getattr(e, "_shutdown", False) or getattr(e, "_shutdown_thread", False)),
    ("asyncio.events", "AbstractEventLoop"): lambda e: e.is_closed(),
    ("multiprocessing.connection", "_ConnectionBase"): lambda c: c.closed,
    ("multiprocessing.pool", "Pool"): lambda p: p._state != "RUN",
    ("multiprocessing.queues", "Queue"): lambda q: q._closed,
    ("sqlite3", "Connection"): lambda c: c.total_changes < 0,
}  # fmt: skip
"""How one of these, or a file, says that it is closed, shut down or over, which is for good."""

_GOING_WITH: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("torch.profiler.profiler", "_KinetoProfile"): lambda p: (
        getattr(p, "current_action", None), p.profiler),
    ("torch.autograd.profiler", "profile"): lambda p: (p.entered, p.kineto_results),
}  # fmt: skip
"""Classes of torch's whose objects go with something in C that none of them says, which is one for the
process, and how they say where they are."""


def _is_on(profiler: Any) -> bool:
    """Whether a profiler of Python's is told of all that runs, opgraph's, too."""
    hears = getattr(sys, "monitoring", None)  # from Python 3.12 on
    return sys.getprofile() is profiler or (
        hears is not None and hears.get_tool(hears.PROFILER_ID) is not None
    )


def behind(cls: type) -> Callable[[Any], Any] | None:
    """What an object of a class says of what is behind it, or how it refuses to, as when it is closed; None
    where it does not stand for anything."""
    return _asked(cls, _BEHIND)


def ending(cls: type) -> Callable[[Any], Any] | None:
    """What an object of a class says of whether it has ended, False as long as it has not; None where it
    cannot end."""
    return _asked(cls, _ENDED)


def going_with(cls: type) -> Callable[[Any], Any] | None:
    """What an object says that goes on together with something in C; None where it does not."""
    return _asked(cls, _GOING_WITH)


def says_the_same(says: Callable[[Any], Any], item: Any, before: Any) -> bool:
    """Whether an object says what it did."""
    return bool(says(item) == before)


def _asked(
    cls: type, by: dict[tuple[str, str], Callable[[Any], Any]]
) -> Callable[[Any], Any] | None:
    names = ((each.__module__, each.__qualname__) for each in cls.__mro__)
    asks = next((by[name] for name in names if name in by), None)
    return None if asks is None else partial(_said, asks)


def _said(asks: Callable[[Any], Any], item: Any) -> Any:
    try:
        return asks(item)
    except Exception as error:  # noqa: BLE001  (it may answer as it likes)
        return type(error)


def unchanged(item: Any, says: Callable[[Any], Any], before: Any) -> None:
    """Raises where it says something else by now."""
    if says(item) != before:
        raise Left(f"forward changed what is behind an object ({type(item).__qualname__})")


_COURSES: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("threading", "Thread"): lambda t: t._ident and partial(threading.Thread.is_alive, t),
    ("multiprocessing.process", "BaseProcess"): lambda p: (
        p.is_alive if p._popen or p is current_process() else None),
}  # fmt: skip
"""How what Python starts once gives what says whether it goes on; None as long as it has not begun."""


class Own:
    """What somebody keeps in an object that stands for something, or that goes on by itself, as a thread
    does: its attributes but for those which its library sets, `theirs`. One that has not begun goes on by
    nothing: all that it has is kept in it."""

    __slots__ = ("_item", "_says", "_unset", "before", "table", "theirs")

    def __init__(self, item: Any, table: dict[str, Any]) -> None:
        says = _asked(type(item), _COURSES)
        fresh = says is not None and says(item) is None
        self._item, self._says = item, says if fresh else None
        self.table, self.theirs = table, frozenset[str]() if fresh else set_by_library(type(item))
        self.before = {n: v for n, v in table.items() if n not in self.theirs}
        events = [v for v in self.before.values() if fresh and type(v) is threading.Event]
        self._unset = [event for event in events if not event.is_set()]

    def held(self) -> list[Any]:
        """What is in it, but for what is set as it begins and ends."""
        return [v for v in self.before.values() if not any(v is each for each in self._unset)]

    def back(self) -> None:
        """Let it have that again: as one that has not begun, if it is over by now."""
        going = None if self._says is None else self._says(self._item)
        if going is not None and going():
            raise Left(f"forward started what Python starts once ({type(self._item).__qualname__})")
        for name in self.table.keys() - self.before.keys() - self.theirs:
            del self.table[name]
        self.table.update((n, v) for n, v in self.before.items() if n not in self.theirs)
        if going is not None:
            for event in self._unset:
                event.clear()
            if (handle := self.table.get("_handle")) is not None:  # from Python 3.13 on
                self.table["_handle"] = type(handle)()


def set_by_library(cls: type) -> frozenset[str]:
    """The attributes that the classes of libraries among those above a class set, in code of theirs."""
    libraries = [each for each in cls.__mro__ if is_closed(each.__module__)]
    for each in libraries:
        if _SET.of(each) is MISSING:
            parts = (part for value in vars(each).values() for part in parts_of(value))
            codes = [part.__code__ for part in parts if type(part) is FunctionType]
            _SET.keep(each, set().union(*map(set_by, codes)))
    return frozenset().union(*map(_SET.of, libraries))


_SET = OfClasses()


def context_back(context: Any, says: Any) -> None:
    """Let a context of decimal numbers say what it did."""
    for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "flags", "traps"):
        setattr(context, name, getattr(type(context)(*says), name))


def text_says(stream: Any) -> Any:
    """How a stream of text writes it; None of one that has none."""
    if type(stream) is TextIOWrapper:
        return _WRITES(stream)
    return (
        tuple(getattr(stream, n, None) for n in _OF_TEXT)
        if hasattr(stream, "reconfigure")
        else None
    )


_OF_TEXT = ("encoding", "errors", "line_buffering", "write_through")
_WRITES = attrgetter(*_OF_TEXT)


def text_back(stream: Any, before: Any) -> None:
    """Let a stream write as it did."""
    if before is not None and text_says(stream) != before:
        encoding, errors, lines, through = before
        stream.reconfigure(
            encoding=encoding, errors=errors, line_buffering=lines, write_through=through
        )


def logger_says(logger: Any) -> Any:
    """What a logger goes by itself."""
    return (logger.level, logger.disabled, logger.propagate, logger.manager.disable,
            logger.handlers[:], logger.filters[:])  # fmt: skip


def logger_back(logger: Any, before: Any) -> None:
    """Let a logger go by what it did, and all others not by what they heard of it meanwhile."""
    if logger_says(logger) != before:
        (logger.level, logger.disabled, logger.propagate, logger.manager.disable,
         logger.handlers[:], logger.filters[:]) = before  # fmt: skip
        logger.manager._clear_cache()
