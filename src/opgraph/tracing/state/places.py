"""Where the items of a set lie in its memory: by that go the order in which it is gone through, and which
of them `pop` takes next, and Python has no other way to say it or to have it again."""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from typing import Any

from opgraph.tracing.state.others import undisturbed
from opgraph.tracing.state.steps import Left

Places = tuple[int, int, int, int, bytes]
"""How many places were ever taken, how many are, how many there are less one, from where `pop` looks, and
what is in each: where the item is, and its hash."""

_NUMBER = ctypes.c_ssize_t
_WIDTH = ctypes.sizeof(_NUMBER)
_HEAD = _NUMBER * 6
"""Places taken ever, taken now, all of them less one, where they are, a hash, from where `pop` looks."""
_AT = object.__basicsize__
_FEW_AT = _AT + ctypes.sizeof(_HEAD)
_FEW = 8
"""The places that a set has within itself."""
_NO_HASH = -1  # of what was taken out, too
_MOST = 2**20
"""Places of which a copy does not take long."""


def places(item: Any) -> Places | None:
    """Where the items of a set are; None where that is not known, or there are very many of them."""
    if not _is_known():
        return None
    ever, now, mask, at, _, finger = _HEAD.from_address(id(item) + _AT)
    if mask >= _MOST:
        return None
    held = ctypes.string_at(at, (mask + 1) * 2 * _WIDTH) if ever else b""
    return ever, now, mask, finger, held


def placed(found: tuple[Any, Places]) -> None:
    """The items of a set, which are the same as before, where they were."""
    item, before = found
    now = places(item)
    if now is None or now == before or _items(now) != _items(before):
        return
    if not undisturbed():
        raise Left("another thread runs: in which order a set is gone through")
    ever, count, mask, finger, held = before
    head, few = _HEAD.from_address(id(item) + _AT), id(item) + _FEW_AT
    was = at = head[3]
    held = held or bytes((mask + 1) * 2 * _WIDTH)
    if mask + 1 == _FEW:
        at = few
    elif mask != now[2]:
        at = _allocated()(len(held))
        if not at:
            raise MemoryError("a set cannot be as it was")
    (ctypes.c_char * len(held)).from_address(at).raw = held
    (ctypes.c_char * (4 * _WIDTH)).from_address(id(item) + _AT).raw = struct.pack(
        "4n", ever, count, mask, at
    )
    head[5] = finger
    if was not in (at, few):
        _freed()(was)


def _items(there: Places) -> set[tuple[int, int]]:
    """Where the items themselves are, and their hashes."""
    words = struct.unpack(f"{len(there[4]) // _WIDTH}n", there[4])
    pairs = zip(words[::2], words[1::2], strict=True)
    return {pair for pair in pairs if pair[0] and pair[1] != _NO_HASH}


@functools.cache
def _is_known() -> bool:
    """Whether the memory of sets is as CPython's is that has a lock for all."""
    own = set(map(str, range(100)))
    size = _FEW_AT + _FEW * 2 * _WIDTH + _WIDTH
    if sys.implementation.name != "cpython" or not _has_lock() or set.__basicsize__ != size:
        return False
    ever, now, mask, at, its_hash, _ = _HEAD.from_address(id(own) + _AT)
    if (ever, now, its_hash) != (100, 100, _NO_HASH) or mask not in (255, 511):
        return False
    words = (_NUMBER * (2 * (mask + 1))).from_address(at)[:]
    return set(filter(None, words[::2])) == set(map(id, own))


def _has_lock() -> bool:
    return getattr(sys, "_is_gil_enabled", lambda: True)()


@functools.cache
def _allocated() -> Any:
    made = ctypes.pythonapi.PyMem_Malloc
    made.restype, made.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    return made


@functools.cache
def _freed() -> Any:
    let_go = ctypes.pythonapi.PyMem_Free
    let_go.restype, let_go.argtypes = None, [ctypes.c_void_p]
    return let_go
