"""What a forward can reach and change: from the modules and arguments of a call through attributes,
containers, closures, classes, and the globals that the code names which may run."""

from __future__ import annotations

import builtins
import ctypes
import functools
import gc
import io
import logging
import os
import random
import re
import sys
import threading
import weakref
from abc import ABCMeta
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass, field, replace
from inspect import getattr_static, getmro
from itertools import chain
from logging import Logger
from mmap import mmap
from opcode import opmap
from operator import attrgetter, is_
from queue import SimpleQueue
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FrameType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    TracebackType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any

import torch
from torch import Tensor
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from opgraph.record.identity import identity
from opgraph.record.remarks import Remark, leave
from opgraph.tracing.fake.types import graded, gradient, scales, shared
from opgraph.tracing.state.iterators import drawn_from, is_iterator
from opgraph.tracing.state.process import (
    Left,
    Step,
    all_back,
    behind,
    by_code,
    held,
    is_loaded,
    modes_around,
    own_of,
    shown_in_c,
)

MOST = 200_000
"""Objects that are looked at before a run, at most: about half a second."""

_COMPILERS = frozenset({"numba", "llvmlite", "jax", "jaxlib", "triton", "taichi", "tvm", "warp"})
"""Packages that make machine code of Python functions as these are called: what they keep of it in Python
is one with what they keep in C, which nobody can put back."""
_OPAQUE = (
    frozenset(sys.stdlib_module_names) | _COMPILERS | {"torch", "numpy", "opgraph", "builtins"}
)
"""Packages whose functions and classes keep nothing of a model's between two calls, or what `process`
knows by name."""
_CLOSED = _COMPILERS | {"opgraph", "importlib", "_frozen_importlib", "_frozen_importlib_external", "abc",
                        "_abc", "typing", "inspect", "_weakref"}  # fmt: skip
"""Packages whose objects are their own business."""


def _ids_of(classes: Iterable[type]) -> Iterator[int]:
    """What classes are told apart by, whatever their own classes make of equality."""
    return map(identity, classes)


def _kinds(items: Iterable[Any]) -> Iterator[int]:
    """The same of the classes of some objects."""
    return map(identity, map(type, items))


_LEAVES = frozenset(_ids_of((
    int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size,
    torch.layout, torch.memory_format, range, slice, type(Ellipsis), property, CodeType,
    GenericAlias, type(Callable[..., None]), UnionType, GetSetDescriptorType, MemberDescriptorType,
    MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType,
)))  # fmt: skip
"""Types of what holds nothing that can be changed."""
_ALONE = _LEAVES.union(
    _ids_of((FunctionType, staticmethod, classmethod, tuple, frozenset, type, ABCMeta))
)
"""Types of what classes have that holds nothing which they keep."""
_VIEWS: tuple[type, ...] = tuple(type(view({})) for view in (dict.keys, dict.values, dict.items))
_CONTAINERS = frozenset(_ids_of((dict, OrderedDict, defaultdict, list, set, deque)))
_IN_ORDER = (list, deque, set)
_MISSING: Any = object()
_LRU: Any = type(functools.lru_cache(lambda: None))


def _any_of(*names: str) -> bytes:
    return b"[" + re.escape(bytes(opmap[n] for n in names if n in opmap)) + b"]"


_SETS = _any_of("STORE_ATTR", "DELETE_ATTR")
_ASSIGNS = re.compile(
    b"|".join([
        _any_of("STORE_GLOBAL", "DELETE_GLOBAL"),
        _any_of("LOAD_GLOBAL") + _any_of("LOAD_ATTR", "CACHE", "EXTENDED_ARG") + b"*" + _SETS,
        _any_of("IMPORT_NAME") + b".*" + _SETS,
    ]),
    re.DOTALL,
)  # fmt: skip
"""Instructions that assign to globals, or to attributes of what is not a local variable."""
_IMPORTS = re.compile(_any_of("IMPORT_NAME"))
_KIND: Any = vars(object)["__class__"]
_FACTORY: Any = vars(defaultdict)["default_factory"]
_CONTENTS: Any = vars(CellType)["cell_contents"]
_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__", "__name__", "__qualname__", "__doc__",
                 "__module__")  # fmt: skip
_look_at = attrgetter(*_OF_FUNCTIONS)
_OF_CLASSES = tuple(vars(type)[n] for n in ("__name__", "__qualname__", "__bases__"))
OF_WORKERS = _MultiProcessingDataLoaderIter
"""What goes with what lies between processes, and cannot go back alone."""
SHARED_LOCK = ("SemLock", "_multiprocessing")
"""A lock of several processes, by the names of its class and its module."""
LOCKS: tuple[type, ...] = (type(threading.Lock()), type(threading.RLock()))
_IN_AND_OUT: type = io._io._IOBase  # type: ignore[attr-defined]
"""What all files are of, below the class that takes others for one."""
_STATEFUL = (
    torch.Generator,
    random.Random,
    _IN_AND_OUT,
    bytearray,
    array,
    Logger,
    SimpleQueue,
    Context,
    *LOCKS,
)
_MEMORY = (ctypes._SimpleCData, ctypes.Structure, ctypes.Union, ctypes.Array, mmap)
"""What has memory of a size of its own, which it lets others write to."""
_UNWANTED = frozenset(
    "__init__ __new__ __post_init__ __init_subclass__ __class_getitem__ __repr__ __str__ __reduce__ "
    "__reduce_ex__ __getstate__ __setstate__ __deepcopy__ __copy__ __del__ __dir__ __sizeof__ "
    "__format__".split()
)
"""Methods that Python calls by itself, and not in a forward that does not name the class."""
_CALLED = frozenset("forward backward setup_context vjp jvp vmap".split())
"""Methods that torch calls by itself: of modules, and of functions that say how they are differentiated."""
_GLOBALS = frozenset({"globals", "__globals__", "f_globals"})
"""What code names that changes globals as entries of a dictionary."""
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""The tables of what runs as a tensor gets its gradient."""
_OF_LOGGERS = frozenset({"getLogger", "dictConfig", "fileConfig"})
"""What code names that changes loggers, perhaps all of them."""
_BY_TEXT = frozenset({"modules", "import_module", "__import__"})
"""What code names that finds modules of Python's by strings."""
_TELLING = frozenset(
    {"fake_mode", "fake_device", "torch._subclasses", "torch._subclasses.fake_tensor"}
)
"""What code names, or has as a string, that tells fake tensors from real ones."""
_READING = frozenset(
    {"from_address", "string_at", "memmove", "memset", "POINTER", "c_void_p", "ffi"}
)
"""What code names that reads or writes memory by its address."""
_LAUNCHING = frozenset({"RawKernel", "RawModule", "SourceModule", "cuLaunchKernel"})
"""What code names that runs programs of its own on an accelerator, by addresses of memory there."""
_OF_LAUNCHING = frozenset({"cupy", "pycuda", "cuda"})
"""The packages of which objects do."""
_OF_FAKES = frozenset({"torch._subclasses.fake_tensor", "torch._subclasses"})
_MAKING = ("__init__", "__new__", "__post_init__")


@dataclass(slots=True)
class Reach:
    """Everything found, with what it was when it was found. `complete` says whether there was not too much
    to look at. `replaced` are the ids of tables whose tensors a run does not see, since there are others in
    their place. `spaces` are the globals of all code that is followed, and `tells_fakes` says whether any
    of it knows of fake tensors."""

    replaced: frozenset[int] = frozenset()
    tensors: dict[int, Tensor] = field(default_factory=dict)
    stateful: list[Any] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)
    caches: list[tuple[Any, int]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    complete: bool = True
    _empty: list[Any] = field(default_factory=list)
    _tables: list[tuple[dict[Any, Any], dict[Any, Any]]] = field(default_factory=list)
    _holders: list[tuple[Any, Any]] = field(default_factory=list)
    _common: list[tuple[Any, list[tuple[Any, list[Any]]]]] = field(default_factory=list)
    _objects: list[tuple[Any, type, Any]] = field(default_factory=list)
    _of_extensions: dict[int, bool] = field(default_factory=dict)
    _of_c: list[_OfC] = field(default_factory=list)
    _slots: list[tuple[Any, Any, Any]] = field(default_factory=list)
    _classes: list[tuple[type, dict[str, Any]]] = field(default_factory=list)
    _functions: list[tuple[Any, tuple[Any, ...]]] = field(default_factory=list)
    _names: list[tuple[dict[str, Any], str, Any]] = field(default_factory=list)
    _last: list[tuple[dict[str, Any], str, Any]] = field(default_factory=list)
    _spaces: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    _globals: dict[int, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)
    _attributes: list[tuple[Any, str, Any]] = field(default_factory=list)
    _contexts: list[tuple[ContextVar[Any], Any]] = field(default_factory=list)
    history: list[Any] = field(default_factory=list)
    _said: set[str] = field(default_factory=set)
    _libraries: dict[int, tuple[Any, set[str]]] = field(default_factory=dict)
    _lent: list[tuple[Any, str, Any]] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)
    _types: set[int] = field(default_factory=set)
    _known: list[type] = field(default_factory=list)
    _waiting: list[Any] = field(default_factory=list)
    _theirs: list[Iterable[Any]] = field(default_factory=list)
    _for_all: list[type] = field(default_factory=list)
    _told: set[int] = field(default_factory=set)
    _answered: set[int] = field(default_factory=set)
    _own: bool = True
    _kinds: dict[int, Callable[[Reach, Any], None] | None] = field(default_factory=dict)
    _shows: dict[int, tuple[tuple[Any, ...], type | None, bool, bool]] = field(default_factory=dict)
    _wanted: set[str] = field(default_factory=set)
    _parts: set[str] = field(default_factory=set)
    _methods: list[tuple[Mapping[str, list[Any]], set[str], set[str]]] = field(default_factory=list)
    _homes: set[str] = field(default_factory=set)
    _abroad: dict[str, list[Any]] = field(default_factory=dict)
    iterators: list[Any] = field(default_factory=list)
    spaces: dict[int, dict[str, Any]] = field(default_factory=dict)
    _common_names: dict[str, Any] = field(default_factory=dict)
    _codes: list[tuple[CodeType, dict[str, Any]]] = field(default_factory=list)
    tells_fakes: bool = False

    @classmethod
    def of(cls, roots: Iterable[Any], replaced: Iterable[Any] = ()) -> Reach:
        """What is reachable from some objects, but not what only the `replaced` tables hold."""
        found = cls(frozenset(map(identity, replaced)), _kinds=_USUAL.copy())
        found._wanted |= _CALLED
        with torch._C.DisableTorchFunctionSubclass():  # classes of tensors are not told
            found._look(roots)
            found._follow()
            found._end()
        return found

    def after(self, modules: Iterable[str]) -> Reach:
        """Modules were imported since: what is reachable by now and was not. That is what is in those of a
        person's own, and what code that is followed may change in them."""
        modules = [name for name in modules if name.partition(".")[0] != "opgraph"]
        names = {part for name in modules for part in (name, name.rpartition(".")[2])}
        empty: dict[str, Any] = {name: [] for name in _OF_A_LOOK}
        late = replace(self, tensors={}, _globals={}, _own=True, **empty)
        late._look(sys.modules[name] for name in modules if not _is_closed(name))
        for code, space in list(self._codes):
            if not names.isdisjoint(_named(code)[0]):
                late._code(code, space)
        late._follow()
        late._end()
        self.tells_fakes, self.complete = late.tells_fakes, late.complete
        return late

    def now(self) -> _Now:
        """What there is by now where something was found: to be asked for before modules are imported."""
        return (
            [_copied(table) for table, _ in self._dictionaries()],
            [_copied(holder) for holder, _ in self._holders],
            [_copied(holder) for holder in self._empty],
            [dict(vars(cls)) for cls, _ in self._classes],
            [[look(*place[:2]) for place in places] for places, look in self._by_name()],
        )

    def imported(self, then: _Now) -> None:
        """Modules were imported since `then`: what that changed is so as if it had been before."""
        tables, holders, empty, classes, named = then
        for (table, before), was in zip(self._dictionaries(), tables, strict=True):
            _stays(before, was, _copied(table))
        for (holder, kept), was in zip(self._holders, holders, strict=True):
            kept[:] = _with_new(kept, was, _copied(holder))
        for holder, was in zip(self._empty.copy(), empty, strict=True):
            now = _copied(holder)
            if issubclass(type(holder), dict) and now.keys() != was.keys():
                entries: dict[Any, Any] = {}
                _stays(entries, was, now)
                self._tables.append((holder, entries))
            elif len(now) != len(was):
                self._holders.append((holder, _with_new([], was, now)))
            else:
                continue
            self._empty = [each for each in self._empty if each is not holder]
        for at, ((cls, members), was) in enumerate(zip(self._classes, classes, strict=True)):
            if not _same(was, vars(cls)):
                members = members.copy()  # noqa: PLW2901  (others go by it, too)
                _stays(members, was, dict(vars(cls)))
                self._classes[at] = cls, members
        for (places, look), values in zip(self._by_name(), named, strict=True):
            for at, ((holder, name, _), value) in enumerate(zip(places, values, strict=True)):
                if (now := look(holder, name)) is not value:
                    places[at] = holder, name, now

    def _dictionaries(self) -> Iterator[tuple[dict[Any, Any], dict[Any, Any]]]:
        """The dictionaries that were found, with what was in them."""
        yield from chain(self._tables, self._spaces, self._globals.values())

    def _by_name(self) -> Iterator[tuple[list[tuple[Any, str, Any]], Callable[[Any, str], Any]]]:
        """What was found by a name in something, and how it is looked up there."""
        yield self._names, _in_space
        yield self._last, _in_space
        yield self._attributes, _held
        yield self._lent, lambda holder, name: _in_space(vars(holder), name)  # not asking it

    def _end(self) -> None:
        """Look at what libraries keep, when all that is the model's was."""
        self._own, tells = False, self.tells_fakes
        while self._theirs:
            self._look(self._theirs.pop())
            self._follow()
        for cls in self._for_all:
            self._kept_for_all(cls)
        self._for_all.clear()
        self._follow()
        self.tells_fakes = tells  # what libraries keep is not what the model says
        for holder, names in self._libraries.values():
            table = vars(holder)
            self._lent += [(holder, name, table[name]) for name in self._said if name in table]
            self._lent += [(holder, name, _MISSING) for name in names if name not in table]

    def _follow(self) -> None:
        """Look at what waits, and at what that leads to."""
        waiting, seen = self._waiting, self._seen
        while waiting or self._call_methods():
            item = waiting.pop()
            if identity(item) in seen:
                continue
            seen.add(identity(item))
            if len(seen) > MOST:
                self.complete = False
                break
            kind = self._kinds[identity(type(item))]
            if kind is not None:
                try:
                    kind(self, item)
                    if identity(type(item)) not in self._types and kind is not Reach._named_class:
                        self._class(type(item))
                except Exception:  # noqa: BLE001  (objects may answer as they like)
                    self.complete = False

    def _call_methods(self) -> bool:
        """Look at the methods that code names which was found since. Whether there are any."""
        for methods, called, parts in self._methods:
            wanted = methods.keys() & self._wanted
            if not parts.issuperset(self._parts):
                wanted |= _with_parts(methods, self._parts - parts)
                parts.update(self._parts)
            for name in wanted - called:
                called.add(name)
                self._look(methods[name])
        return bool(self._waiting)

    def _look(self, items: Iterable[Any]) -> None:
        """Look at these later, as far as they can hold anything."""
        kinds, wait, empty = self._kinds, self._waiting.append, self._empty.append
        table, holder = Reach._dict, Reach._holder
        for item in items:
            key = identity(type(item))
            kind = kinds.get(key, _MISSING)
            if kind is None:
                continue
            if kind is table or kind is holder:  # they hold nothing as long as they are empty
                (wait if item else empty)(item)
                continue
            if kind is _MISSING:
                cls = type(item)
                self._known.append(cls)  # it stays, and what it is told by its own
                try:
                    kinds[key] = _known_kind(cls)
                except Exception:  # noqa: BLE001  (so may classes)
                    kinds[key], self.complete = None, False
                if kinds[key] is None:
                    continue
            wait(item)

    # What is found, by its kind.

    def _dict(self, item: dict[Any, Any]) -> None:
        base = _base(item)
        module = _whose_globals(item)
        if module is not None:  # somebody has them for code to run in
            self._module_kept(module)
            return
        self._tables.append((item, before := _entries(item)))
        if base is OrderedDict and vars(item):
            self._own_table(item)
        if not _LEAVES.issuperset(_kinds(before)):
            self._look(before)
            if any(map(_answers, before)):
                self._answered.add(identity(item))
        if identity(item) not in self.replaced:
            self._look(base.values(item))
            return
        for cls in {identity(cls): cls for cls in map(type, base.values(item))}.values():
            self._class(cls)
        self._look(chain.from_iterable(shared(t) for t in base.values(item) if t is not None))

    def _keyed(self, item: Any) -> None:
        """A dictionary that has more than its entries."""
        self._dict(item)
        self._slot(_FACTORY, item)

    def _holder(self, item: Any) -> None:
        """A list, a set, a deque."""
        kept = list(_order(item).__iter__(item))
        self._holders.append((item, kept))
        if not _LEAVES.issuperset(_kinds(kept)):
            self._look(kept)
            if issubclass(type(item), set) and any(map(_answers, kept)):
                self._answered.add(identity(item))

    def _tuple(self, item: Iterable[Any]) -> None:
        self._look(item)

    def _object(self, item: Any) -> None:
        cls: Any = type(item)
        if identity(cls) not in self._shows:
            shows = _slots(cls), _made_in_c(cls), not _in_python(cls), _has_table(cls)
            self._shows[identity(cls)] = shows
        slots, made, in_c, has_table = self._shows[identity(cls)]
        table, had = _table_of(item) if has_table else None, None
        if type(table) is dict:
            before = self._owned(table)
            self._look(before.values())
            had = _held_in(before) if self._in_c(cls, before) else None
        elif issubclass(type(table), dict):
            self._look((table,))
        self._objects.append((item, cls, table))
        at = len(self._slots)
        for slot in slots:
            self._slot(slot, item)
        if had is not None or made is not None:
            parts = [table, *(had or ())] if made is None else gc.get_referents(item)
            parts = [part for part in parts if identity(type(part)) in _CONTAINERS or part is table]
            shown = None if made is None else (made, shown_in_c(item, made), self._slots[at:])
            self._of_c.append((item, had, parts, shown))
        if table is None and in_c:
            self._look(gc.get_referents(item))
            if says_all(cls) or says_nothing(cls):
                self.stateful.append(item)
        if issubclass(cls, dict):  # others only say that they are one
            self._dict(item)
        elif issubclass(cls, (list, set, deque)):
            self._holder(item)
        elif issubclass(cls, tuple):  # its own way through it may do anything (`platform.uname()`)
            self._look(tuple.__iter__(item))
        if identity(cls) not in self._types:
            self._home(cls)

    def _in_c(self, cls: type, table: dict[str, Any]) -> bool:
        """Whether an object with these attributes has a part that was made in C by a package."""
        known = self._of_extensions
        kinds = {identity(each): each for each in (cls, *map(type, table.values()))}
        known |= {n: _is_of_an_extension(kinds[n]) for n in kinds.keys() - known.keys()}
        return any(map(known.__getitem__, kinds))

    def _error(self, item: BaseException) -> None:
        self.errors.append(item)
        self._object(item)

    def _scripted(self, item: Any) -> None:
        """A module that is run by torch's own interpreter, which has its attributes."""
        self._object(item)
        self.stateful.append(item)
        self._look((*scripted(item).values(), *item.children()))

    def _owned(self, table: dict[Any, Any]) -> dict[Any, Any]:
        """What is in a dictionary that is looked at with what has it."""
        self._seen.add(identity(table))
        self._tables.append((table, before := dict.copy(table)))
        return before

    def _between_threads(self, item: Any) -> None:
        """What threads hand each other things by, or wait for each other; not who waits."""
        table, cls = vars(item), type(item)
        self._owned(table)
        parts = [table, *(v for v in table.values() if any(type(v) is each for each in _IN_ORDER))]
        self._common.append(
            (item, [(p, _held_by(p)) for p in parts if p is not table.get(_WAITERS)])
        )
        self._look(value for name, value in table.items() if name != _WAITERS)
        if identity(cls) not in self._types:
            self._home(cls)

    def _own_table(self, item: Any) -> None:
        """The attributes of what is looked at as another kind of thing, those that it has not yet, too."""
        table = _table_of(item)
        if type(table) is dict and identity(table) not in self._seen:
            self._objects.append((item, type(item), table))  # which keeps the table with it
            self._look(self._owned(table).values())
        self._named_slots(item)

    def _named_slots(self, item: Any) -> None:
        """What is in the slots that classes of Python's have given it."""
        for each in type(item).__mro__:
            for slot in _own_slots(each) if "__slots__" in vars(each) else ():
                self._slot(slot, item)

    def _compiled(self, item: Any) -> None:
        """What a compiler made of a function, which may run in Python, too."""
        self._look((getattr(item, "__wrapped__", None),))

    def _slot(self, slot: Any, item: Any) -> None:
        """What a descriptor gives of an object, or that it gives nothing; not what is made each time."""
        value = _slot_value(slot, item)
        if _alike(value, _slot_value(slot, item)):
            self._slots.append((slot, item, value))
            self._look((value,))

    def _home(self, cls: type) -> None:
        """The code of the modules in which a class and its forward are defined is followed, but not of what
        libraries keep."""
        if not self._own:
            return
        run = _kept_as(cls, "forward", cls)
        for name in (cls.__module__, getattr(run, "__module__", None)):
            if name is not None and name not in self._homes and not _opaque(name):
                self._homes.add(name)
                self._look(self._abroad.pop(name, ()))

    def _follows(self, name: str | None, item: Any) -> bool:
        """Whether code of a module of Python's is followed: all of a person's own, and of installed
        packages the modules that the model's classes are from. What is not may be later."""
        if name is None or _opaque(name):
            return False
        if name in self._homes or not _installed(name):
            return True
        self._abroad.setdefault(name, []).append(item)
        self._seen.discard(identity(item))
        return False

    def _tensor(self, item: Tensor) -> None:
        self.tensors[identity(item)] = item
        hooks = [graded(item, name) for name in _HOOKS]
        self._look((item.__dict__, gradient(item), graded(item, "grad_fn"), *hooks))
        if item.is_quantized and item.device.type != "meta":
            self._look(scales(item))

    def _node(self, item: Any) -> None:
        """What autograd knows of an operator: what somebody put there, and what came before."""
        self.history.append(item)  # torch makes another one where nobody has it
        self.stateful.append(item)
        table = _table_of(item)
        self._look((item.metadata, table, getattr(item, "variable", None)))
        self._look(before for before, _ in item.next_functions)

    def _iterator(self, item: Any) -> None:
        self.iterators.append(item)
        self._look(drawn_from(item))

    def _shared(self, item: Any) -> None:
        """What other processes have a part of: it is asked, and left as it is."""
        self.stateful.append(item)

    def _states(self, item: Any) -> None:
        """What says its own state: generators of random numbers, buffers."""
        if not getattr(item, "closed", False):
            self.stateful.append(item)
        self._look((getattr(getattr(item, "bit_generator", item), "seed_seq", None),))
        if issubclass(type(item), Context):
            self._look(item.values())
        if behind(type(item)) is None:
            self._own_table(item)

    def _thread(self, item: threading.Thread) -> None:
        """It goes on, and is not to be told that it has not begun: only what a class of one's own keeps."""
        self.stateful.append(item)
        self._look(own_of(item).values())

    def _bound(self, item: Any) -> None:
        """A method that is written in C: `items.append`."""
        if not issubclass(type(item.__self__), ModuleType):
            self._look((item.__self__,))

    def _reference(self, item: weakref.ref[Any]) -> None:
        self._own_table(item)
        self._look((weakref.ref.__call__(item),))

    def _stands_for(self, item: Any) -> None:
        """What another object is behind."""
        if issubclass(type(item), memoryview):
            self.stateful.append(item)
        behind = item.obj if issubclass(type(item), memoryview) else item.__repr__.__self__
        self._look((behind,))

    def _shown(self, item: Any) -> None:
        """What an object shows and does not have itself: the dictionary behind a view of it."""
        self._look(gc.get_referents(item))

    def _module_kept(self, item: ModuleType) -> None:
        """A module of Python's that somebody keeps: its attributes, and what those hold that code names."""
        space = vars(item)
        self._spaces.append((space, dict(space)))
        self._named_slots(item)
        if self._follows(item.__name__, item):
            self._methods.append(({name: [value] for name, value in space.items()}, set(), set()))

    def _array(self, item: Any) -> None:
        """What has memory: arrays of NumPy, and what C knows of."""
        self.arrays.append(item)
        behind = getattr(item, "base", None)  # of another kind it is a file, say, that is mapped
        self._look((_table_of(item),))
        self._look(
            b for b in (behind,) if issubclass(type(b), Tensor) or _is_numpys(type(b), "ndarray")
        )
        if getattr(getattr(item, "dtype", None), "hasobject", False):
            self._look(item.flat)

    def _function(self, item: FunctionType) -> None:
        space = item.__globals__
        self.tells_fakes |= space.get("__name__") in _OF_FAKES
        says = _look_at(item)
        self._functions.append((item, says))
        self._look((says[1], says[2], item.__dict__, *(item.__closure__ or ())))
        if self._follows(space.get("__name__"), item):
            self._code(says[0], space)

    def _cell(self, item: CellType) -> None:
        self._slot(_CONTENTS, item)

    def _code(self, code: CodeType, space: dict[str, Any]) -> None:
        """What some code names: globals, attributes of modules of Python's, methods."""
        (names, stored, said), parts = _named(code), _looked_for(code)
        if identity(space) not in self.spaces:
            self.spaces[identity(space)] = space
            self._own_space(space)
        self._codes.append((code, space))
        self.tells_fakes |= not _TELLING.isdisjoint(names)
        self._assigned(stored, space)
        by_name = not names.isdisjoint(_GLOBALS) or {"modules", "__name__"} <= names
        if by_name and identity(space) not in self._seen:
            self._owned(space)
        present, within, libraries, put = _present(code, names, space)
        found = [table[name] for table, name in put]
        for table, each in within:
            key = identity(table if each is None else table.get(each))
            if key not in self._told:
                self._told.add(key)
                self._within(table, each)
        self._said |= said
        for holder in libraries:
            self._libraries.setdefault(identity(holder), (holder, set()))[1].update(said)
        values: list[Any] = [
            space[name] if name in space else sys.modules.get(name) for name in present
        ]
        self._common_names = self._common_names or _put_in()
        values += [self._common_names[name] for name in names & self._common_names.keys()]
        for value in values:
            if is_loaded(value):
                self._module(value, names, parts)
            elif issubclass(type(value), type):
                self._named_class(value)
                if not names.isdisjoint(_BY_NAME) and identity(value) not in self._types:
                    self._class(value)
            else:
                found.append(value)
        if "globals" in names:
            found += [value for value in space.values() if type(value) is FunctionType]
        self._look(found)
        self._wanted |= names
        self._parts |= parts
        if not names.isdisjoint(_OF_LOGGERS):
            self._look(Logger.manager.loggerDict.values())

    def _own_space(self, space: dict[str, Any]) -> None:
        """The globals of a module of a person's own, whoever sets them and by whatever name."""
        name = space.get("__name__")
        if type(name) is str and not _is_closed(name) and identity(space) not in self._globals:
            self._globals[identity(space)] = space, dict(space)

    def _assigned(self, stored: Iterable[tuple[str, ...]], space: dict[str, Any]) -> None:
        """What some code with these globals assigns."""
        for root, *path in stored:
            if not path:
                self._names.append((space, root, space.get(root, _MISSING)))
                continue
            holder = space.get(root, sys.modules.get(root))
            for part in path[:-1]:  # what would import something, or compute it, is not there yet
                holder = getattr_static(holder, part, None)
            if is_loaded(holder) or not issubclass(type(holder), ModuleType):
                self._attributes.append((holder, path[-1], _held(holder, path[-1])))

    def _within(self, table: dict[str, Any], name: str | None) -> None:
        """Something that code names of a library: a container, an object, a class, or a function, and what
        that assigns; the whole module where there is no name."""
        value: Any = table if name is None else table.get(name)
        if name is None or value is sys.modules:
            self._spaces.append((value, dict(value)))
        elif type(value) is FunctionType:
            at = len(self._names)
            self._assigned(_named(value.__code__)[1], value.__globals__)
            self._last += self._names[at:]
            del self._names[at:]
        elif issubclass(type(value), type) and not _opaque(value.__module__):
            self._for_all.append(value)
        elif issubclass(type(value), type):
            self._class(value)
        elif (
            type(value) is dict and identity(value) not in self._seen
        ):  # what it has in there is its own
            self._owned(value)
            if not _CONTAINERS.isdisjoint(_kinds(value.values())) or name == "loggerDict":
                held = [
                    v
                    for v in value.values()
                    if identity(type(v)) in _CONTAINERS or issubclass(type(v), Logger)
                ]
                self._theirs.append(held)
        else:
            torchs = (type(value).__module__ or "").startswith("torch.")
            self._theirs.append((value, _table_of(value) if torchs else None))

    def _kept_for_all(self, cls: type) -> None:
        """What a library's class has, and what is in the containers there."""
        if identity(cls) in self._types:  # the model's classes are below it
            return
        members = dict(vars(cls))
        self._classes.append((cls, members))
        if not _ALONE.issuperset(_kinds(members.values())):
            held = [v for v in members.values() if identity(type(v)) not in _ALONE]
            self._shallow(held, cls.__module__)

    def _shallow(self, items: Iterable[Any], home: str, depth: int = 3) -> None:
        """What a library keeps: what is in containers and in objects of its own classes, and in those that
        these have, but not further."""
        for item in items:
            cls = type(item)
            if identity(cls) in _ALONE or identity(item) in self._seen:
                continue
            if issubclass(type(item), Tensor) or is_iterator(cls):
                self._look((item,))
                continue
            held: list[Any] = []
            if issubclass(type(item), (dict, list, set, deque)):
                self._seen.add(identity(item))
                held = _held_by(item)
                found: list[Any] = self._tables if issubclass(type(item), dict) else self._holders
                found.append((item, _copied(item)))
            table = None if issubclass(type(item), type) else _table_of(item)
            if type(table) is dict and (
                cls.__module__ == "weakref" or _related(cls.__module__, home)
            ):
                held += self._owned(table).values()
            if held and depth:
                self._shallow(held, home, depth - 1)

    def _module(self, module: ModuleType, names: frozenset[str], parts: frozenset[str]) -> None:
        """Of a module of Python's, what some code names."""
        if _opaque(module.__name__) or (
            module.__name__ not in self._homes and _installed(module.__name__)
        ):
            return
        space = vars(module)
        self._own_space(space)
        for name in names & space.keys() | _with_parts(space, parts):
            value = space[name]
            self._names.append((space, name, value))
            if is_loaded(value):
                if value is not module and identity(value) not in self._seen:
                    self._seen.add(identity(value))
                    self._module(value, names, parts)
            elif issubclass(type(value), type):
                self._named_class(value)
            else:
                self._look((value,))

    def _named_class(self, cls: type) -> None:
        """A class that code names may be called, too."""
        self.tells_fakes |= cls.__module__ in _OF_FAKES
        if not self._follows(cls.__module__, cls):
            return
        self._class(cls)
        for name in _MAKING:
            made = cls.__dict__.get(name)
            if type(made) is FunctionType:
                self._look((made,))

    def _class(self, cls: type) -> None:
        """The attributes of a class and of those above it, and the methods that are wanted."""
        for each in cls.__mro__:
            if identity(each) in self._types:
                continue
            self._types.add(identity(each))
            if type(each) is not type:
                self._class(type(each))
            if each.__flags__ & _IMMUTABLE:
                continue
            self._slots += [(slot, each, slot.__get__(each)) for slot in _OF_CLASSES]
            members, methods, others = _members(each)
            self._classes.append((each, members))
            if methods:
                self._methods.append((methods, set(), set()))
            self._look(others)

    def _method(self, item: MethodType) -> None:
        self._look((item.__self__, item.__func__))

    def _partial(self, item: functools.partial[Any]) -> None:
        self._own_table(item)
        self._look((item.func, item.args, item.keywords))

    def _cache(self, item: Any) -> None:
        self.caches.append((item, item.cache_info().currsize))
        self._look((item.__wrapped__,))
        linked = item.cache_parameters()["maxsize"] is not None
        self._look(x for x in gc.get_referents(item) if not (linked and _is_of_links(x)))

    def _context(self, item: ContextVar[Any]) -> None:
        value = item.get(_MISSING)
        self._contexts.append((item, value))
        self._look((value,))

    @property
    def launches(self) -> bool:
        """Whether anything found runs programs on an accelerator, by the addresses of tensors."""
        of = (cls.__module__ for cls in self._known)
        return not self._wanted.isdisjoint(_LAUNCHING) or any(
            type(name) is str and name.partition(".")[0] in _OF_LAUNCHING for name in of
        )

    @property
    def reads_memory(self) -> bool:
        """Whether code that is followed reads memory by its address."""
        return not self._wanted.isdisjoint(_READING)

    def lend(self, copies: Mapping[int, Any]) -> None:
        """Put copies in the place of some things, by their ids, until all is restored."""
        for table, before in self._tables:
            for key, value in before.items():
                if identity(value) in copies:
                    _base(table).__setitem__(table, key, copies[identity(value)])
        for holder, kept in self._holders:
            if any(identity(item) in copies for item in kept):
                base = _order(holder)
                base.clear(holder)
                (base.update if base is set else base.extend)(
                    holder, [copies.get(identity(item), item) for item in kept]
                )
        for slot, item, value in self._slots:
            if identity(value) in copies:
                slot.__set__(item, copies[identity(value)])
        for cls, members in self._classes:
            for name, value in members.items():
                if identity(value) in copies:
                    type.__setattr__(cls, name, copies[identity(value)])
        for space in self.spaces.values():
            for name, value in list(space.items()):
                if identity(value) in copies:
                    self._names.append((space, name, value))
                    space[name] = copies[identity(value)]

    # And back.

    def restore(self) -> list[Remark]:
        """Make everything again what it was when it was found, but for the values of tensors, arrays and
        generators. What is to be said of what could not be. Signals wait meanwhile."""
        with held(), torch._C.DisableTorchFunctionSubclass():
            return all_back(*self.undoing())

    def undoing(self, *, alone: bool = True) -> Iterator[Step]:
        """The same in steps that can each fail by itself: what there is of a kind, and its way back. Unless
        this thread is `alone`, what is in queues and the like may be of another, and is only said."""
        one, theirs = self._one_with_c(), set[int]()
        if not alone:
            theirs = {identity(part) for _, parts in self._common for part, _ in parts}
            yield self._common, _unused
        its, stay = one.keys() - theirs, one.keys() | theirs
        kept = (found for found in (*self._tables, *self._holders) if identity(found[0]) in its)
        yield kept if its else (), functools.partial(_left, one)
        tables = [pair for pair in self._tables if identity(pair[0]) not in stay]
        holders = [pair for pair in self._holders if identity(pair[0]) not in stay]
        empty = [holder for holder in self._empty if identity(holder) not in stay]
        yield ((item, had) for item, had, *_ in self._of_c if had is not None), _kept_alive
        yield (holder for holder in empty if holder), lambda holder: holder.clear()
        late = self._answered and {
            identity(pair[0]) for pairs, same in ((tables, _same), (holders, _holds)) for pair in pairs
            if identity(pair[0]) in self._answered and not same(*pair)
        }  # fmt: skip
        yield (pair for pair in tables if identity(pair[0]) not in late), _table_back
        yield (pair for pair in holders if identity(pair[0]) not in late), _holder_back
        yield (found for found in self._objects if identity(found[0]) not in one), _object_back
        slots = [found for found in self._slots if identity(found[1]) not in one]
        yield slots, _slot_back
        yield self._functions, _function_back
        yield self._classes, _class_back
        for places, look in self._by_name():
            yield () if places is self._last else places, functools.partial(_named_back, look)
        yield self._contexts, _context_back
        yield self.caches, _cache_back
        if late:  # what code answers by goes back first, and what that changed in turn
            for of_code in (True, False):
                for pairs, back in ((tables, _table_back), (holders, _holder_back)):
                    yield [p for p in pairs if (identity(p[0]) in late) is of_code], back
            yield slots, _slot_back
            yield self._classes, _class_back

    def _one_with_c(self) -> dict[int, str]:
        """By their ids, the objects that a package made in C, and that went on there where Python does not
        see it, with their attributes, the containers that they have, and objects of the same module that
        have them: none of that goes back by itself. With the names of their classes."""
        found: dict[int, str] = {}
        for item, _, parts, shown in self._of_c:
            if shown is not None and not _all_shown(item, *shown):
                found |= dict.fromkeys(map(identity, (item, *parts)), type(item).__qualname__)
        for item, had, parts, _ in self._of_c if found else ():
            home = type(item).__module__
            if any(identity(v) in found and type(v).__module__ == home for v in had or ()):
                found |= dict.fromkeys(map(identity, (item, *parts)), type(item).__qualname__)
        return found

    def undoing_last(self, *, alone: bool = True) -> Iterator[Step]:
        """The same of globals of torch and others: the ways back of settings go by them."""
        yield self._spaces, _space_back
        yield self._last, functools.partial(_named_back, _in_space)
        yield self._globals.values(), functools.partial(_own_space_back, alone=alone)

    def add_tables(self, modules: Iterable[torch.nn.Module]) -> None:
        """Remember what modules hold, where not all within reach could be looked at."""
        for module in modules:
            held = (
                module.__dict__,
                *(v for v in module.__dict__.values() if issubclass(type(v), dict)),
            )
            self._tables += [(t, _entries(t)) for t in held]
            found = [v for t in held[1:] if identity(t) not in self.replaced for v in t.values()]
            self.tensors |= {identity(t): t for t in found if issubclass(type(t), Tensor)}


@contextmanager
def unheard() -> Iterator[None]:
    """Within, opgraph may work, of which modes that are on around it keep nothing."""
    modes = modes_around()
    if not modes:
        yield
        return
    found = Reach.of(modes)
    try:
        yield
    finally:
        leave(found.restore())


_USUAL: dict[int, Callable[[Reach, Any], None] | None] = {
    **dict.fromkeys(_LEAVES),
    **dict.fromkeys(_ids_of((dict, OrderedDict)), Reach._dict),
    identity(defaultdict): Reach._keyed,
    **dict.fromkeys(_ids_of((list, set, deque)), Reach._holder),
}
"""How objects of Python's own classes are looked at."""

_OF_A_LOOK = (
    "stateful arrays caches errors iterators _empty _tables _holders _common _objects _of_c _slots "
    "_classes _functions _names _last _spaces _attributes _contexts history _lent"
).split()
"""The lists of what was found, with what it was then."""


def _known_kind(cls: type) -> Callable[[Reach, Any], None] | None:
    """The same as `_kind_of` says; of classes of packages it is known from the first time."""
    found = _KINDS.of(cls)
    if found is _MISSING:
        found = _kind_of(cls)
        if cls.__flags__ & _IMMUTABLE or _is_closed(cls.__module__):
            _KINDS.keep(cls, found)
    return found  # type: ignore[no-any-return]


class _OfClasses:
    """What is known of classes, as long as they are there."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[type], Any]] = {}

    def of(self, cls: type) -> Any:
        known = self._known.get(identity(cls))
        return _MISSING if known is None else known[1]

    def keep(self, cls: type, value: Any) -> None:
        key, known = identity(cls), self._known
        known[key] = weakref.ref(cls, lambda _: known.pop(key, None)), value


_KINDS = _OfClasses()


def _kind_of(cls: type) -> Callable[[Reach, Any], None] | None:
    """How objects of a class are looked at; None where they hold nothing."""
    if issubclass(cls, OF_WORKERS):
        return Reach._shared
    if cls is tuple or cls is frozenset:
        return Reach._tuple
    if issubclass(cls, BaseException):
        return Reach._error
    if is_iterator(cls):
        return Reach._iterator
    if issubclass(cls, Tensor):
        return Reach._tensor
    if _made_with(cls, "next_functions", "metadata"):
        return Reach._node
    if issubclass(cls, torch.UntypedStorage):
        return Reach._array
    if issubclass(cls, torch.jit.ScriptModule):
        return Reach._scripted
    if cls is FunctionType:
        return Reach._function
    if cls is MethodType:
        return Reach._method
    if issubclass(cls, functools.partial):
        return Reach._partial
    if cls is _LRU:
        return Reach._cache
    if issubclass(cls, type):
        return Reach._named_class
    if cls is CellType:
        return Reach._cell
    if cls is ContextVar:
        return Reach._context
    if issubclass(cls, (memoryview, *weakref.ProxyTypes)):
        return Reach._stands_for
    if issubclass(cls, (MappingProxyType, staticmethod, classmethod, torch.TypedStorage, *_VIEWS)):
        return Reach._shown
    if issubclass(cls, ModuleType):
        return None if by_code(cls) else Reach._module_kept
    if issubclass(cls, threading.Thread):
        return Reach._thread
    if any(c.__module__ in ("threading", "queue") for c in cls.__mro__) and _has_table(cls):
        return Reach._between_threads
    if issubclass(cls, _MEMORY):
        return Reach._array
    if (
        issubclass(cls, _STATEFUL)
        or _made_with(cls, "set_result")
        or _hashes(cls)
        or _is_numpys(cls, "BitGenerator", "Generator", "RandomState", "SeedSequence")
        or (cls.__name__, cls.__module__) in (("Context", "decimal"), SHARED_LOCK)
        or behind(cls) is not None
    ):
        return Reach._states
    if cls is BuiltinFunctionType or cls is MethodWrapperType:
        return Reach._bound
    if issubclass(cls, weakref.ref):
        return Reach._reference
    if _is_numpys(cls, "ndarray") or any(ON_GPU in vars(c) for c in cls.__mro__):
        return Reach._array
    if _is_numpys(cls, *_ITERATE):
        return Reach._object
    if (cls.__module__ or "").partition(".")[0] in _COMPILERS:
        return Reach._compiled
    if issubclass(cls, (dict, list, set, deque, tuple)) or _keeps(cls):
        return Reach._object
    return None


def _has_table(cls: type) -> bool:
    return any("__dict__" in vars(c) for c in cls.__mro__)


def scripted(module: Any) -> dict[str, Any]:
    """What torch's interpreter has as the attributes of a module that it runs."""
    kind = module.__dict__.get("_concrete_type")
    names = () if kind is None else kind.get_attributes()
    return {name: module._c.getattr(name) for name in names}


def says_all(cls: Any) -> bool:
    """Whether objects of a class that the standard library made in C say all that is in them, and take it
    again: texts in memory, elements of XML."""
    return (
        cls.__module__.partition(".")[0] in sys.stdlib_module_names
        and hasattr(cls, "__setstate__")
        and cls.__getstate__ is not object.__getstate__
    )


def says_nothing(cls: Any) -> bool:
    """Whether objects of a class that the standard library or NumPy made in C do not show what is in them,
    or iterators of others: where one is that searches a text, goes through rows, compresses. Those that
    compare by what is in them do, and note their hash when they are asked for it."""
    return (
        (
            cls.__module__.partition(".")[0] in sys.stdlib_module_names
            or _is_numpys(cls, *_ITERATE)
            or (_made_with(cls, "__next__") and _made_in_c(cls) is not None)
        )
        and cls.__hash__ in (object.__hash__, None)
        and cls.__basicsize__ > object.__basicsize__
        and not cls.__itemsize__
        and not _in_python(cls)
    )


_ITERATE = ("flatiter", "nditer", "broadcast")
ON_GPU = "__cuda_array_interface__"
"""What arrays on a GPU of other libraries (CuPy, Numba) tell of their memory by."""


def _hashes(cls: type) -> bool:
    """Whether objects of a class are fed with bytes, and say in a few what they got."""
    return _made_with(cls, "update", "digest", "block_size")


def _made_with(cls: type, *names: str) -> bool:
    """Whether a class, or one above it, that was made in C or by a library of no model's has all of these:
    what those of others have is among the attributes of their objects."""
    return any(
        all(name in vars(c) for name in names) and (_opaque(c.__module__) or not _in_python(c))
        for c in cls.__mro__
    )


def _is_numpys(cls: type, *names: str) -> bool:
    return any(
        c.__name__ in names and c.__module__.partition(".")[0] == "numpy" for c in cls.__mro__
    )


def _keeps(cls: type) -> bool:
    """Whether objects of a class can hold what a forward puts there, and Python can see it: not those that
    torch and NumPy made in C, or that are of the machinery of torch (`torch._dynamo`), which whoever traces
    uses. What they have in a part of a package that is for everybody (`torch.utils.data._utils`) a model
    may hold between two calls."""
    top, _, rest = (cls.__module__ or "").partition(".")
    if issubclass(cls, (torch.nn.Module, logging.Handler)):
        return True
    if top in ("torch", "numpy"):
        return not rest.startswith("_") and _in_python(cls)
    if top in sys.stdlib_module_names and _in_python(
        cls
    ):  # `ABCMeta` says to be where it makes classes
        top = top if cls.__name__ in vars(sys.modules.get(cls.__module__, builtins)) else ""
    return top not in _CLOSED and identity(cls) not in _OWN


def _in_python(cls: type) -> bool:
    """Whether a class was written in Python: its objects have a dictionary, or slots by name."""
    return any("__dict__" in vars(c) or "__slots__" in vars(c) for c in cls.__mro__[:-1])


def _is_of_an_extension(cls: type) -> bool:
    """Whether a class, or one above it, was made in C by a package, or stands for what is in C."""
    return issubclass(cls, (*_MEMORY, ctypes._CFuncPtr)) or any(  # type: ignore[attr-defined]
        not _in_python(c) and not _opaque(c.__module__) for c in cls.__mro__
    )


_OWN = frozenset(_ids_of((object, logging.Manager, type(os.environ), TracebackType, FrameType)))
"""Classes whose objects lead to all of the process, or to nothing, or which `process` knows."""


@functools.lru_cache(maxsize=4096)
def _opaque(name: str | None) -> bool:
    """Whether a module of Python's is of a package whose insides are not looked at, and none of a person's
    own that has the name of one of them."""
    if type(name) is not str:
        return True
    top = name.partition(".")[0]
    file = _file_of(top)
    own = top in sys.stdlib_module_names and file.endswith(".py")
    if top in _OPAQUE:
        return not (own and not file.startswith(os.path.dirname(os.__file__)))  # noqa: PTH120
    return _installed(name) and is_loaded(sys.modules[name]) and _remakes(sys.modules[name])


def _file_of(name: str) -> str:
    """The file of a module of Python's, or of the package that it is in, without code of what is there in
    the place of one."""
    if name not in sys.modules:
        return ""
    table = _table_of(sys.modules[name])
    file = table.get("__file__") if type(table) is dict else None
    return file if type(file) is str else _file_of(name.rpartition(".")[0])


def _remakes(module: ModuleType) -> bool:
    """Whether functions of a library's module, or of its classes, give others the code that they run, as
    one does that compiles functions as these are called: what it keeps of them is one with that code."""
    spaces: list[Any] = [module]
    for space in spaces:
        for value in chain.from_iterable(map(_parts, list(vars(space).values()))):
            if type(value) is FunctionType:
                if value.__globals__ is vars(module) and _sets_code(value.__code__):
                    return True
            elif issubclass(type(value), type) and value.__module__ == module.__name__:
                spaces += () if value in spaces else (value,)
    return False


def _sets_code(code: CodeType) -> bool:
    return ("__code__" in code.co_names and "__code__" in _set_on(code)) or any(
        map(_sets_code, _inner(code))
    )


@functools.lru_cache(maxsize=4096)
def _installed(name: str) -> bool:
    """Whether a module of Python's belongs to an installed package."""
    file = _file_of(name)
    return "site-packages" in file or "dist-packages" in file


_OfC = tuple[Any, list[Any] | None, list[Any], tuple[type, bytes, list[Any]] | None]
"""An object that has a part in C; what its attributes held, where they may have one, too; its containers;
and, if its class was made in C, that class, the memory of the object, and what it shows."""
_Now = tuple[list[Any], list[Any], list[Any], list[Any], list[Any]]
"""What is in dictionaries, in lists and the like, in those that were empty, in classes, and by names."""
_Names = tuple[frozenset[str], frozenset[tuple[str, ...]], frozenset[str]]
_NAMED: dict[int, tuple[CodeType, _Names]] = {}
_LOOKED_FOR: dict[int, tuple[CodeType, frozenset[str]]] = {}
"""What code names, by its id, with the code itself so that the id stays its own."""


def _named(code: CodeType) -> _Names:
    """The names in some code and in the functions within it: all of them; what it assigns; and what may be
    the name of an attribute that it sets of something, or has set by another function."""
    known = _NAMED.get(identity(code))
    if known is None:
        if len(_NAMED) > MOST:
            _NAMED.clear()
            _LOOKED_FOR.clear()
            _PRESENT.clear()
        names, stored, said = set(code.co_names), set(_assigned(code)), set(_set_on(code))
        by_text = not names.isdisjoint(_BY_TEXT)
        looks_up = not names.isdisjoint(_LOOKS_UP)
        for constant in code.co_consts:
            if type(constant) is str and constant.isidentifier():
                said.add(constant)
                if looks_up:
                    names.add(constant)
            if type(constant) is str and (constant in _TELLING or by_text):
                names.add(constant)
            if type(constant) is CodeType:
                inner, more, others = _named(constant)
                names |= inner
                stored |= more
                said |= others
        if _IMPORTS.search(code.co_code[::2]):
            names.add("__package__")
        known = _NAMED[identity(code)] = (
            code,
            (frozenset(names), frozenset(stored), frozenset(said)),
        )
    return known[1]


def _looked_for(code: CodeType) -> frozenset[str]:
    """Parts of the names by which some code, and the functions within it, look attributes up."""
    known = _LOOKED_FOR.get(identity(code))
    if known is None:
        looks_up = not _LOOKS_UP.keys().isdisjoint(code.co_names)
        own = frozenset(_made(code) if looks_up else ())
        known = _LOOKED_FOR[identity(code)] = code, own.union(*map(_looked_for, _inner(code)))
    return known[1]


def _made(code: CodeType) -> Iterator[str]:
    """Parts of the names by which some code looks attributes up, where it has no whole name: the texts that
    it makes one of, or an empty one, which is part of every name."""
    import dis

    steps = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    for at, step in enumerate(steps):
        if step.opname not in _LOADS or step.argval not in _LOOKS_UP:
            continue
        depth, last, texts = 0, None, []
        for each in steps[at + 1 :]:  # until its arguments are there, and it is called
            depth += 0 if each.opname == "PUSH_NULL" else dis.stack_effect(each.opcode, each.arg)
            if depth <= 0:
                break
            if depth == _LOOKS_UP[step.argval]:
                last = each.opname
            if each.opname == "LOAD_CONST" and type(each.argval) is str:
                texts += _WORDS.findall(_FIELDS.sub(" ", each.argval))
        if last != "LOAD_CONST":
            yield from texts or [""]


_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD"})
_LOOKS_UP = {"getattr": 2, "getattr_static": 2, "attrgetter": 1, "methodcaller": 1,
             "__getattribute__": 1, "__dict__": 0, "vars": 0, "getmembers": 0}  # fmt: skip
"""What looks attributes up by their names, and which argument that is; 0 where all are shown."""
_FIELDS = re.compile(r"%[-#0 +]*[\d.]*[a-zA-Z]|\{[^}]*\}")
"""Where something else comes into a text."""
_WORDS = re.compile(r"\w+")


def _with_parts(table: Mapping[str, Any], parts: Collection[str]) -> set[str]:
    """The names in a table that have one of some parts, but for those of Python's own methods."""
    return {name for name in table if name[:2] != "__" and any(part in name for part in parts)}


_Within = list[tuple[dict[str, Any], str | None]]
_Found = tuple[list[str], _Within, list[Any], list[tuple[dict[str, Any], str]]]
_Places = list[tuple[dict[str, Any] | None, str]]
_PRESENT: dict[int, tuple[CodeType, int, int, _Places, list[int], _Found]] = {}
"""Which of them there are, and where that was looked up, as long as there are as many modules and
attributes of libraries, and the same ones. The globals of the code itself, which lead to models, are not
kept with it."""


def _present(code: CodeType, names: frozenset[str], space: dict[str, Any]) -> _Found:
    """The names in some code that are globals, or modules that are imported; what it may change in
    libraries, by their attributes and a name; those libraries, with the classes in them that it names; and
    where others have put something there."""
    known = _PRESENT.get(identity(code))
    if known is not None:
        _, modules, size, places, before, found = known
        if (
            modules == len(sys.modules)
            and size == len(space) + sum(map(len, map(vars, found[2])))
            and before == _ids(places, space)
        ):
            return found
    found, places = _looked_up(code, names, space)
    size = len(space) + sum(map(len, map(vars, found[2])))
    before = _ids(places, space)
    _PRESENT[identity(code)] = code, len(sys.modules), size, places, before, found
    return found


def _ids(places: _Places, space: dict[str, Any]) -> list[int]:
    """What there is at some places, or in these globals, without holding it."""
    return [identity((space if table is None else table).get(name)) for table, name in places]


def _looked_up(
    code: CodeType, names: frozenset[str], space: dict[str, Any]
) -> tuple[_Found, _Places]:
    present = [name for name in names if name in space or name in sys.modules]
    places: _Places = [(None if name in space else sys.modules, name) for name in present]
    if "__package__" in present:  # what it imports may be told by where it is itself
        present += _above(space["__package__"])
    values: list[Any] = [
        space[name] if name in space else sys.modules.get(name) for name in present
    ]
    modules = [v for v in values if is_loaded(v)]
    within = list(_changeable(code, names, modules))
    closed = [m for m in modules if _is_closed(m.__name__)]
    inside = [(vars(m), name) for m in closed for name in names & vars(m).keys()]
    values += (table[name] for table, name in inside)
    libraries: list[Any] = [*closed]
    for value in values:
        if issubclass(type(value), type) and not value.__flags__ & _IMMUTABLE:
            if _is_closed(value.__module__):
                libraries.append(value)
                own = dict(vars(value))
                within += _told(value, names)
                within += (
                    (own, n) for n in names & own.keys() if identity(type(own[n])) in _CONTAINERS
                )
        elif identity(type(value)) in _CALLED_BY_NAME and _is_closed(value.__module__):
            within += _kept_by(value)
    put = [at for at in inside if type(at[0][at[1]]) is FunctionType]
    put = [(table, name) for table, name in put if not _is_closed(_home_of(table[name]))]
    return (present, within, libraries, put), places + inside


def _whose_globals(table: dict[Any, Any]) -> ModuleType | None:
    """The module of Python's of which a dictionary is the globals."""
    name = table.get("__name__") if type(table) is dict and "__spec__" in table else None
    module = sys.modules.get(name) if type(name) is str else None
    return module if is_loaded(module) and vars(module) is table else None


def _put_in() -> dict[str, Any]:
    """What has a name in all code, but for the functions and classes of Python's own."""
    return {
        name: value
        for name, value in vars(builtins).items()
        if type(value) is not BuiltinFunctionType
        and not (type(value) is type and value.__flags__ & _IMMUTABLE)
    }


def _above(package: Any) -> list[str]:
    """A package, and those that it is in."""
    parts = package.split(".") if issubclass(type(package), str) and package else []
    names = (".".join(parts[: n + 1]) for n in range(len(parts)))
    return [name for name in names if name in sys.modules]


def _is_closed(name: str | None) -> bool:
    """Whether a module of Python's is of a library, and not of opgraph: all code is followed of those alone
    that the model's classes are from."""
    return type(name) is str and (_opaque(name) or _installed(name)) and name[:7] != "opgraph"


def _changeable(
    code: CodeType, names: frozenset[str], modules: list[ModuleType]
) -> Iterator[tuple[dict[str, Any], str | None]]:
    """What code that names these may change in libraries: containers, and whatever there is where it sets
    attributes by a name that it makes."""
    by_name = not names.isdisjoint(_BY_NAME) and _sets_by_name(code)
    by_name = by_name or ("__dict__" in names and _fills(code) and _opens(code))
    for module in modules:  # which grow
        space = vars(module)
        if not _is_closed(module.__name__):
            continue
        if by_name:
            yield space, None
        for name in names & space.keys():
            value = space[name]
            if is_loaded(value) and value not in modules:
                modules.append(value)
            elif (
                (
                    identity(type(value)) in _CONTAINERS
                    and not name.startswith("__")
                    and (value is not sys.modules or _fills(code) or not names.isdisjoint(_FILL))
                )
                or (by_name and issubclass(type(value), type) and not value.__flags__ & _IMMUTABLE)
                or (_has_table(type(value)) and type(value).__module__ == module.__name__)
            ):
                yield space, name


def _told(cls: type, names: frozenset[str]) -> Iterator[tuple[dict[str, Any], str | None]]:
    """What a library's class keeps for all its objects; and what its methods of these names change, and
    those that make objects and are called as they are entered and left."""
    if _opaque(cls.__module__):
        for name in _SETTING & vars(cls).keys():
            method = vars(cls)[name]
            if type(method) is FunctionType and _named(method.__code__)[1]:
                yield {name: method}, name
        for name in names & vars(cls).keys():
            method = vars(cls)[name]
            if issubclass(type(method), (classmethod, staticmethod)):
                yield {cls.__name__: cls}, cls.__name__
                yield from _kept_by(method.__func__)
        return
    yield from _shared_by(cls)
    for function in _called(cls, names):
        if not _opaque(_behind(function)[-1].__globals__.get("__name__")):
            yield from _kept_by(function)


def _shared_by(cls: type) -> Iterator[tuple[dict[str, Any], str]]:
    """A class of a library's, those above it, and its own."""
    for each in (*cls.__mro__, *getmro(type(cls))):
        if not _opaque(each.__module__) and _is_closed(each.__module__):
            yield {each.__name__: each}, each.__name__


_SETTING = frozenset({"__new__", "__init__", "__post_init__", "__init_subclass__", "__enter__",
                      "__exit__"})  # fmt: skip
_CALLED_BY_NAME = frozenset(_ids_of((FunctionType, MethodType, _LRU)))
_BY_NAME = frozenset({"setattr", "delattr", "vars"})
_FILL = frozenset({"pop", "update", "setdefault", "clear"})
_ADD = frozenset({"append", "add", "insert", "extend", "remove", "discard"})
_FILLS = re.compile(_any_of("STORE_SUBSCR", "DELETE_SUBSCR"))


def _behind(value: Any) -> list[Any]:
    """A function of a library, and those behind it: what a decorator made it of, and that of a method."""
    found = [value]
    while (type(value) is _LRU or type(value) is MethodType) or (
        type(value) is FunctionType and "__wrapped__" in vars(value)
    ):
        value = value.__func__ if type(value) is MethodType else value.__wrapped__
        if any(value is each for each in found):  # it leads to itself
            break
        found.append(value)
    return found


@functools.lru_cache(maxsize=4096)
def _helpers(function: FunctionType) -> tuple[tuple[FunctionType, ...], tuple[Any, ...]]:
    """A function of a library, and those that it calls by name or as methods of classes that it names, and
    those that they call, of the same package; with these classes, and the objects of which they are
    methods."""
    found: dict[FunctionType, None] = {function: None}
    kept: list[Any] = []
    home = function.__globals__.get("__name__")
    for each in (waiting := [function]):
        names = _named(each.__code__)[0]
        for name in names & each.__globals__.keys():
            value = each.__globals__[name]
            if issubclass(type(value), type) and _related(value.__module__, home):
                kept.append(value)
            for part in _called(value, names):
                *above, last = _behind(part)
                if (
                    type(last) is FunctionType
                    and _related(last.__globals__.get("__name__"), home)
                    and last not in found
                ):
                    found[last] = None
                    waiting.append(last)
                    kept += (m.__self__ for m in above if type(m) is MethodType)
    return tuple(found), tuple(kept)


def _related(one: Any, other: Any) -> bool:
    """Whether modules of Python's are one and the same, or of the same installed package."""
    return one == other or (
        type(one) is type(other) is str
        and one.partition(".")[0] == other.partition(".")[0]
        and not _opaque(one)
    )


def _called(value: Any, names: frozenset[str]) -> Iterator[Any]:
    """A function, those of a module, or those methods of a class that are called where these names are."""
    if is_loaded(value):
        space = vars(value)
        found = [space[name] for name in names & space.keys()]
    elif issubclass(type(value), type):
        found = [vars(type(value)).get("__call__")]
        for name in names | _SETTING:
            found += _parts(_kept_as(value, name))
    else:
        found = [value]
    for each in found:
        if type(_behind(each)[-1]) is FunctionType:
            yield each


def _kept_by(value: Any) -> Iterator[tuple[dict[str, Any], str | None]]:
    """What a function of a library keeps among its globals: what it and its helpers assign, the containers
    that they fill, objects of its package's own classes, also of which they are methods, what classes that
    they name keep, loggers; of one with a cache, that; and what a decorator keeps with the function that it
    was given."""
    *above, function = _behind(value)
    yield from (({"cache": each}, "cache") for each in above if type(each) is _LRU)
    if type(function) is not FunctionType:
        return
    helpers, others = _helpers(function)
    home = function.__globals__.get("__name__")
    fills = any(_fills_any(each.__code__) for each in helpers)
    for each in helpers:
        space = each.__globals__
        names, stored = _named(each.__code__)[:2]
        for name in names & space.keys():
            kept = space[name]
            own = _related(type(kept).__module__, home) and _has_table(type(kept))
            own = own and not issubclass(type(kept), (int, type, FunctionType))
            if (fills and identity(type(kept)) in _CONTAINERS and kept is not sys.modules) or own:
                yield space, name
        if stored:
            yield {each.__name__: each}, each.__name__
        if "getLogger" in names and space is function.__globals__:
            yield vars(Logger.manager), "loggerDict"
        if above or (each is not function and space is function.__globals__):
            yield vars(each), None
    for item in (*others, *(each.__self__ for each in above if type(each) is MethodType)):
        if issubclass(type(item), type):
            yield from _shared_by(item)
        else:
            yield {"object": item}, "object"


def _fills_any(code: CodeType) -> bool:
    """Whether some code puts something into a container of whatever name, or takes it out."""
    return not (_FILL | _ADD).isdisjoint(_named(code)[0]) or _fills(code)


def _fills(code: CodeType) -> bool:
    """Whether some code puts something into a container, or takes it out."""
    return _FILLS.search(code.co_code[::2]) is not None or any(map(_fills, _inner(code)))


def _sets_by_name(code: CodeType) -> bool:
    """Whether some code sets attributes of what is behind a global or an imported module."""
    import dis

    before = None
    for each in dis.get_instructions(code):
        if each.opname in ("CACHE", "PUSH_NULL", "EXTENDED_ARG", "PRECALL"):
            continue
        found = each.opname.startswith("LOAD_")
        if (
            before in _BY_NAME
            and found
            and (each.opname == "LOAD_GLOBAL" or each.argval in sys.modules)
        ):
            return True
        before = each.argval if each.opname == "LOAD_GLOBAL" else None
    return any(map(_sets_by_name, _inner(code)))


def _set_on(code: CodeType) -> Iterator[str]:
    """The attributes that some code sets of whatever it has in hand, but for those of `self`."""
    kinds, numbers = code.co_code[::2], code.co_code[1::2]
    at = kinds.find(_STORE)
    while at >= 0:
        mine = kinds[at - 1] == _LOAD and code.co_varnames[numbers[at - 1] :][:1] == ("self",)
        name = numbers[at] | numbers[at - 1] << 8 if kinds[at - 1] == _EXTENDED else numbers[at]
        if not mine:
            yield code.co_names[name]
        at = kinds.find(_STORE, at + 1)


_STORE, _LOAD, _EXTENDED = (opmap[n] for n in ("STORE_ATTR", "LOAD_FAST", "EXTENDED_ARG"))


def _opens(code: CodeType) -> bool:
    """Whether some code takes the dictionary of what is behind a global."""
    import dis

    before = None
    for each in dis.get_instructions(code):
        if each.opname == "LOAD_ATTR" and each.argval == "__dict__" and before == "LOAD_GLOBAL":
            return True
        before = before if each.opname in ("CACHE", "EXTENDED_ARG") else each.opname
    return any(map(_opens, _inner(code)))


def _inner(code: CodeType) -> list[CodeType]:
    return [c for c in code.co_consts if type(c) is CodeType]


_IMMUTABLE = 1 << 8
"""The flag of classes whose attributes cannot be set."""


def _assigned(code: CodeType) -> Iterator[tuple[str, ...]]:
    """The globals that some code assigns or deletes, and the attributes of what is behind globals or
    imported modules (`torch.backends.cudnn.benchmark`), as names one behind the other."""
    if _ASSIGNS.search(code.co_code[::2]) is None:
        return
    import dis

    path: list[str] = []
    for each in dis.get_instructions(code):
        kind, name = each.opname, each.argval
        if kind in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            yield (name,)
        elif kind in ("STORE_ATTR", "DELETE_ATTR") and path:
            yield (*path, name)
        if kind == "LOAD_ATTR" and path:
            path.append(name)
        elif kind == "LOAD_GLOBAL" or ("LOAD_FAST" in kind and name in sys.modules):
            path = [name]
        elif kind not in ("CACHE", "EXTENDED_ARG"):
            path = []


_MEMBERS = _OfClasses()
"""What classes of libraries hold, as long as it is the same, and nobody else put something there."""


def _members(cls: type) -> tuple[dict[str, Any], Mapping[str, list[Any]], list[Any]]:
    """The attributes of a class; its methods by name; and its other attributes, with the methods that
    Python calls by itself. What functions a library of no model's has in its own classes is left out."""
    known: Any = _MEMBERS.of(cls)
    if known is _MISSING or not _same(known[0], cls.__dict__):
        methods: dict[str, list[Any]] = {}
        others: list[Any] = []
        opaque, closed = _opaque(cls.__module__), _is_closed(cls.__module__)
        for name, value in cls.__dict__.items():
            for part in _parts(value):
                if type(part) is not FunctionType:
                    closed = closed and _is_closed(type(part).__module__)
                    others += () if identity(type(part)) in _LEAVES else (part,)
                    continue
                home = _home_of(part)
                closed = closed and _is_closed(home)
                if opaque and _opaque(home):
                    continue
                if name.startswith("__") and name not in _UNWANTED:
                    others.append(part)
                else:
                    methods.setdefault(name, []).append(part)
        known = dict(cls.__dict__), methods, others
        if closed:
            _MEMBERS.keep(cls, known)  # others come and go
    return known  # type: ignore[no-any-return]


def _home_of(function: FunctionType) -> Any:
    """The name of the module whose code a function runs: its own, or, of one that a library made of
    others, the first of theirs that is of no library."""
    found = [function]
    for each in found:
        name = each.__globals__.get("__name__")
        if not _is_closed(name):
            return name
        for cell in each.__closure__ or ():
            held = _slot_value(_CONTENTS, cell)
            if type(held) is FunctionType and held not in found:
                found.append(held)
    return function.__globals__.get("__name__")


def _parts(value: Any) -> tuple[Any, ...]:
    """An attribute of a class as the functions or the value that it is."""
    if issubclass(type(value), (staticmethod, classmethod)):
        return (value.__func__,)
    if issubclass(type(value), property):
        return value.fget, value.fset, value.fdel
    if issubclass(type(value), functools.cached_property):
        return (value.func,)
    return (value,)


def _slots(cls: Any) -> tuple[Any, ...]:
    """The descriptors of what objects of a class have beside their dictionary: slots, and what C
    shows and lets be set: the rest it may compute when it is asked for, for long, and warn."""
    if issubclass(cls, BaseException):
        found = [vars(BaseException)[name] for name in _OF_ERRORS]
    else:
        found = []
    for each in cls.__mro__:
        if each is not BaseException:
            found += _own_slots(each)
    return tuple(found)


def _own_slots(cls: type) -> list[Any]:
    """Those of a class itself; of packages' they are known from the first time. They lead to the class, and
    so to all that its code can reach: nobody keeps those of others."""
    known: Any = _SLOTS.of(cls)
    if known is _MISSING:
        known = [d for name, d in vars(cls).items() if issubclass(type(d), _DESCRIPTORS)
                 and name not in ("__dict__", "__weakref__", "__class__")
                 and not _only_gives(d)]  # fmt: skip
        if cls.__flags__ & _IMMUTABLE or _is_closed(cls.__module__):
            _SLOTS.keep(cls, known)
    return known  # type: ignore[no-any-return]


_SLOTS = _OfClasses()


_OF_ERRORS = ("args", "__cause__", "__context__", "__traceback__", "__suppress_context__")
"""The last is set with the second."""
_DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType)
_POINTER = ctypes.sizeof(ctypes.c_void_p)


def _only_gives(slot: Any) -> bool:
    """Whether a descriptor of C has a function that gets and none that sets (`PyGetSetDef`): Python says so
    only where somebody sets it."""
    if type(slot) is not GetSetDescriptorType:
        return False
    behind = (
        id(slot) + object.__basicsize__ + 3 * _POINTER
    )  # its class and its two names come before
    functions = ctypes.c_void_p.from_address(behind).value
    return functions is None or not ctypes.c_void_p.from_address(functions + 2 * _POINTER).value


def _slot_value(slot: Any, item: Any) -> Any:
    try:
        return slot.__get__(item)
    except Exception:  # noqa: BLE001  (a slot, or a cell, with nothing in it; C may answer as it likes)
        return _MISSING


def _is_of_links(held: Any) -> bool:
    """Whether it is the table of a cache that has a bound, which no other may fill or empty."""
    of = {type(v).__name__ for v in held.values()} if issubclass(type(held), dict) else None
    return of is not None and of <= {"_lru_list_elem"}


def _alike(one: Any, other: Any) -> bool:
    """Whether two are the same to the bit: 0.0 is not -0.0, nor are ranges that count alike."""
    return one is other or (
        type(one) is type(other)
        and identity(type(one)) in _LEAVES
        and one == other
        and (type(one) is int or repr(one) == repr(other))  # numbers may be too long for a text
    )


def _held(holder: Any, name: str) -> Any:
    """An attribute where it is kept as it is set: that of a class not as its objects see it, nor one that
    would be found, or imported, as it is asked for. Where code sets it, that is asked."""
    cls, table = type(holder), _table_of(holder)
    found = _kept_as(cls, name)
    sets = type(cls.__setattr__) is FunctionType and not issubclass(cls, type)
    if table is None or sets or hasattr(type(found), "__set__"):
        return getattr(holder, name, _MISSING)
    return table.get(name, _MISSING)


def _kept_as(cls: type, name: str, default: Any = None) -> Any:
    """What a class has under a name, or the first of those above it that have anything."""
    return next((vars(each)[name] for each in cls.__mro__ if name in vars(each)), default)


def _base(table: dict[Any, Any]) -> Any:
    """The class whose methods are those of dictionaries, whatever a subclass makes of them."""
    return dict if type(table) is dict or not issubclass(type(table), OrderedDict) else OrderedDict


def _order(holder: Any) -> Any:
    """The same of a list, a set or a deque."""
    return next(base for base in (list, set, deque) if issubclass(type(holder), base))


def _entries(table: dict[Any, Any]) -> dict[Any, Any]:
    """What is in a dictionary, without asking its keys for their hash where Python has that."""
    plain = type(table).__iter__ is dict.__iter__
    return dict.copy(table) if plain else dict(_base(table).items(table))


def _answers(key: Any) -> bool:
    """Whether code of a class of somebody's own runs where something is looked up."""
    if type(key) is tuple or type(key) is frozenset:
        return any(map(_answers, key))
    return type(type(key).__hash__) is FunctionType


def _table_of(item: Any) -> Any:
    """The dictionary that an object has its attributes in, without code of its class; None where there is
    none."""
    if not by_code(type(item)):
        return getattr(item, "__dict__", None)
    try:
        return object.__getattribute__(item, "__dict__")
    except AttributeError:
        return None


def _fill(table: dict[Any, Any], entries: Mapping[Any, Any]) -> None:
    base = _base(table)
    for key, value in entries.items():
        base.__setitem__(table, key, value)


def _same(table: dict[Any, Any], before: Mapping[Any, Any]) -> bool:
    """Whether a dictionary has the same entries in the same order."""
    base = _base(table)
    return (
        base.__len__(table) == len(before)
        and all(map(is_, base.values(table), before.values()))
        and all(map(is_, base.keys(table), before))
    )


def _copied(holder: Any) -> Any:
    """What is in a dictionary, a list, a set or a deque."""
    if issubclass(type(holder), dict):
        return _entries(holder)
    return list(_order(holder).__iter__(holder))


def _stays(before: dict[Any, Any], was: Mapping[Any, Any], now: Mapping[Any, Any]) -> None:
    """What became of a dictionary in the meantime is what it was before, too."""
    before.update({key: value for key, value in now.items() if was.get(key, _MISSING) is not value})
    for key in was.keys() - now.keys():
        before.pop(key, None)


def _with_new(before: list[Any], was: list[Any], now: list[Any]) -> list[Any]:
    """The same of what was in a list, a set or a deque."""
    old, new = ({identity(item) for item in items} for items in (was, now))
    kept = [item for item in before if identity(item) in new or identity(item) not in old]
    return kept + [item for item in now if identity(item) not in old]


def _table_back(pair: tuple[dict[Any, Any], dict[Any, Any]]) -> None:
    table, before = pair
    if _same(table, before):
        return
    base = _base(table)
    with suppress(Exception):  # keys may answer as they like when they are compared
        for key in [key for key in base.keys(table) if key not in before]:
            base.__delitem__(table, key)
        _fill(table, before)
    if not _same(table, before) and table is not vars(builtins):  # Python goes by that meanwhile
        base.clear(table)
        _fill(table, before)


def _holder_back(pair: tuple[Any, list[Any]]) -> None:
    holder, kept = pair
    base = _order(holder)
    if _holds(holder, kept):
        return
    if base is set:  # which goes through the others as before, if nothing but these is touched
        wanted = set(kept)
        base.difference_update(holder, set(base.__iter__(holder)).difference(wanted))
        base.update(holder, wanted)
        if _holds(holder, kept):
            return
    base.clear(holder)
    (base.update if base is set else base.extend)(holder, kept)


def _holds(holder: Any, kept: list[Any]) -> bool:
    """Whether a list, a set or a deque holds these, in this order."""
    now = list(_order(holder).__iter__(holder))
    return len(now) == len(kept) and all(map(is_, now, kept))


_WAITERS = "_waiters"


def _held_by(part: Any) -> list[Any]:
    held = _copied(part)
    return list(held.values()) if issubclass(type(held), dict) else held


def _unused(found: tuple[Any, list[tuple[Any, list[Any]]]]) -> None:
    """Whether what is between threads is as it was: it is not set again while there are others."""
    item, parts = found
    for part, before in parts:
        now = _held_by(part)
        if len(now) != len(before) or not all(map(is_, now, before)):
            name = type(item).__qualname__
            raise Left(f"forward used what threads share ({name}), or another thread did")


def _object_back(found: tuple[Any, type, Any]) -> None:
    """The class of an object, and which dictionary has its attributes."""
    item, cls, table = found
    if type(item) is not cls:
        _KIND.__set__(item, cls)
    if type(table) is not dict or _table_of(item) is table:
        return
    if _has_table(cls) and _table_of(item) is _table_of(
        item
    ):  # else it is another's, or made each time
        object.__setattr__(item, "__dict__", table)


def _kept_alive(found: tuple[Any, list[Any]]) -> None:
    """What an object that has a part in C was given meanwhile, and has one itself, lives as long as it: C
    may have been told of it there, and it be kept in Python so that it stays."""
    item, before = found
    known = {identity(value) for value in before}
    new = [v for v in _held_in(vars(item)) if identity(v) not in known and _has_part_in_c(v)]
    if new:
        weakref.finalize(item, new.clear).atexit = False


def _has_part_in_c(value: Any) -> bool:
    table = _table_of(value) if _has_table(type(value)) else None
    values = table.values() if type(table) is dict else ()
    return any(map(_is_of_an_extension, (type(value), *map(type, values))))


def _made_in_c(cls: type) -> type | None:
    """The first of a class and those above it that a package made in C, and that has memory there."""
    for each in cls.__mro__:
        if not _in_python(each) and not _opaque(each.__module__):
            return each if each.__basicsize__ > object.__basicsize__ else None
    return None


def _all_shown(item: Any, made: type, before: bytes, slots: list[Any]) -> bool:
    """Whether an object is as before in C, too, when all that it shows is: else it shows what it did."""
    if shown_in_c(item, made) == before:
        return True
    now = [(slot, item, _slot_value(slot, item)) for slot, *_ in slots]
    _set(slots)
    if shown_in_c(item, made) == before:
        return True
    _set(now)
    return False


def _set(slots: list[Any]) -> None:
    for each in slots:
        with suppress(Exception):  # it is said where all is brought back
            _slot_back(each)


def _left(names: dict[int, str], found: tuple[Any, Any]) -> None:
    """Raises where something has changed that is one with what is in C."""
    holder, before = found
    if not (_same if issubclass(type(holder), dict) else _holds)(holder, before):
        name = names[identity(holder)]
        raise Left(f"forward changed an object that is one with what it keeps in C ({name})")


def _held_in(table: dict[str, Any]) -> list[Any]:
    """The attributes of an object, and what is in containers among them."""
    held = list(table.values())
    return held + [
        v for each in held if identity(type(each)) in _CONTAINERS for v in _held_by(each)
    ]


def _slot_back(found: tuple[Any, Any, Any]) -> None:
    slot, item, value = found
    if not _alike(_slot_value(slot, item), value):
        try:
            slot.__delete__(item) if value is _MISSING else slot.__set__(item, value)
        except (AttributeError, TypeError):
            name = type(item).__qualname__
            raise Left(f"forward changed {slot.__name__} of an object ({name})") from None


def _function_back(found: tuple[Any, tuple[Any, ...]]) -> None:
    function, before = found
    if not all(map(is_, _look_at(function), before)):
        for name, value in zip(_OF_FUNCTIONS, before, strict=True):
            setattr(function, name, value)


def _in_space(space: Mapping[str, Any], name: str) -> Any:
    return space.get(name, _MISSING)


def _named_back(look: Callable[[Any, str], Any], found: tuple[Any, str, Any]) -> None:
    """What there was under a name in the globals of a module, or as an attribute."""
    holder, name, value = found
    if look(holder, name) is value:
        return
    if look is _in_space:
        holder.pop(name) if value is _MISSING else holder.update({name: value})
    else:
        delattr(holder, name) if value is _MISSING else setattr(holder, name, value)


_OF_WARNINGS = frozenset({"__warningregistry__"})
"""What Python puts among the globals of code that warns."""


def _new_in(space: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """The attributes of a module that are new or others, or the modules there are; imports stay."""
    return [
        *(n for n, v in before.items() if space.get(n, _MISSING) is not v),
        *(n for n, v in space.items() if n not in before and not _is_imported(v)),
    ]


def _is_imported(value: Any) -> bool:
    """Whether it is a module, or what stands for one that is imported later."""
    table = _table_of(value)
    return type(table) is dict and table.get("__spec__") is not None


def _space_back(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    space, before = pair
    for name in _new_in(space, before):
        if name in before:
            space[name] = before[name]
        else:
            del space[name]


def _own_space_back(pair: tuple[dict[str, Any], dict[str, Any]], *, alone: bool) -> None:
    """The globals of a module of a person's own, which other threads set, too, but for what warns."""
    new = () if _same(*pair) else {*_new_in(*pair)}
    if new and not alone and not _OF_WARNINGS.issuperset(new):
        name = pair[0].get("__name__")
        raise Left(f"forward set globals of {name}, or another thread did")
    if new:
        _space_back(pair)


def _context_back(pair: tuple[ContextVar[Any], Any]) -> None:
    variable, value = pair
    if (
        value is not _MISSING and variable.get(_MISSING) is not value
    ):  # else it goes with its context
        variable.set(value)


def _cache_back(pair: tuple[Any, int]) -> None:
    cached, entries = pair
    if not entries and cached.cache_info().currsize:
        cached.cache_clear()


def _goes_on(value: Any) -> bool:
    """Whether something is a thread that runs: a library that forgot it would start another."""
    return issubclass(type(value), threading.Thread) and value.is_alive()


def _class_back(pair: tuple[type, dict[str, Any]]) -> None:
    cls, members = pair
    now = cls.__dict__
    if len(now) == len(members) and all(map(is_, now.values(), members.values())):
        return
    if _is_closed(cls.__module__):
        live = {name: value for name, value in now.items() if _goes_on(value)}
        members = members | live
    for name in [
        n for n, v in now.items() if n not in members and (n[:2] + n[-2:] != "____" or callable(v))
    ]:
        type.__delattr__(cls, name)
    for name, value in members.items():
        if now.get(name, _MISSING) is not value and name not in ("__dict__", "__weakref__"):
            type.__setattr__(cls, name, value)
