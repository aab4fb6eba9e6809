"""Fake tensors that outlive their run: whoever keeps one would compute with it. The collector of garbage
knows who that is, and they are taken out of containers that are there to be filled."""

from __future__ import annotations

import gc
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from types import CellType, FrameType, FunctionType, TracebackType
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from opgraph.record.remarks import Remark

_STEPS = 5
"""From what holds a tensor to whoever has a name, at most so many: each takes a look at everything."""
_NAMED = 8
_SHOWN = 3


def settle(error: BaseException | None) -> None:
    """Let the frames go that an error, and what led to it, has passed: their variables are the run's. Which
    they were stays as text."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # what is raised again may lead to itself
        seen.add(id(error))
        if error.__traceback__ is not None:
            passed = traceback.format_tb(error.__traceback__)
            error.__traceback__ = None
            error.add_note(
                "It was raised here (most recent call last):\n" + "".join(passed).rstrip()
            )
        error = error.__cause__ or error.__context__


def leaks(alive: Callable[[], bool], mode: Any) -> Iterator[Remark]:
    """What is to be said of fake tensors of a mode that live on after its run. `alive` says at little cost
    whether there may be any."""
    if not alive():
        return
    gc.collect(0)  # what the run has made, and is only held by itself
    if not alive():
        return
    gc.collect()
    left = [t for t in gc.get_objects() if type(t) is FakeTensor and t.fake_mode is mode]
    if not left:
        return
    healed, kept = _taken_out(left)
    for said, names in (("was left in {}, and taken out again", healed),
                        ("is left in {}: it has no values to compute with", kept)):  # fmt: skip
        for name in names[:_SHOWN]:
            yield Remark("state", "a fake tensor of the run " + said.format(name))
        if len(names) > _SHOWN:
            yield Remark("state", f"so it is in {len(names) - _SHOWN} other places")


def _taken_out(left: list[Any]) -> tuple[list[str], list[str]]:
    """Who held what is left, by name: those it was taken out of, and those that have it still."""
    healed: dict[str, None] = {}
    kept: dict[str, None] = {}
    things = left
    for _ in range(_STEPS):
        ids = set(map(id, things))
        holders = [h for h in gc.get_referrers(*things) if h is not things and h is not left]
        bound = [h for h in holders if isinstance(h, (tuple, frozenset))]
        spaces = _spaces([h for h in holders if isinstance(h, dict)])
        for holder in holders:
            if isinstance(holder, (tuple, frozenset, FrameType, TracebackType)) or _is_own(holder):
                continue
            emptied = _cache_of(holder)
            if emptied is not None:
                emptied.cache_clear()
                made = emptied.__wrapped__
                healed[f"the cache of {made.__module__}.{made.__qualname__}"] = None
                continue
            own = set(map(id, (things, left, holders, bound)))
            name = _name_of(holder, own) if len(healed) + len(kept) < _NAMED else "others"
            if _remove(holder, ids, spaces):
                healed[name] = None
            else:
                kept[f"{name}{_key(holder, ids)}"] = None
        if not bound:
            break
        things, holders, bound = bound, [], []  # what cannot be changed goes with what it is in
    return list(healed), list(kept)


def _is_own(holder: Any) -> bool:
    """Whether it is a tensor's own, or was made here to look for holders."""
    if isinstance(holder, dict) and "fake_mode" in holder:
        return True
    return isinstance(holder, list) and len(holder) > 0 and type(holder[0]) is list


def _spaces(tables: list[Any]) -> set[int]:
    """Those of some dictionaries, by their ids, that hold the attributes of something or the globals of a
    module. Whoever has them is looked for among all objects, which takes as long for one as for many."""
    owners = gc.get_referrers(*tables) if tables else ()
    return {id(getattr(owner, "__dict__", None)) for owner in owners} & {*map(id, tables)} | {
        id(table) for table in tables if _module_of(table) is not None
    }


def _remove(holder: Any, ids: set[int], spaces: set[int]) -> bool:
    """Take some things out of a container that is there to be filled, and is none of these `spaces`."""
    if isinstance(holder, dict) and id(holder) not in spaces:
        for key in [k for k, v in dict.items(holder) if id(v) in ids]:
            dict.__delitem__(holder, key)
    elif isinstance(holder, (list, deque)):
        rest = [item for item in holder if id(item) not in ids]
        holder.clear()
        holder.extend(rest)
    elif isinstance(holder, set):
        holder.difference_update([item for item in holder if id(item) in ids])
    else:
        return False
    return True


def _key(holder: Any, ids: set[int]) -> str:
    """The attribute or the global under which something holds one of some things."""
    table = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
    return next((f".{k}" for k, v in table.items() if id(v) in ids), "")


def _cache_of(holder: Any) -> Any:
    """The cache of functools of which something is an entry; None where it is none."""
    if type(holder).__name__ != "_lru_list_elem" and not hasattr(holder, "cache_clear"):
        return None
    found = holder
    for _ in range(3):
        if hasattr(found, "cache_clear"):
            return found
        above = [h for h in gc.get_referrers(found) if not isinstance(h, FrameType)]
        found = next((h for h in above if hasattr(h, "cache_clear")), None) or next(
            (h for h in above if isinstance(h, dict)), None
        )
        if found is None:
            break
    return None


def _is_space(table: dict[Any, Any]) -> bool:
    """Whether a dictionary holds the attributes of something, or the globals of a module."""
    return _module_of(table) is not None or _owner_of(table) is not None


def _module_of(table: dict[Any, Any]) -> str | None:
    name = table.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    return name if module is not None and vars(module) is table else None


def _owner_of(table: dict[Any, Any]) -> Any:
    for owner in gc.get_referrers(table):
        if getattr(owner, "__dict__", None) is table:
            return owner
    return None


def _name_of(holder: Any, own: set[int], steps: int = _STEPS) -> str:
    """What a person would call a holder: by the module, the class or the function that has it. `own` are
    the ids of lists made here."""
    if isinstance(holder, (FunctionType, type)):
        return f"{holder.__module__}.{holder.__qualname__}"
    if isinstance(holder, dict):
        module = _module_of(holder)
        if module is not None:
            return module
        owner = _owner_of(holder)
        if owner is not None:
            return _name_of(owner, own, steps)
    cls = type(holder)
    plain = cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    if steps == 0:
        return f"a {plain}"
    found = gc.get_referrers(holder)
    own = {*own, id(found)}
    for above in found:
        if isinstance(above, (FrameType, TracebackType)) or id(above) in own:
            continue
        if isinstance(above, FunctionType):
            return f"{above.__module__}.{above.__qualname__}"
        if isinstance(above, dict):
            key = _key_of(above, holder)
            name = _name_of(above, own, steps - 1)
            return f"{name}.{key}" if _is_space(above) else f"{name}[{_plain(key)}]"
        if isinstance(above, (tuple, list, deque, set, CellType)):
            return _name_of(above, own, steps - 1)
    return f"a {plain}"


def _key_of(table: dict[Any, Any], thing: Any) -> Any:
    # A loop, for what a generator closes over would be one more holder.
    for key, value in dict.items(table):
        if value is thing:
            return key
    return None


def _plain(key: Any) -> str:
    return repr(key)[:40] if isinstance(key, (str, int, float, bool)) else type(key).__name__
