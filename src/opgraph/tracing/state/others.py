"""The other threads that there are as a forward runs: whether one may do something of its own meanwhile,
whose code it is in, and whether it did."""

from __future__ import annotations

import multiprocessing.process
import os
import sys
import threading
from concurrent.futures.thread import _worker
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

import torch

from opgraph.tracing.state.packages import is_opaque

_NEUTRAL = frozenset(sys.stdlib_module_names) | {"numpy", "tqdm"}
"""Packages that write for whoever calls them."""
_HOSTS = {
    "execnet",
    "IPython",
    "ipykernel",
    "jupyter_client",
    "tornado",
    "traitlets",
    "zmq",
}
"""Packages whose threads change nothing of a person's own: those of notebooks and of runners of tests."""
_OF_POOLS = frozenset({"threading", "concurrent", "queue"})
_LONG = 200


def serves(other: threading.Thread) -> bool:
    """Whether a thread does nothing by itself: those of a pool live on after a run, and follow only what is
    submitted in it; the monitor of progress bars lives on, too, and computes nothing, and so does what
    feeds a queue of several processes."""
    target = getattr(other, "_target", None)
    feeds = getattr(target, "__module__", None) == "multiprocessing.queues"
    return target is _worker or feeds or type(other).__module__ == "tqdm._monitor"


def idles(other: threading.Thread) -> bool:
    """Whether such a thread has nothing to do at the moment, either."""
    return serves(other) and not _is_at_work(other)


def _is_at_work(worker: Any) -> bool:
    """Whether a thread of a pool runs something that is not the pool's, or there is more to do."""
    if getattr(worker, "_target", None) is not _worker:
        return False
    queues = [each for each in getattr(worker, "_args", ()) if type(each) is SimpleQueue]
    if not all(each.empty() for each in queues):
        return True
    frame = sys._current_frames().get(worker.ident)
    top = frame is not None and frame.f_globals is _worker.__globals__ and frame.f_code
    while frame is not None and _package(frame) in _OF_POOLS:
        frame = frame.f_back
    works = frame is not None or (
        top and top is not _worker.__code__
    )  # it calls what was made in C
    del frame  # it may be this one
    return bool(works)


def alone() -> bool:
    """Whether there is no other thread that does anything by itself, of whatever makes threads."""
    # No variable has the frames: this one is among them, and with those above it would lead to itself.
    if len(sys._current_frames()) == 1:
        return True
    return sys._current_frames().keys() - _idle() == {threading.get_ident()}


def of_ones_own() -> dict[int, str]:
    """The other threads that are in code of a person's own, with their names: not in that of an installed
    package, or of Python's, that runs for nobody here."""
    found, known = {}, {t.ident: t for t in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        within: FrameType | None = frame
        while within is not None and is_neutral(within):
            within = within.f_back
        if within is None or ident == threading.get_ident() or ident not in known:
            continue
        if _package(within) != "opgraph" and "-packages" not in within.f_code.co_filename:
            found[ident] = name_of_thread(known[ident])
    del frame, within  # this one is among them, and with those above it would lead to itself
    return found


def undisturbed() -> bool:
    """Whether no other thread is in code of a person's own."""
    return alone() or not of_ones_own()


def packages_at_work() -> set[str]:
    """The packages in whose code the other threads are, but for those that idle. Where there are such, also
    those that made this thread or called what runs in it: the others may be at the same."""
    found, me = _by_thread(), threading.get_ident()
    mine = found.pop(me, set())
    theirs = [of for ident, of in found.items() if not _is_a_hosts(ident, of)]
    made = {type(each).__module__.partition(".")[0] for each in threading.enumerate()}
    return set().union(*found.values(), mine | made if theirs else ())


def _by_thread() -> dict[int, set[str]]:
    """The packages in whose code each thread is, but for those that idle."""
    found: dict[int, set[str]] = {}
    for ident, frame in sys._current_frames().items():
        within: FrameType | None = frame
        found[ident] = set()
        while within is not None:
            found[ident].add(_package(within))
            within = within.f_back
    del frame, within  # this one is among them, and with those above it would lead to itself
    for ident in _idle():
        found.pop(ident, None)
    return found


def _idle() -> set[int]:
    return {other.ident for other in threading.enumerate() if idles(other) and other.ident}


class Others:
    """The other threads that there are as it is made, by which it is known whether any did something since:
    the system counts the processor time of each. Where it does not say that, all did."""

    def __init__(self) -> None:
        numbers = {each.ident: each.native_id for each in threading.enumerate()}
        others = sys._current_frames().keys() - {threading.get_ident()}
        self._times = {each: (numbers.get(each), _time(numbers.get(each))) for each in others}
        self._idle = _idle() if others else set()
        self._own = of_ones_own() if others else {}

    def _ran(self, ident: int) -> bool:
        """Whether a thread did anything since, or was not there."""
        number, before = self._times.get(ident, (None, None))
        return before is None or _time(number) != before

    def quiet(self) -> bool:
        """Whether none did that may be in code of a person's own at times. Of a library it cannot be seen
        what it was given to call; those of notebooks, of runners of tests and of compilers call nothing."""
        now = _by_thread()
        now.pop(threading.get_ident(), None)
        there = now.keys() | (self._times.keys() - (self._idle & _idle()))
        ran = filter(self._ran, there)
        return not self.in_ones_own() and all(_is_a_hosts(n, now.get(n, set())) for n in ran)

    def in_ones_own(self) -> set[str]:
        """The names of those that did something, and were in code of a person's own then, or are now."""
        found = self._own | (of_ones_own() if len(sys._current_frames()) > 1 else {})
        return {name for ident, name in found.items() if self._ran(ident)}


def hosted() -> bool:
    """Whether the only other threads are those of notebooks, of runners of tests and of compilers, and such
    as have nothing to do."""
    found = _by_thread()
    found.pop(threading.get_ident(), None)
    return all(_is_a_hosts(ident, of) for ident, of in found.items())


def _is_a_hosts(ident: int, packages: set[str]) -> bool:
    thread = threading._active.get(ident)  # type: ignore[attr-defined]
    runs = getattr(getattr(thread, "_target", None), "__module__", None) or type(thread).__module__
    if runs.partition(".")[0] == "torch" or runs == "ipykernel.subshell":  # which runs cells
        return runs != "ipykernel.subshell"
    return bool(packages & _HOSTS) and packages <= _NEUTRAL | _HOSTS


def _time(number: int | None) -> str | None:
    """What Linux says of how long a thread has run, by its own number of it; nothing where there is none
    any more, it does not count that, or the system is another."""
    with suppress(OSError):
        said = Path(f"/proc/self/task/{number}/schedstat").read_text()
        return said if said[:2] != "0 " else None
    return None


def is_neutral(frame: FrameType) -> bool:
    """Whether code is of a package that does things for whoever calls it: not of a person's own that has
    the name of one."""
    name = str(frame.f_globals.get("__name__"))
    top = name.partition(".")[0]
    return top in _NEUTRAL and (top not in sys.stdlib_module_names or is_opaque(name))


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def processes() -> bool:
    """Whether there are other processes that may have a part of this one's memory: it was started by one,
    or has some, by `multiprocessing`, or is a rank of several."""
    started = multiprocessing.process._children  # type: ignore[attr-defined]
    if multiprocessing.process.parent_process() is not None or any(map(_goes_on, started)):
        return True
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def _goes_on(process: Any) -> bool:
    """Whether a process has not ended, as far as that can be known without taking its end from who waits
    for that."""
    with suppress(ChildProcessError, AttributeError):  # it is of a server's, or of Windows
        asked = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, process._popen.pid, asked) is None
    return True


def name_of_thread(thread: threading.Thread) -> str:
    """What a thread is called."""
    with suppress(Exception):  # a class of one's own may answer as it likes
        name = str(thread.name)
        return name if len(name) <= _LONG else "…" + name[1 - _LONG :]
    return "one without a name"
