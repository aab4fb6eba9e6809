"""What objects hold, read and set as Python itself does, without code of their classes."""

from __future__ import annotations

import _frozen_importlib as importing
import ctypes
import functools
import gc
import sys
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from ctypes import py_object
from importlib.machinery import ModuleSpec
from operator import is_
from types import (
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from opgraph.record.identity import identity


def ids_of(classes: Iterable[type]) -> Iterator[int]:
    """What classes are told apart by, whatever their own classes make of equality."""
    return map(identity, classes)


def kinds_of(items: Iterable[Any]) -> Iterator[int]:
    """The same of the classes of some objects."""
    return map(identity, map(type, items))


LEAVES = frozenset(ids_of((
    int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size,
    torch.layout, torch.memory_format, range, slice, type(Ellipsis), property, CodeType,
    GenericAlias, type(Callable[..., None]), UnionType, GetSetDescriptorType, MemberDescriptorType,
    MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType,
)))  # fmt: skip
"""Types of what holds nothing that can be changed."""
CONTAINERS = frozenset(ids_of((dict, OrderedDict, defaultdict, list, set, deque)))
MISSING: Any = object()
LRU: Any = type(functools.lru_cache(lambda: None))
CONTENTS: Any = vars(CellType)["cell_contents"]


def is_decimals(cls: type) -> bool:
    """Whether objects of a class say how decimal numbers are computed with."""
    return (cls.__name__, cls.__module__) == ("Context", "decimal")


def has_table(cls: type) -> bool:
    """Whether objects of a class have a dictionary for their attributes."""
    return any("__dict__" in vars(c) for c in cls.__mro__)


def slot_value(slot: Any, item: Any) -> Any:
    """What a descriptor gives of an object; `MISSING` where there is nothing."""
    try:
        return slot.__get__(item)
    except Exception:  # noqa: BLE001  (a slot, or a cell, with nothing in it; C may answer as it likes)
        return MISSING


def is_loaded(value: Any) -> bool:
    """Whether it is a module of Python's that is there: one that is put off (`importlib.util.LazyLoader`)
    is loaded by code of its class when it is asked for anything, its attributes or its name, too. Nor is
    one that another thread is about to make."""
    return (
        issubclass(type(value), ModuleType)
        and not by_code(type(value))
        and not is_unready(table_of(value))
    )


def is_unready(space: Any) -> bool:
    """Whether a module, of which these are the globals, is made by another thread at the moment: what is
    there is a part of it."""
    spec = space.get("__spec__") if type(space) is dict else None
    if type(spec) is not ModuleSpec or not getattr(spec, "_initializing", False):
        return False
    lock = importing._module_locks.get(spec.name, lambda: None)()  # type: ignore[attr-defined]
    return getattr(lock, "owner", None) not in (None, threading.get_ident())


def by_code(cls: type) -> bool:
    """Whether code runs where an object of a class is asked for any attribute."""
    return type(cls.__getattribute__) is FunctionType


def loaded(name: str) -> Any:
    """The module of a name, if it is there."""
    module = sys.modules.get(name)
    return module if is_loaded(module) else None


def referents(item: Any) -> list[Any]:
    """What an object made in C has, but for lists with places where nothing is yet (the stack of a parser
    of XML): who goes through one ends the process."""
    return [
        each
        for each in gc.get_referents(item)
        if type(each) is not list or len(gc.get_referents(each)) == len(each)
    ]


def is_of_links(held: Any) -> bool:
    """Whether it is the table of a cache that has a bound, which no other may fill or empty."""
    of = {type(v).__name__ for v in held.values()} if issubclass(type(held), dict) else None
    return of is not None and of <= {"_lru_list_elem"}


def are_alike(one: Any, other: Any) -> bool:
    """Whether two are the same to the bit: 0.0 is not -0.0, nor are ranges that count alike. Of tuples,
    which C may make anew each time, whether they have the same in them."""
    if type(one) is type(other) is tuple:
        return len(one) == len(other) and all(map(is_, one, other))
    return one is other or (
        type(one) is type(other)
        and identity(type(one)) in LEAVES
        and one == other
        and (type(one) is int or repr(one) == repr(other))  # numbers may be too long for a text
    )


def attribute_of(holder: Any, name: str) -> Any:
    """An attribute where it is kept as it is set: that of a class not as its objects see it, nor one that
    would be found, or imported, as it is asked for. Where code sets it, that is asked."""
    cls, table = type(holder), table_of(holder)
    found = kept_as(cls, name)
    sets = type(cls.__setattr__) is FunctionType and not issubclass(cls, type)
    if table is None or sets or hasattr(type(found), "__set__"):
        return getattr(holder, name, MISSING)
    return table.get(name, MISSING)


def kept_as(cls: type, name: str, default: Any = None) -> Any:
    """What a class has under a name, or the first of those above it that have anything."""
    return next((vars(each)[name] for each in cls.__mro__ if name in vars(each)), default)


def dict_class(table: dict[Any, Any]) -> Any:
    """The class whose methods are those of dictionaries, whatever a subclass makes of them."""
    return dict if type(table) is dict or not issubclass(type(table), OrderedDict) else OrderedDict


def holder_class(holder: Any) -> Any:
    """The same of a list, a set or a deque."""
    return next(base for base in (list, set, deque) if issubclass(type(holder), base))


def entries_of(table: dict[Any, Any]) -> dict[Any, Any]:
    """What is in a dictionary, without asking its keys for their hash where Python has that."""
    plain = type(table).__iter__ is dict.__iter__
    return dict.copy(table) if plain else dict(dict_class(table).items(table))


def answers_by_code(key: Any) -> bool:
    """Whether code of a class of somebody's own runs where something is looked up."""
    if type(key) is tuple or type(key) is frozenset:
        return any(map(answers_by_code, key))
    return type(type(key).__hash__) is FunctionType


_OWN_TABLE: Any = ctypes.pythonapi.PyObject_GenericGetDict
_OWN_TABLE.restype, _OWN_TABLE.argtypes = py_object, (py_object, ctypes.c_void_p)
"""What gives the dictionary of any object of Python's, whatever its class shows. It is given a `py_object`
of it: ctypes would ask it for its class otherwise."""


def table_of(item: Any) -> Any:
    """The dictionary that an object has its attributes in, without code of its class; None where there is
    none, also where the class shows another, which it is not asked for."""
    cls: Any = type(item)
    for each in cls.__mro__:
        if "__dict__" in (members := vars(each)):
            if type(members["__dict__"]) in (GetSetDescriptorType, MemberDescriptorType):
                break
            return _OWN_TABLE(py_object(item), None) if cls.__dictoffset__ else None
    try:  # what is in C alone: `__getattr__` may be anybody's
        return (object if by_code(cls) else cls).__getattribute__(item, "__dict__")
    except AttributeError:
        return None


def fill(table: dict[Any, Any], entries: Mapping[Any, Any]) -> None:
    """Put entries into a dictionary, by the methods of dictionaries."""
    base = dict_class(table)
    for key, value in entries.items():
        base.__setitem__(table, key, value)


def same_entries(table: dict[Any, Any], before: Mapping[Any, Any]) -> bool:
    """Whether a dictionary has the same entries in the same order."""
    base = dict_class(table)
    return (
        base.__len__(table) == len(before)
        and all(map(is_, base.values(table), before.values()))
        and all(map(is_, base.keys(table), before))
    )


def contents(holder: Any) -> Any:
    """What is in a dictionary, a list, a set or a deque."""
    if issubclass(type(holder), dict):
        return entries_of(holder)
    return list(holder_class(holder).__iter__(holder))


def holds(holder: Any, kept: list[Any]) -> bool:
    """Whether a list, a set or a deque holds these, in this order."""
    now = list(holder_class(holder).__iter__(holder))
    return len(now) == len(kept) and all(map(is_, now, kept))


def held_by(part: Any) -> list[Any]:
    """What is in a container: of a dictionary, its values."""
    held = contents(part)
    return list(held.values()) if issubclass(type(held), dict) else held


def held_in(table: dict[str, Any]) -> list[Any]:
    """The attributes of an object, and what is in containers among them."""
    held = list(table.values())
    return held + [v for each in held if identity(type(each)) in CONTAINERS for v in held_by(each)]


def in_space(space: Mapping[str, Any], name: str) -> Any:
    """What there is under a name among some globals."""
    return space.get(name, MISSING)


def insides(item: Any, cls: type) -> bytes:
    """The memory of an object itself, as far as it is of a class made in C, but for who refers to it."""
    start = object.__basicsize__
    return ctypes.string_at(id(item) + start, cls.__basicsize__ - start)


def shown_in_c(item: Any, cls: type) -> bytes:
    """The same, but for where its attributes are, and who refers to it weakly."""
    found = bytearray(insides(item, cls))
    for place in (cls.__weakrefoffset__, cls.__dictoffset__):
        if place > 0:
            at = place - object.__basicsize__
            found[at : at + _POINTER] = bytes(_POINTER)
    return bytes(found)


_POINTER = ctypes.sizeof(ctypes.c_void_p)
