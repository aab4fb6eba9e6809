"""How each kind of thing is brought back to what it was when it was found."""

from __future__ import annotations

import builtins
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from operator import attrgetter, is_
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from opgraph.record.identity import identity
from opgraph.tracing.state.classes import has_part_in_c, slots_of
from opgraph.tracing.state.holding import (
    LEAVES,
    MISSING,
    are_alike,
    dict_class,
    fill,
    has_table,
    held_by,
    held_in,
    holder_class,
    holds,
    ids_of,
    in_space,
    is_loaded,
    same_entries,
    shown_in_c,
    slot_value,
    table_of,
)
from opgraph.tracing.state.packages import is_closed, is_installed
from opgraph.tracing.state.steps import Gone, Left

KIND: Any = vars(object)["__class__"]
_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__", "__name__", "__qualname__", "__doc__",
                 "__module__")  # fmt: skip
look_at = attrgetter(*_OF_FUNCTIONS)


def stays(before: dict[Any, Any], was: Mapping[Any, Any], now: Mapping[Any, Any]) -> None:
    """What became of a dictionary in the meantime is what it was before, too."""
    if same_entries(before, was):
        before.clear()
        before.update(now)
        return
    before.update({key: value for key, value in now.items() if was.get(key, MISSING) is not value})
    for key in was.keys() - now.keys():
        before.pop(key, None)


def with_new(before: list[Any], was: list[Any], now: list[Any]) -> list[Any]:
    """The same of what was in a list, a set or a deque."""
    if len(before) == len(was) and all(map(is_, before, was)):
        return now
    left = Counter(map(identity, was))
    left.subtract(map(identity, now))  # more than none: taken out; less: put in
    kept, new = [], []
    for item in before:
        if left[identity(item)] > 0:
            left[identity(item)] -= 1
        else:
            kept.append(item)
    for item in reversed(now):
        if left[identity(item)] < 0:
            left[identity(item)] += 1
            new.append(item)
    return kept + new[::-1]


def _gone(now: Iterable[Any], before: Iterable[Any]) -> Gone:
    """Of what there is by now what was not there before, and may have something to do as it ends."""
    known = set(map(identity, before))
    return Gone(value for value in now if identity(value) not in known and _may_end(value))


def _may_end(value: Any) -> bool:
    """Whether something does not just go: containers do, with what is in them, if that is little."""
    ahead, seen = [value], set[int]()
    while ahead:
        each = ahead.pop()
        kind = identity(type(each))
        if kind in _HOLDING and identity(each) not in seen:
            seen.add(identity(each))
            ahead += each.values() if kind == _TABLE else each
        elif kind not in _HOLDING and kind not in _ENDLESS:
            return True
        if len(ahead) + len(seen) > _LITTLE:
            return True
    return False


_ENDLESS = LEAVES.union(ids_of((torch.Tensor, torch.nn.Parameter, FakeTensor, weakref.ref)))
"""Types of what just goes."""
_HOLDING = frozenset(ids_of((dict, list, tuple, set, frozenset)))
_TABLE = identity(dict)
_LITTLE = 1_000


def emptied(holder: Any) -> Gone:
    """A dictionary, a list, a set or a deque that was empty."""
    gone = _gone(held_by(holder), ())
    holder.clear()
    return gone


def _led(item: Any, dead: AbstractSet[int]) -> bool:
    """Whether it is a weak reference to what is gone by now, and was not when it was found: who holds it
    lets it go with that."""
    weak = issubclass(type(item), weakref.ref) and weakref.ref.__call__(item) is None
    return weak and identity(item) not in dead


def table_back(
    pair: tuple[dict[Any, Any], dict[Any, Any]], *, dead: AbstractSet[int]
) -> Gone | None:
    """What was in a dictionary, in the order that it had, but for weak references of which those that are
    not among the `dead` led to something."""
    table, before = pair
    if same_entries(table, before):
        return None
    before = {k: v for k, v in before.items() if not (_led(k, dead) or _led(v, dead))}
    base = dict_class(table)
    gone = _gone([*base.values(table), *base.keys(table)], [*before.values(), *before])
    with suppress(Exception):  # keys may answer as they like when they are compared
        for key in [key for key in base.keys(table) if key not in before]:
            base.__delitem__(table, key)
        fill(table, before)
    if not same_entries(table, before) and table is not vars(
        builtins
    ):  # Python goes by that meanwhile
        base.clear(table)
        fill(table, before)
    return gone


def holder_back(pair: tuple[Any, list[Any]], *, dead: AbstractSet[int]) -> Gone | None:
    """The same of a list, a set or a deque."""
    holder, kept = pair
    base = holder_class(holder)
    if holds(holder, kept):
        return None
    kept = [item for item in kept if not _led(item, dead)]
    gone = _gone(base.__iter__(holder), kept)
    if base is set:  # which goes through the others as before, if nothing but these is touched
        wanted = set(kept)
        base.difference_update(holder, set(base.__iter__(holder)).difference(wanted))
        base.update(holder, wanted)
        if holds(holder, kept):
            return gone
    base.clear(holder)
    (base.update if base is set else base.extend)(holder, kept)
    return gone


def unused(found: tuple[Any, list[tuple[Any, list[Any]]]]) -> None:
    """Whether what is between threads is as it was: it is not set again while there are others."""
    item, parts = found
    for part, before in parts:
        now = held_by(part)
        if len(now) != len(before) or not all(map(is_, now, before)):
            name = type(item).__qualname__
            raise Left(f"forward used what threads share ({name}), or another thread did")


def object_back(found: tuple[Any, type, Any]) -> None:
    """The class of an object, and which dictionary has its attributes."""
    item, cls, table = found
    if type(item) is not cls:
        KIND.__set__(item, cls)
    if type(table) is not dict or table_of(item) is table:
        return
    if has_table(cls) and table_of(item) is table_of(
        item
    ):  # else it is another's, or made each time
        object.__setattr__(item, "__dict__", table)


def kept_alive(found: tuple[Any, list[Any]]) -> None:
    """What an object that has a part in C was given meanwhile, and has one itself, lives as long as it: C
    may have been told of it there, and it be kept in Python so that it stays."""
    item, before = found
    known = {identity(value) for value in before}
    new = [v for v in held_in(vars(item)) if identity(v) not in known and has_part_in_c(v)]
    if new:
        weakref.finalize(item, _let_go, new).atexit = False


def _let_go(kept: list[Any]) -> None:
    kept.clear()


def all_shown(item: Any, made: type, before: bytes, slots: list[Any]) -> bool:
    """Whether an object is as before in C, too, when all that it shows is: else it shows what it did."""
    if shown_in_c(item, made) == before:
        return True
    now = [(slot, item, slot_value(slot, item)) for slot, *_ in slots]
    _set(slots)
    if shown_in_c(item, made) == before:
        return True
    _set(now)
    return False


def _set(slots: list[Any]) -> None:
    for each in slots:
        with suppress(Exception):  # it is said where all is brought back
            slot_back(each)


def one_with_c(names: dict[int, str], found: tuple[Any, Any]) -> None:
    """Raises where something has changed that is one with what is in C."""
    holder, before = found
    if not (same_entries if issubclass(type(holder), dict) else holds)(holder, before):
        name = names[identity(holder)]
        raise Left(f"forward changed an object that is one with what it keeps in C ({name})")


def without_ended(
    before: dict[Any, Any], look: Callable[[Any, Any], Any], over: set[int]
) -> list[Any]:
    """Let what there is by now in the place of what is `over`, by its ids, be what was there before, unless
    it has such a thing itself. What was there."""
    gone = []
    for name, value in list(before.items()):
        now = look(name, MISSING) if identity(value) in over else value
        if now is not value and not has_any(now, over):
            gone.append(value)
            before[name] = now
            if now is MISSING:
                del before[name]
    return gone


def has_any(item: Any, things: set[int]) -> bool:
    """Whether an object has one of some things, by their ids, as an attribute."""
    table = table_of(item)
    held = list(table.values()) if type(table) is dict else []
    held += (slot_value(slot, item) for slot in slots_of(type(item)))
    return not things.isdisjoint(map(identity, held))


def ended(name: str) -> None:
    """Raises: something is closed or over, and what is in its place stays: who has it needs that."""
    raise Left(f"forward closed or ended something ({name}) and has another in its place")


def slot_back(found: tuple[Any, Any, Any]) -> Gone | None:
    """What a descriptor gave of an object."""
    slot, item, value = found
    now = slot_value(slot, item)
    if not are_alike(now, value):
        try:
            slot.__delete__(item) if value is MISSING else slot.__set__(item, value)
        except (AttributeError, TypeError):
            name = type(item).__qualname__
            raise Left(f"forward changed {slot.__name__} of an object ({name})") from None
        return _gone((now,), (value,))
    return None


def function_back(found: tuple[Any, tuple[Any, ...]]) -> None:
    """The code of a function, its defaults and its names."""
    function, before = found
    if not all(map(is_, look_at(function), before)):
        for name, value in zip(_OF_FUNCTIONS, before, strict=True):
            setattr(function, name, value)


_says: Any = partial.__setstate__  # type: ignore[attr-defined]
said_by: Callable[[Any], tuple[Any, Any, Any]] = attrgetter("func", "args", "keywords")
"""What a `partial` calls, and with what."""


def says_now(item: Any, says: tuple[Any, ...]) -> None:
    """Let a `partial` call something else: it has no other way to be set."""
    _says(item, (*says, table_of(item)))


def partial_back(found: tuple[Any, tuple[Any, ...]]) -> None:
    """What a `partial` calls, and with what."""
    item, before = found
    if not all(map(is_, said_by(item), before)):
        says_now(item, before)


def named_back(look: Callable[[Any, str], Any], found: tuple[Any, str, Any]) -> Gone | None:
    """What there was under a name in the globals of a module, or as an attribute."""
    holder, name, value = found
    if (now := look(holder, name)) is value or (value is MISSING and _is_part(holder, name, now)):
        return None
    if _goes_on(now, _home_of(holder)):
        return None
    if look is in_space:
        holder.pop(name) if value is MISSING else holder.update({name: value})
    else:
        delattr(holder, name) if value is MISSING else setattr(holder, name, value)
    return _gone((now,), (value,))


_OF_WARNINGS = frozenset({"__warningregistry__"})
"""What Python puts among the globals of code that warns."""


def _new_in(space: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """The attributes of a module that are new or others, or the modules there are; imports stay."""
    return [
        *(n for n, v in before.items() if space.get(n, MISSING) is not v),
        *(n for n, v in space.items() if n not in before and not _is_imported(v)),
    ]


def _is_part(holder: Any, name: str, value: Any) -> bool:
    """Whether it is a module within a package, which has it since somebody imported it."""
    return (
        issubclass(type(holder), ModuleType)
        and is_loaded(value)
        and vars(value).get("__name__") == f"{vars(holder).get('__name__')}.{name}"
    )


def _is_imported(value: Any) -> bool:
    """Whether it is a module, or what stands for one that is imported later."""
    table = table_of(value)
    return type(table) is dict and table.get("__spec__") is not None


def space_back(pair: tuple[dict[str, Any], dict[str, Any]]) -> Gone | None:
    """The attributes of a module, or the modules there are."""
    space, before = pair
    new = _new_in(space, before)
    new = [name for name in new if not _goes_on(space.get(name), space.get("__name__"))]
    gone = _gone([space[name] for name in new if name in space], before.values()) if new else None
    for name in new:
        if name in before:
            space[name] = before[name]
        else:
            del space[name]
    return gone


def own_space_back(pair: tuple[dict[str, Any], dict[str, Any]], *, alone: bool) -> Gone | None:
    """The globals of a module of a person's own, which other threads set, too, but for what warns. What
    Dynamo has put there goes with the code that it compiled, which goes by it."""
    new = () if same_entries(*pair) else {*_new_in(*pair)}
    if new and (compiled := _of_compiled(pair[0]).intersection(new)):
        pair = pair[0], pair[1] | {name: pair[0][name] for name in compiled}
        new = {*_new_in(*pair)}
    if new and not alone and not _OF_WARNINGS.issuperset(new):
        name = pair[0].get("__name__")
        raise Left(f"forward set globals of {name}, or another thread did")
    return space_back(pair) if new else None


def _of_compiled(space: dict[str, Any]) -> set[str]:
    """The globals that code goes by which Dynamo compiled: it takes them away with that."""
    utils = sys.modules.get("torch._dynamo.utils")
    kept = utils.CleanupManager.instance.values.values() if utils else ()
    return {hook.name for hooks in list(kept) for hook in hooks if hook.scope is space}


def context_back(pair: tuple[ContextVar[Any], Any]) -> None:
    """What a context variable was."""
    variable, value = pair
    if value is not MISSING and variable.get(MISSING) is not value:  # else it goes with its context
        variable.set(value)


def cache_back(pair: tuple[Any, int]) -> None:
    """A cache that was empty."""
    cached, entries = pair
    if not entries and cached.cache_info().currsize:
        cached.cache_clear()


def _goes_on(value: Any, home: Any) -> bool:
    """Whether something that a module keeps, or a class of it, is a thread of a library's that runs: one
    that forgot it would start another."""
    of_library = issubclass(cls := type(value), threading.Thread) and (
        is_closed(home) or is_installed(cls.__module__)
    )
    return of_library and bool(value.is_alive())


def _home_of(holder: Any) -> Any:
    """The name of the module whose globals these are, that it is, or that a class is from."""
    if issubclass(type(holder), type):
        return holder.__module__
    table = holder if type(holder) is dict else table_of(holder)
    return table.get("__name__") if type(table) is dict else None


def class_back(pair: tuple[type, dict[str, Any]]) -> Gone | None:
    """The attributes of a class."""
    cls, members = pair
    now = cls.__dict__
    if all(map(is_, now.values(), members.values())) and list(now) == list(members):
        return None
    gone = _gone(now.values(), members.values())
    live = {name: value for name, value in now.items() if _goes_on(value, cls.__module__)}
    members = members | live
    for name in [
        n for n, v in now.items() if n not in members and (n[:2] + n[-2:] != "____" or callable(v))
    ]:
        type.__delattr__(cls, name)
    for name, value in members.items():
        if now.get(name, MISSING) is not value and name not in ("__dict__", "__weakref__"):
            type.__setattr__(cls, name, value)
    return gone
