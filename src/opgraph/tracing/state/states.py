"""How objects that have a state of their own, which Python shows by what they say, take it again."""

from __future__ import annotations

import gc
import io
import pickle
import re
import sys
from array import array
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar
from functools import partial
from logging import Logger
from queue import Empty, SimpleQueue
from threading import get_ident
from typing import Any

import torch

from opgraph.tracing.state.arrays import same_content
from opgraph.tracing.state.classes import (
    SCRIPTED,
    is_numpys,
    says_all,
    says_nothing,
    scripted,
    scripted_items,
)
from opgraph.tracing.state.effects import name_of, standard
from opgraph.tracing.state.holding import are_alike as _is_same
from opgraph.tracing.state.holding import shown_in_c, table_of
from opgraph.tracing.state.loops import Waiting
from opgraph.tracing.state.packages import is_closed
from opgraph.tracing.state.reach import LOCKS, OF_WORKERS, SHARED_LOCK
from opgraph.tracing.state.speaking import (
    behind,
    context_back,
    logger_back,
    logger_says,
    text_back,
    text_says,
    unchanged,
)
from opgraph.tracing.state.steps import Left

_NONE = object()


class Said:
    """The way back of something that has a state, by what makes one of what it is now."""

    __slots__ = ("_make", "_way")

    def __init__(self, make: Callable[[], partial[Any]]) -> None:
        self._make, self._way = make, make()

    def back(self) -> None:
        """Bring it back."""
        self._way()

    @property
    def is_loops(self) -> bool:
        """Whether it is a loop of asyncio's, to whose tasks handlers of signals belong."""
        return self._way.func is _loop_back

    def now(self) -> partial[Any]:
        """Another one."""
        return self._make()

    def let_stay(self, then: partial[Any]) -> None:
        """What was changed since `then` is so as if it had been before."""
        now = self._make()
        if are_alike(self._way, then) and not are_alike(then, now):
            self._way = now


class InCommon(Said):
    """The same of memory in which other processes have a part: it stays as it is."""

    __slots__ = ()

    def back(self) -> None:
        """Raise where it is another."""
        if not are_alike(self._way, self._make()):
            raise Left("memory that processes share was changed, by forward or by another process")


def are_alike(one: partial[Any], other: partial[Any]) -> bool:
    """Whether two ways back lead to the same."""
    return all(map(_alike, one.args, other.args))


def _alike(one: Any, other: Any) -> bool:
    """Whether two parts of what something says are the same."""
    if isinstance(one, torch.UntypedStorage):
        both = (torch.empty(0, dtype=torch.uint8).set_(each.cpu()) for each in (one, other))
        return bool(one is other or torch.equal(*both))
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(v, other[k]) for k, v in one.items())
    if is_numpys(type(one), "ndarray"):
        return same_content(one, other)
    return one is other or bool(one == other)


def streams_below(item: Any) -> int:
    """Through how many streams one reads that is made around others (of text, of what is compressed)."""
    below, seen = -1, set[int]()
    while issubclass(type(item), io.IOBase) and id(item) not in seen:
        seen.add(id(item))
        below += 1
        held = table_of(item) or {}
        said = [held.get(name) for name in ("fileobj", "_fp", "_buffer") if type(held) is dict]
        item = next((each for each in (*said, _read_by(item)) if each is not None), None)
    return max(below, 0)


def _read_by(stream: Any) -> Any:
    """What a stream of Python's own reads from."""
    name = {io.TextIOWrapper: "buffer"}.get(type(stream), "raw")
    own = type(stream) in (io.TextIOWrapper, io.BufferedReader, io.BufferedRandom)
    with suppress(ValueError):  # it was detached
        return getattr(stream, name) if own else None
    return None


def way_back(item: Any, alone: Callable[[], bool]) -> partial[Any]:
    """A function that brings back a generator of random numbers (of torch, Python or numpy) or a buffer."""
    if isinstance(item, (bytearray, array)):
        return partial(_content_back, item, _own(item, "__getitem__")(slice(None)))
    if (type(item).__name__, type(item).__module__) == SHARED_LOCK:
        return partial(_semaphore_back, item, _taken(item), alone)
    if isinstance(item, OF_WORKERS):
        return partial(_batches_back, item, item._rcvd_idx)
    if isinstance(item, torch.jit.ScriptModule):
        return partial(_scripted_back, item, scripted(item))
    if isinstance(item, SCRIPTED):
        return partial(_scripted_items_back, item, scripted_items(item))
    if is_numpys(type(item), "void"):
        return partial(_row_back, item, item.copy())
    if isinstance(item, memoryview):
        return partial(_memory_there, item)
    if isinstance(item, Context):
        return partial(_variables_back, item, dict(item.items()))
    if hasattr(item, "next_functions"):
        return partial(_backward_back, item, saves(item))
    says = behind(type(item))
    if says is not None and hasattr(item, "call_soon") and not item.is_closed():
        return partial(_loop_back, item, says, says(item), Waiting(item), alone)
    if says is not None:
        return partial(unchanged, item, says, says(item))
    if hasattr(item, "digest"):
        digest = item.digest if item.digest_size else partial(item.digest, 16)  # of any length
        return partial(_fed, digest, digest())
    if hasattr(item, "n_children_spawned"):
        return partial(_spawned, item, item.n_children_spawned)
    if hasattr(item, "create_decimal"):
        return partial(context_back, item, item.__reduce__()[1])
    if isinstance(item, LOCKS):
        return partial(_lock_back, item, _held(item), alone)
    if hasattr(item, "set_result"):
        return partial(_result_back, item, item.done(), alone)
    if isinstance(item, Logger):
        return partial(logger_back, item, logger_says(item))
    if isinstance(item, SimpleQueue):
        before = _drained(item) if alone() else item.qsize()
        return partial(_queue_back, item, before, alone)
    if is_in_python(item):
        raise NotImplementedError  # its place is among its attributes
    if isinstance(item, io.IOBase) and not isinstance(item, (io.StringIO, io.BytesIO)):
        is_standard = any(item is each for each in standard())
        place = None if is_standard else _place(item)
        ahead = None if place is not None or is_standard else _ahead(item)
        return partial(_file_back, item, place, text_says(item), ahead, alone)
    if isinstance(item, (io.StringIO, io.BytesIO)) or says_all(item.__class__):
        return partial(_said_back, item, item.__getstate__())
    if isinstance(item, torch.Generator):
        return partial(item.set_state, item.get_state())
    if isinstance(item, (pickle.Pickler, pickle.Unpickler)):
        kept: Any = pickle.Pickler if isinstance(item, pickle.Pickler) else pickle.Unpickler
        memo, keeper = kept.memo, kept(io.BytesIO())  # as no class below has it
        memo.__set__(keeper, memo.__get__(item))
        peeks = any(getattr(each, "__name__", "") == "peek" for each in gc.get_referents(item))
        ahead = shown_in_c(item, kept) if peeks else None
        return partial(_memo_back, memo, item, keeper, ahead)
    if hasattr(item, "getstate"):
        return partial(_numbers_back, item, _own(item, "getstate")())
    if hasattr(item, "set_state"):
        return partial(_drawing_back, item, item._bit_generator, item.get_state(legacy=False))
    kind: Any = type(item)
    if says_nothing(kind):
        return partial(_insides_back, item, shown_in_c(item, kind))
    bits = getattr(item, "bit_generator", item)
    return partial(setattr, bits, "state", bits.state)


def _own(item: Any, name: str) -> Any:
    """A method as the nearest class has it that is not of a person's own: what theirs would note is not the
    forward's."""
    classes = (c for c in type(item).__mro__ if is_closed(c.__module__) and name in vars(c))
    return vars(next(classes))[name].__get__(item)


def _content_back(item: Any, before: Any) -> None:
    if bytes(memoryview(item)) != bytes(memoryview(before)):
        _own(item, "__setitem__")(slice(None), before)


def _memo_back(memo: Any, pickles: Any, keeper: Any, ahead: bytes | None) -> None:
    """Let what pickles, or takes what was pickled, know what it knew: later parts refer to that. A
    `keeper` of the same kind has it, since one that takes can be given no dictionary. What it had read
    `ahead` of a file that lets it look ahead stays as far as it was taken."""
    took = ahead is not None and shown_in_c(pickles, type(keeper)) != ahead
    now, before = memo.__get__(pickles).copy(), memo.__get__(keeper).copy()
    if now.keys() != before.keys() or not all(_is_same(now[key], before[key]) for key in now):
        memo.__set__(pickles, memo.__get__(keeper))
    if took:
        raise Left("forward took what an unpickler had read ahead of its file")


def _drawing_back(item: Any, bits: Any, before: Any) -> None:
    """Let a `RandomState` draw by the generator that it had, as it was. Only that of NumPy's functions can
    be given another."""
    if item._bit_generator is not bits:
        sys.modules["numpy"].random.set_bit_generator(bits)
    item.set_state(before)


def _numbers_back(item: Any, before: Any) -> None:
    if _own(item, "getstate")() != before:
        _own(item, "setstate")(before)


def _loop_back(
    loop: Any,
    says: Callable[[Any], Any],
    before: Any,
    waiting: Waiting,
    alone: Callable[[], bool],
) -> None:
    unchanged(loop, says, before)
    waiting.back(alone)


def _batches_back(batches: Any, before: int) -> None:
    if batches._rcvd_idx != before:
        raise Left("forward took batches of a DataLoader's workers")


def _insides_back(item: Any, before: bytes) -> None:
    if shown_in_c(item, type(item)) != before:
        raise Left(
            f"forward used an object that does not show where it is ({type(item).__qualname__})"
        )


def _held(lock: Any) -> int:
    """How often a lock is held; by this thread, if it says by which."""
    if not isinstance(lock, LOCKS[1]):
        return int(lock.locked())
    said = _OWNED.search(_shown(lock))
    return int(said[2]) if said and int(said[1]) == get_ident() else 0


_shown: Callable[[Any], str] = vars(LOCKS[1])["__repr__"]
_OWNED = re.compile(r" owner=(\d+) count=(\d+) ")
"""How Python shows by which thread a lock is held, and how often, which it says in no other way (3.11)."""


def _lock_back(lock: Any, before: int, alone: Callable[[], bool]) -> None:
    if _held(lock) != before and not (isinstance(lock, LOCKS[1]) or alone()):
        raise Left("forward took a lock or gave it back, or another thread did")
    while _held(lock) > before:
        lock.release()
    while _held(lock) < before:
        if not lock.acquire(blocking=False):
            raise Left("forward gave back a lock that another thread has taken since")


def _semaphore_back(lock: Any, before: int, alone: Callable[[], bool]) -> None:
    """The same of one that processes share: others take it meanwhile."""
    taken = _taken(lock) - before
    if taken and not (_is_lock(lock) or alone()):
        raise Left("forward took a lock or gave it back, or another thread did")
    for _ in range(taken):
        lock.release()
    for _ in range(-taken):
        if not lock.acquire(False):  # noqa: FBT003
            raise Left("forward gave back a lock that another process has taken since")


def _is_lock(semaphore: Any) -> bool:
    return bool(semaphore.kind == 0 or semaphore.maxvalue == 1)


def _taken(lock: Any) -> int:
    """How often this process took one: of a lock this thread, and not another, as that which feeds a
    queue."""
    return int(lock._count()) if lock._is_mine() or not _is_lock(lock) else 0


def _variables_back(context: Context, before: dict[ContextVar[Any], Any]) -> None:
    """What context variables are within a context."""
    for variable, value in before.items():
        if context[variable] is not value:
            context.run(variable.set, value)
    for variable in context.keys() - before.keys():
        raise Left(f"forward set {variable.name}, which had no value in its context")


def _scripted_back(module: Any, before: dict[str, Any]) -> None:
    now = scripted(module)
    for name, value in before.items():
        if not _is_as_it_was(now[name], value):
            module._c.setattr(name, value)


def _scripted_items_back(container: Any, before: list[Any]) -> None:
    if _is_as_it_was(scripted_items(container), before):
        return
    if isinstance(container, SCRIPTED[1]):
        container.clear()
        container.extend(before)
        return
    for key, _ in scripted_items(container):
        del container[key]
    for key, value in before:
        container[key] = value


def _row_back(row: Any, before: Any) -> None:
    if row.tobytes() != before.tobytes():
        for name in row.dtype.names or ():
            row[name] = before[name]


def _is_as_it_was(now: Any, before: Any) -> bool:
    """Whether what torch's interpreter hands out is the same: a container is another one each time."""
    if isinstance(before, dict):
        return list(now) == list(before) and all(map(_is_as_it_was, now.values(), before.values()))
    if isinstance(before, (list, tuple)):
        return len(now) == len(before) and all(map(_is_as_it_was, now, before))
    return now is before or (
        isinstance(before, (int, float, complex, str)) and repr(now) == repr(before)
    )


def _memory_there(view: memoryview) -> None:
    try:
        _ = view.nbytes
    except ValueError:
        raise Left("forward released a view of memory") from None


def _fed(says: Callable[[], bytes], before: bytes) -> None:
    if says() != before:
        raise Left("forward fed a hash")


def _spawned(seeds: Any, before: int) -> None:
    if seeds.n_children_spawned != before:
        raise Left("forward spawned generators of random numbers")


def _drained(queue: SimpleQueue[Any]) -> list[Any]:
    """All that is in a queue, which it has again afterwards."""
    found = []
    with suppress(Empty):
        while True:
            found.append(_take(queue))
    for item in found:
        _put(queue, item)
    return found


def _queue_back(
    queue: SimpleQueue[Any], before: list[Any] | int, alone: Callable[[], bool]
) -> None:
    if isinstance(before, int) or not alone():
        if queue.qsize() != (before if isinstance(before, int) else len(before)):
            raise Left("forward used what threads share (SimpleQueue), or another thread did")
        return
    with suppress(Empty):
        while True:
            _take(queue)
    for item in before:
        _put(queue, item)


_take, _put = SimpleQueue.get_nowait, SimpleQueue.put


def _said_back(item: Any, before: Any) -> None:
    if item.__getstate__() != before:
        item.__setstate__(before)


def _result_back(future: Any, before: bool, alone: Callable[[], bool]) -> None:
    if future.done() != before:
        raise Left(f"forward {'' if alone() else 'or another thread '}gave a future its result")


def saves(node: Any) -> int:
    """How much a node of autograd still has of what its backward needs. It is not unpacked: that would run
    hooks, as those of a checkpoint, which computes it again."""
    saved: list[Any] = []
    try:
        for name in dir(node):
            if name.startswith("_raw_saved_"):
                found = getattr(node, name)
                saved += found if isinstance(found, (tuple, list)) else (found,)
        return sum(each.data is not None for each in saved)
    except RuntimeError:  # it was freed
        return 0


def _backward_back(node: Any, before: int) -> None:
    if saves(node) < before:
        raise Left("forward ran a backward through results that were there before, and freed it")


def is_in_python(item: Any) -> bool:
    """Whether something is a file of a class of a person's own, which has none of C's behind it."""
    kinds = [each for each in type(item).__mro__ if each.__module__ == "_io"]
    return bool(kinds) and kinds[0] in _ABSTRACT and not is_closed(type(item).__module__)


_ABSTRACT = [getattr(io._io, f"_{kind}IOBase") for kind in ("", "Raw", "Buffered", "Text")]  # type: ignore[attr-defined]


def _place(file: Any) -> int | None:
    """Where somebody is in a file; None where that is not told."""
    with suppress(OSError, ValueError):
        return int(_own(file, "tell")())
    return None


def _ahead(file: Any) -> bytes | None:
    """What a stream has read ahead, and how far somebody is in that, by its memory: where it says no place,
    as a pipe, or a text that is gone through. None of one that does not read ahead."""
    made: Any = next((each for each in type(file).__mro__ if each.__module__ == "_io"), None)
    if hasattr(made, "detach") and file.readable():
        return shown_in_c(file, made)
    return None


def _file_back(
    file: Any, before: int | None, how: Any, ahead: bytes | None, alone: Callable[[], bool]
) -> None:
    if file.closed:
        raise Left(f"forward closed {name_of(file)}")
    by_one = alone()
    if ahead is not None and _ahead(file) != ahead and (by_one or file.seekable()):
        who = "forward" if by_one else "forward or another thread"
        raise Left(f"{who} took what was to be read from {name_of(file)}")
    text_back(file, how)
    if before is not None and _place(file) != before:
        if file.writable():
            raise Left(f"forward wrote to {name_of(file)}, or moved in it")
        file.seek(before)
