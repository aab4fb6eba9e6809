"""Turns of threads. Settings, random numbers, what stands in for the weights of a model, and Python's
collector of cyclic garbage are the whole process's: only the thread whose turn it is reads and sets them,
from the first look to the last thing that is put back. `roomy` is what a thread has of its own: where its
calls lie. Nothing here imports torch."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from opgraph.record.errors import InputError

_lock = threading.RLock()
_holder: int | None = None
_runs = 0
"""How many runs of opgraph's the one whose turn it is is within."""
_own = threading.local()
_LOOK = 0.2
"""Seconds after which who waits looks again whether it waits for ever."""
_PATIENCE = 5.0
"""Seconds for which the one whose turn it is waits for one thing until whoever has that is told."""


def holder() -> int | None:
    """The thread whose turn it is."""
    return _holder


def is_mine() -> bool:
    """Whether it is this thread's turn, or that of one that it works for."""
    return _holder is not None and _holder in (
        threading.get_ident(),
        getattr(_own, "helped", None),
    )


def runs() -> int:
    """How many runs of opgraph's, one within another, there are around what this thread does."""
    return _runs if is_mine() else 0


@contextmanager
def turn(*, wait: bool = True, run: bool = True) -> Iterator[bool]:
    """Within, it is this thread's turn, and others wait. Without `wait` it may not come to it, which is
    told. What is done within is a `run` of opgraph's own, or somebody's work.

    Where something is `recorded` in this thread, what is done within is no part of that; what is `timed` in
    it ends before a run.

    Raises `InputError` where the one whose turn it is waits for this thread: each would wait for the other.
    """
    global _holder, _runs
    own = wait and run
    for end, thread in list(_timed.items()) if own else ():
        if thread == threading.get_ident():
            end()
    had = _lock.acquire(blocking=wait, timeout=_LOOK if wait else -1)
    place, since = None, 0.0
    while wait and not had:
        if _place() != place:
            place, since = _place(), time.monotonic()
        stuck = time.monotonic() - since > _PATIENCE and _is_mine_to_end()
        if is_mine() or _is_joined(threading.current_thread()) or stuck:
            raise InputError(
                "a forward that is profiled waits for a thread that profiles, too: one at a time",
                hint="profile in the forward's own thread",
            )
        had = _lock.acquire(timeout=_LOOK)
    if not had:
        yield False
        return
    before, _holder = _holder, threading.get_ident()
    _runs += own
    beside, _beside[:] = _beside[:], ()
    try:
        with beside[0]() if beside else nullcontext():
            yield True
    finally:
        _beside[:] = beside
        _runs -= own
        _holder = before
        _lock.release()


_beside: list[Callable[[], AbstractContextManager[None]]] = []
"""The context of what is no part of what this thread records, if it does."""


@contextmanager
def recorded(beside: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Within, all that this thread does is recorded, but for what is done `beside` it."""
    before, _beside[:] = _beside[:], [beside]
    try:
        yield
    finally:
        _beside[:] = before


_timed: dict[Callable[[], object], int] = {}
"""What ends a look at somebody's own work, and the thread that does the work."""


def timed(end: Callable[[], object]) -> None:
    """Until `untimed` this thread's own work is looked at: that ends before a run of opgraph's."""
    _timed[end] = threading.get_ident()


def untimed(end: Callable[[], object]) -> None:
    """Nothing is looked at any more that this ends."""
    _timed.pop(end, None)


def _forked() -> None:
    """In a process that is forked off, no other thread is left whose turn it could be."""
    global _lock, _holder, _runs
    if _holder not in (None, threading.get_ident()):
        _lock, _holder, _runs = threading.RLock(), None, 0
        _beside.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)


@contextmanager
def helping(thread: int | None) -> Iterator[None]:
    """Within, this thread works for another one."""
    before, _own.helped = getattr(_own, "helped", None), thread
    try:
        yield
    finally:
        _own.helped = before


def _is_joined(thread: threading.Thread) -> bool:
    """Whether the one whose turn it is waits for a thread to end."""
    frame = sys._current_frames().get(_holder or 0)  # noqa: SLF001
    while frame is not None:
        if frame.f_code is threading.Thread.join.__code__ and frame.f_locals["self"] is thread:
            return True
        frame = frame.f_back
    return False


def _place() -> tuple[int, int] | None:
    """Where the one whose turn it is is."""
    frame = sys._current_frames().get(_holder or 0)  # noqa: SLF001
    return None if frame is None else (id(frame), frame.f_lasti)


def _is_mine_to_end() -> bool:
    """Whether the one whose turn it is waits for something between threads (an event, a queue) that this
    thread has in hand: it may be there for others, too, and none of them has come."""
    frame, waits = sys._current_frames().get(_holder or 0), set[int]()  # noqa: SLF001
    while frame is not None and frame.f_globals.get("__name__") in _WAITING:
        if frame.f_locals.get("timeout") is None:
            waits.add(id(frame.f_locals.get("self")))
        frame = frame.f_back
    frame, held = sys._getframe(1), list[Any]()  # noqa: SLF001
    while frame is not None and waits:
        if not str(frame.f_globals.get("__name__")).startswith("opgraph."):
            held += frame.f_locals.values()
            held += [frame.f_globals.get(name) for name in frame.f_code.co_names]
        frame = frame.f_back
    within = (v for h in held for v in getattr(h, "__dict__", {}).values())
    return not waits.isdisjoint(map(id, (*held, *within)))


_WAITING = ("threading", "queue", "concurrent.futures._base")


class Standing(AbstractContextManager[None]):
    """Something that is in the process within, in the place of something else: `put` puts it there, and
    `take` takes it away."""

    _away = False

    def put(self) -> None:
        raise NotImplementedError

    def take(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> None:
        self.put()
        _STANDING.append(self)

    def __exit__(self, *_: object) -> None:
        _STANDING.remove(self)
        if not self._away:
            self.take()


_STANDING: list[Standing] = []


@contextmanager
def put_aside() -> Iterator[None]:
    """Within, nothing is `Standing`: all is there that is without opgraph. What is put there meanwhile is
    what is there afterwards."""
    standing = [each for each in _STANDING if not each._away]  # noqa: SLF001
    try:
        for each in reversed(standing):
            each._away = True  # noqa: SLF001
            each.take()
        yield
    finally:
        for each in standing:
            if each._away and each in _STANDING:  # noqa: SLF001  (another thread may have left it)
                each._away = False  # noqa: SLF001
                each.put()


class replaced(Standing):  # noqa: N801  (it is used like a function)
    """Within, a module or a class has another attribute under a name, in the tenth of the time that
    `unittest.mock` takes."""

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self._owner, self._name, self._value = owner, name, value

    def put(self) -> None:
        self._before = vars(self._owner).get(self._name, _INHERITED)
        setattr(self._owner, self._name, self._value)

    def take(self) -> None:
        if self._before is _INHERITED:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


@contextmanager
def variables(**values: str) -> Iterator[None]:
    """Within, variables of the environment have these values; the others stay there for other threads."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = was


class as_before(Standing):  # noqa: N801  (it is used like a function)
    """Within, somebody else may put another attribute there, as torch does while it traces; put aside, it
    is what it was."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner, self._name = owner, name
        self._plain = self._now = vars(owner)[name]

    def put(self) -> None:
        if vars(self._owner)[self._name] is self._plain:
            setattr(self._owner, self._name, self._now)

    def take(self) -> None:
        self._now = vars(self._owner)[self._name]
        setattr(self._owner, self._name, self._plain)


_INHERITED = object()


@contextmanager
def uncollected() -> Iterator[None]:
    """Within, no cyclic garbage is looked for, if it is or may be this thread's turn. Importing, building,
    recording and reading make objects by the hundred thousand and drop few; looking through them all again
    and again takes a fifth of the time. Memory is freed as ever when the last reference goes. What is left
    counts as old afterwards, and is looked through with all else that is old."""
    with turn(wait=False) as had, _Uncollected() if had else nullcontext():
        yield


class _Uncollected(Standing):
    def put(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def take(self) -> None:
        if self._was_on:
            aged()
            gc.enable()


def aged() -> None:
    """Let all that there is count as old: cyclic garbage is looked for among what is made from now on."""
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()  # to the oldest generation


P = ParamSpec("P")
R = TypeVar("R")

_SLOTS = 1 << 16
"""Half a MiB: more than a compiler's calls within each other take."""


def roomy(function: Callable[P, R]) -> Callable[P, R]:
    """A function below which calls find room. CPython asks the system for 16 KiB each time that calls reach
    beyond what a thread has for them, and gives it back when they return: a loop at such a border does so
    in each round (270,000 times, 2 of 17 seconds, in one compiled profile). A frame that does not fit gets
    the power of two above its size, and what is called from it lies in the rest."""

    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    called.__code__ = called.__code__.replace(co_stacksize=_SLOTS)
    return wraps(function)(called)
