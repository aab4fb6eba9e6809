"""Iterators within reach of a forward. They cannot be turned back, so a run has copies of them, which go on
from the same place; those that cannot be copied are compared afterwards."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import copy
from itertools import chain
from types import AsyncGeneratorType, CodeType, CoroutineType, GeneratorType
from typing import Any

from opgraph.record.identity import identity
from opgraph.record.remarks import Remark
from opgraph.tracing.state.holding import referents


def is_iterator(cls: type) -> bool:
    """Whether objects of a class are iterators of Python's own."""
    return cls.__module__ in _HOMES and (
        issubclass(cls, Iterator) or cls in _OF_TEE or cls in _FRAMES
    )


_HOMES = ("builtins", "itertools", "_collections", "collections", "array")
"""Where they are; those over deques name another module from Python 3.13 on."""
_TEE: type = type(*itertools.tee((), 1))
_READ = getattr(itertools, "_tee_dataobject", None)
_OF_TEE = (_TEE, _READ)
"""What `tee` gives, and what these have in common: what was read and not all of them have passed."""
_FRAMES = {GeneratorType: "gi", CoroutineType: "cr", AsyncGeneratorType: "ag"}
"""Functions that wait to go on, by how the attributes begin that have their code and their variables."""


def waiting_code(item: Any) -> tuple[CodeType, dict[str, Any]] | None:
    """What a function runs that waits to go on, and its globals."""
    of = _FRAMES.get(type(item))
    frame = None if of is None else getattr(item, f"{of}_frame")
    return None if frame is None else (getattr(item, f"{of}_code"), frame.f_globals)


def drawn_from(item: Any) -> tuple[Any, ...]:
    """What an iterator of Python's own goes through: lists, other iterators, functions."""
    if type(item) in _FRAMES:
        return tuple(referents(item))
    return tuple(_flat(_reduced(item)))


class Copies:
    """Copies of some iterators, by the ids of those."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items
        self._before = [_place(item) for item in items]
        waiting = (item for item in items if type(item) in _FRAMES)
        self._within = {identity(item): [*map(identity, referents(item))] for item in waiting}
        self.of: dict[int, Any] = {}
        with _unwarned():
            for item in items:
                with suppress(Exception):  # there are those that cannot be copied
                    self.of[identity(item)] = self._copy(item)

    def _copy(self, item: Any) -> Any:
        """One that goes on from the same place, and draws from copies, too."""
        if isinstance(item, tuple):
            return tuple(map(self._copy, item))
        if not is_iterator(type(item)):
            return item
        if identity(item) not in self.of:
            make, args, *state = item.__reduce__()
            made = make(*map(self._copy, args))
            if state and state[0] is not None:
                made.__setstate__(self._copy(state[0]))
            self.of[identity(item)] = made
        return self.of[identity(item)]

    def advanced(self) -> Iterator[Remark]:
        """What is to be said of iterators that are not where they were, but for those that one of these
        waits for."""
        pairs = zip(self._items, self._before, strict=True)
        gone = [item for item, before in pairs if not _same(_place(item), before)]
        within = {part for item in gone for part in self._within.get(identity(item), ())}
        ids = set(map(identity, gone))
        read = (item for item in gone if type(item) is _READ)  # of what another has given
        within.update(identity(each) for each in read if not ids.isdisjoint(_ids_behind(each)))
        for item in gone:
            if identity(item) not in within:
                name = getattr(item, "__qualname__", type(item).__name__)
                text = f"forward took items from an iterator ({name}): that cannot be taken back"
                yield Remark("state", text)


def replayable(item: Any) -> Any:
    """An iterator that several runs may go through from where it is, by `restarted`: itself where it can be
    copied, else one that keeps what was taken. Whatever is none is given back."""
    if not (is_iterator(type(item)) and isinstance(item, Iterator)) or _copied(item) is not item:
        return item
    return itertools.tee(item, 1)[0]


def restarted(item: Any) -> Any:
    """A copy of an iterator of Python's own, which goes on from where it is; where there can be none, or it
    is none, the same."""
    if not is_iterator(type(item)):
        return item
    return copy(item) if type(item) is _TEE else _copied(item)


def _copied(item: Any) -> Any:
    return Copies([item]).of.get(identity(item), item)


def _ids_behind(item: Any) -> Iterator[int]:
    """The ids of the iterators from which one draws, and from which these do."""
    waiting = [item]
    for each in waiting:
        behind = [part for part in _flat(tuple(referents(each))) if is_iterator(type(part))]
        yield from map(identity, behind)
        waiting += behind


@contextmanager
def _unwarned() -> Iterator[None]:
    """Within, Python does not warn that those of itertools cannot be copied from 3.14 on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _reduced(item: Any) -> tuple[Any, ...]:
    """What an iterator is made of, as it says itself; where it does not, what it holds."""
    try:
        with _unwarned():
            found: tuple[Any, ...] = item.__reduce__()
    except Exception:  # noqa: BLE001  (`pairwise`; all of itertools from Python 3.14 on)
        shown = (repr(item),) if type(item) is itertools.count else ()
        return (*referents(item), *shown)
    return found


def _place(item: Any) -> tuple[Any, ...]:
    """Where an iterator is, as far as it says."""
    if type(item) in _FRAMES:
        frame = getattr(item, f"{_FRAMES[type(item)]}_frame")
        if frame is None:
            return ()
        through = (part for part in referents(item) if _is_made_anew(type(part)))
        return (frame.f_lasti, *frame.f_locals.values(), *chain.from_iterable(map(_place, through)))
    return tuple(_flat(_reduced(item)))


def _flat(item: Any) -> Iterator[Any]:
    if isinstance(item, tuple):
        for part in item:
            yield from _flat(part)
    else:
        yield item


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(
        a is b
        or (type(a) is type(b) and isinstance(a, (int, float, str, range, list)) and _equal(a, b))
        or (type(a) is type(b) and _is_made_anew(type(a)) and _same(_place(a), _place(b)))
        for a, b in zip(one, other, strict=True)
    )


def _is_made_anew(cls: type) -> bool:
    """Whether iterators of a class may be made by others, which say where they are by them (`cycle`)."""
    return is_iterator(cls) and cls not in _FRAMES


def _equal(a: Any, b: Any) -> bool:
    """Whether two say the same: lists by what is in them, and entries of dictionaries are made anew."""
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_is, a, b))
    return bool(a == b)


def _is(one: Any, other: Any) -> bool:
    """Whether it is the same, or a tuple of the same."""
    return one is other or (
        type(one) is type(other) is tuple
        and len(one) == len(other)
        and all(a is b for a, b in zip(one, other, strict=True))
    )
