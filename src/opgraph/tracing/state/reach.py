"""What a forward can reach and change: from the modules and arguments of a call through attributes,
containers, closures, classes, and the globals that the code names which may run."""

from __future__ import annotations

import ctypes
import functools
import io
import pickle
import random
import sys
import threading
import weakref
from abc import ABCMeta
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass, field, replace
from inspect import getattr_static
from itertools import chain
from logging import Logger
from queue import Queue, SimpleQueue
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import OPDEF_TO_LIB, OPDEFS
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from opgraph.record.identity import identity
from opgraph.record.remarks import leave
from opgraph.tracing.fake.types import graded, gradient, scales, shared
from opgraph.tracing.state.classes import (
    IMMUTABLE,
    ITERATE,
    MEMORY,
    SCRIPTED,
    OfClasses,
    hashes_bytes,
    is_in_python,
    is_numpys,
    is_of_an_extension,
    keeps,
    made_in_c,
    made_with,
    members_of,
    own_slots,
    registered,
    says_all,
    says_nothing,
    scripted,
    scripted_items,
    slots_of,
)
from opgraph.tracing.state.code import (
    BY_NAME,
    TELLING,
    looked_for,
    named_in,
    takes_modules,
    with_parts,
)
from opgraph.tracing.state.found import LISTS, METHODS_IN_C, REFERENCES, Found
from opgraph.tracing.state.holding import (
    CONTAINERS,
    CONTENTS,
    LEAVES,
    LRU,
    MISSING,
    answers_by_code,
    are_alike,
    attribute_of,
    by_code,
    contents,
    dict_class,
    entries_of,
    has_table,
    held_by,
    held_in,
    holder_class,
    ids_of,
    is_decimals,
    is_loaded,
    is_of_links,
    is_unready,
    kept_as,
    kinds_of,
    referents,
    shown_in_c,
    slot_value,
    table_of,
)
from opgraph.tracing.state.iterators import drawn_from, is_iterator, waiting_code
from opgraph.tracing.state.libraries import around, by_held, present_in, put_in
from opgraph.tracing.state.others import hosted, packages_at_work
from opgraph.tracing.state.packages import (
    are_related,
    is_a_runners,
    is_closed,
    is_installed,
    is_of_a_compiler,
    is_opaque,
    module_of,
    parts_of,
)
from opgraph.tracing.state.places import places
from opgraph.tracing.state.process import modes_around
from opgraph.tracing.state.speaking import Own, behind, ending, going_with, says_the_same
from opgraph.tracing.state.undoing import (
    KIND,
    all_shown,
    look_at,
    said_by,
)
from opgraph.tracing.state.wanted import Modules, Wanted, all_in, theirs

MOST = 200_000
"""Objects that are looked at before a run, at most: about half a second."""
_MOST_KEPT = 100_000
"""The same of what files of packages keep, and of what modules of a person's own do."""
_MANY = 20_000
"""Things that a library keeps in one place, of which it is not looked what is in each."""
_ALONE = LEAVES.union(
    ids_of((FunctionType, staticmethod, classmethod, frozenset, type, ABCMeta, ModuleType))
)
"""Types of what modules and classes have that holds nothing which they keep."""
_REGISTERED = (OPDEFS, OPDEF_TO_LIB)
"""Where torch notes what it registers for the process, which it goes by where that is registered anew."""
_VIEWS: tuple[type, ...] = tuple(type(view({})) for view in (dict.keys, dict.values, dict.items))
_SHOWING = (MappingProxyType, staticmethod, classmethod, torch.TypedStorage, *_VIEWS)
_IN_ORDER = (list, deque, set)
_FACTORY: Any = vars(defaultdict)["default_factory"]
_OF_CLASSES = tuple(vars(type)[n] for n in ("__name__", "__qualname__", "__bases__"))
OF_WORKERS = _MultiProcessingDataLoaderIter
"""What goes with what lies between processes, and cannot go back alone."""
_PICKLE = pickle.Pickler, pickle.Unpickler
SHARED_LOCK = ("SemLock", "_multiprocessing")
"""A lock of several processes, by the names of its class and its module."""
_SHARED_CONDITION = ("Condition", "multiprocessing.synchronize")
_COUNTING = "_sleeping_count", "_woken_count", "_wait_semaphore"
"""The semaphores of one by which processes count who waits, and who woke."""
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
_VALUED = (Tensor, torch.Generator, random.Random, bytearray, array)
"""What has values, or draws them, of whatever class it is."""
_HANDING_ON = (Queue, SimpleQueue, io.StringIO, io.BytesIO, *LOCKS)
"""What somebody puts something into for others, or waits at."""
_HOLDERS: tuple[Any, ...] = (dict, list, set, deque)
_METHODS = METHODS_IN_C.union(ids_of((MethodType,)))
_HOLDING = frozenset({"weakref", "_weakrefset", "torch.utils._config_module", "argparse", "types",
                      "collections"})  # fmt: skip
"""Where the classes are from whose objects hold what others put there."""
_OWN = ""
"""Stands for the package of what is in a person's own modules, of which no values are copied: nothing says
that the forward can reach them."""
_Kept = tuple[Iterable[Any], str | None, int]
"""Things that somebody keeps, the package of whose classes objects are looked at, or None for all, and how
deep."""
_CALLED = frozenset(
    "forward backward setup_context vjp jvp vmap right_inverse "  # torch
    "write writelines flush read readline readinto seek close "  # Python, of what stands in for a file
    "f g h f_and_g g_prod callback_step callback_accept_step callback_reject_step "  # solvers
    "matvec rmatvec matmat rmatmat".split()  # SciPy
)
"""Methods that libraries call by themselves of what they are given: of modules, of functions that say how
they are differentiated, of streams, of equations and operators."""
_GLOBALS = frozenset({"globals", "__globals__", "f_globals"})
"""What code names that changes globals as entries of a dictionary."""
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""The tables of what runs as a tensor gets its gradient."""
_OF_LOGGERS = frozenset({"getLogger", "dictConfig", "fileConfig"})
"""What code names that changes loggers, perhaps all of them."""
_READING = frozenset(
    "from_address string_at memmove memset POINTER c_void_p ffi "
    "cast_integer_to_float_ptr cast_integer_to_idx_t_ptr cast_integer_to_int_ptr "
    "cast_integer_to_uint8_ptr set_arg_external_array_with_shape".split()
)
"""What code names that goes to memory by its address, or has it done (faiss, Taichi)."""
_OF_C: tuple[type, ...] = (ctypes.CDLL, ctypes._CFuncPtr)  # type: ignore[attr-defined]
"""Libraries in C and their functions, which may be given an address."""
_BINDING = frozenset({"bind_input", "bind_output"})
"""The same of ONNX Runtime, where that is there: others have methods of these names, too."""
_LAUNCHING = frozenset({"RawKernel", "RawModule", "SourceModule", "cuLaunchKernel"})
"""What code names that runs programs of its own on an accelerator, by addresses of memory there."""
_OF_LAUNCHING = frozenset({"cupy", "pycuda", "cuda"})
"""The packages of which objects do."""
_OF_FAKES = frozenset({"torch._subclasses.fake_tensor", "torch._subclasses"})
_MAKING = ("__init__", "__new__", "__post_init__")
_MAKES = frozenset({"type", "__class__", "replace", "_replace", "evolve"})
"""What code names that may make another object of a class which it does not name."""
_FINDING = frozenset(
    {"globals", "modules", "import_module", "__import__", "resolve_name", "locate", "instantiate"}
)
"""What code names that finds modules, and what is in them, by texts."""
_ASKED = 7
"""The number of lists of what was found that are gone through for these."""
_ANSWERS = frozenset({"__getattr__"})
"""What a module has that answers where it does not have what code names."""


@dataclass(slots=True)
class Reach(Found):
    """What was found, and how it is looked for. `complete` says whether there was not too much to look at.
    `replaced` are the ids of tables whose tensors a run does not see, since there are others in their
    place. `tells_fakes` says whether any code that is followed knows of fake tensors, `calls_c` whether any
    has functions of a library in C in hand."""

    replaced: frozenset[int] = frozenset()
    complete: bool = True
    _of_extensions: dict[int, bool] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)
    _libraries: dict[int, tuple[Any, set[str]]] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)
    _types: set[int] = field(default_factory=set)
    _known: list[type] = field(default_factory=list)
    _waiting: list[Any] = field(default_factory=list)
    _theirs: list[Iterable[Any]] = field(default_factory=list)
    _for_all: list[type] = field(default_factory=list)
    _read: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    _wholly: dict[int, bool] = field(default_factory=dict)
    _named: set[int] = field(default_factory=set)
    _told: set[int] = field(default_factory=set)
    _own: bool = True
    _kinds: dict[int, Callable[[Reach, Any], None] | None] = field(default_factory=dict)
    _shows: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    _wanted: Wanted = field(default_factory=Wanted)
    _called: list[Any] = field(default_factory=list)
    _makes: bool = False
    _lends: list[Any] = field(default_factory=list)
    _looked_in: list[tuple[Any, frozenset[str]]] = field(default_factory=list)
    _finds: set[str] = field(default_factory=set)
    _paths: list[str] = field(default_factory=list)
    _modules: Modules | None = None
    _asked: list[int] = field(default_factory=lambda: [0] * _ASKED)
    _met: set[int] = field(default_factory=set)
    _copied: int = 0
    _homes: set[str] = field(default_factory=set)
    _files: set[str] = field(default_factory=set)
    _abroad: dict[str, list[Any]] = field(default_factory=dict)
    _common_names: dict[str, Any] = field(default_factory=dict)
    _codes: list[tuple[CodeType, dict[str, Any]]] = field(default_factory=list)
    tells_fakes: bool = False
    calls_c: bool = False

    @classmethod
    def of(
        cls, roots: Iterable[Any], replaced: Iterable[Any] = (), called: Iterable[str] = ()
    ) -> Reach:
        """What is reachable from some objects, but not what only the `replaced` tables hold. Methods of
        these names are `called` without being named."""
        found = cls(replaced=frozenset(map(identity, replaced)), _kinds=_USUAL.copy())
        found._seen.update(map(identity, _REGISTERED))
        found._wanted.add(_CALLED.union(called))
        with torch._C.DisableTorchFunctionSubclass():  # classes of tensors are not told
            found._look(roots)
            found._follow()
            found._follow_called()
            found._end()
        return found

    def after(self, imported: Mapping[str, ModuleType]) -> Reach:
        """Modules were imported since: what is reachable by now and was not. That is what is in those of a
        person's own, and what code that is followed may change in them."""
        modules = [name for name in imported if name.partition(".")[0] != "opgraph"]
        names = {part for name in modules for part in (name, name.rpartition(".")[2])}
        empty: dict[str, Any] = {name: [] for name in LISTS}
        again: dict[str, Any] = {"_asked": [0] * _ASKED, "_modules": None}
        late = replace(self, tensors={}, _globals={}, _own=True, **again, **empty)
        late._look(imported[name] for name in modules if not is_closed(name))
        for code, space in list(self._codes):
            if not names.isdisjoint(named_in(code).all):
                late._code(code, space)
        late._follow()
        late._follow_called()
        late._end()
        self.tells_fakes, self.complete = late.tells_fakes, late.complete
        self.calls_c = late.calls_c
        return late

    def _end(self) -> None:
        """Look at what libraries keep, when all that is the model's was."""
        self._own, tells = False, self.tells_fakes
        self.calls_c |= any(issubclass(cls, _OF_C) for cls in self._known)
        self._lent_by_held()
        self._follow_beside()
        while self._theirs:
            self._look(self._theirs.pop())
            self._follow()
        for cls in self._for_all:
            self._shallow(*self._kept_for_all(cls))
        for (_, name), table in self._read.items():
            self._read_there(table, name)
        self._for_all.clear()
        self._read.clear()
        self._follow()
        self._follow_called()
        self._shallow(*chain.from_iterable(map(self._kept_by, self._kept_whole())))
        self._follow()
        self.tells_fakes = tells  # what libraries keep is not what the model says
        for holder, names in self._libraries.values():
            table = vars(holder)
            self._lent += [(holder, name, table[name]) for name in self._said if name in table]
            self._lent += [(holder, name, MISSING) for name in names if name not in table]

    def _lent_by_held(self) -> None:
        """What code may change in libraries by classes and modules of theirs that objects hold, and by what
        it looks up there by texts that objects hold."""
        names: Collection[str] = self._wanted.names
        lent = {identity(each): each for each in self._lends}
        held: list[tuple[Any, Collection[str]]] = []
        if self._looked_in or self._finds:
            self._asked[1:] = [0] * (_ASKED - 1)
            texts = set(self._texts())
            held += ((m, texts | with_parts(vars(m), parts - {""})) for m, parts in self._looked_in)
            lent |= {identity(v): v for v in (theirs(texts) if self._finds else ())}
        held += ((each, names) for each in lent.values() if not self._follows(_home_of(each), each))
        self._lends.clear()
        self._looked_in.clear()
        for each, named in held:
            libraries, within, read = by_held(each, named, names)
            self._kept(within, read)
            for holder in libraries:
                self._libraries.setdefault(identity(holder), (holder, set()))

    def _follow(self) -> None:
        """Look at what waits, and at what that leads to."""
        waiting, seen = self._waiting, self._seen
        while waiting:
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
                    if identity(type(item)) not in self._types and kind is not Reach._held_class:
                        self._class(type(item))
                except Exception:  # noqa: BLE001  (objects may answer as they like)
                    self.complete = False

    def _follow_called(self) -> None:
        """Look at methods that libraries may call, what makes objects of classes that no code names, and
        what code finds. Whether these tell fake tensors is not asked: most never run in a forward."""
        tells = self.tells_fakes
        while True:
            if self._makes:
                self._look(self._wanted.add(_MAKING))
                self._makes = False
            called = [*self._called, *self._found()]
            self._called.clear()
            self._look(called)
            if not self._waiting:
                break
            self._follow()
        self.tells_fakes = tells

    def _follow_beside(self) -> None:
        """Look at what methods of a person's own classes that no code names, which a library may call, have
        among their globals, around them and as attributes, and so on of functions there. Of what these do
        to libraries nothing is looked at."""
        seen: set[int] = set()
        while True:
            found: list[Any] = []
            waiting = self._wanted.unnamed()
            while waiting:
                item = waiting.pop()
                if type(item) is not FunctionType:
                    found.append(item)
                elif identity(item) not in seen and not is_closed(module_of(item.__globals__)):
                    seen.add(identity(item))
                    space, says = item.__globals__, look_at(item)
                    self._functions.append((item, says))
                    waiting += (space[name] for name in named_in(says[0]).all & space.keys())
                    waiting += says[1], says[2], item.__dict__, *(item.__closure__ or ())
            self._look(v for v in found if not issubclass(type(v), (type, ModuleType)))
            if not self._waiting:
                break
            self._follow()

    def _found(self) -> Iterator[Any]:
        """What code finds that does not name it: a person's classes below those that were found since, and
        what texts that objects hold say where it is."""
        if "__subclasses__" in self._wanted.names:
            for cls, _ in self._since(0, self._classes):
                yield from (c for c in type.__subclasses__(cls) if not is_closed(c.__module__))
        if self._finds:
            self._modules = self._modules or Modules(self._finds)
            yield from self._modules.told_by(self._texts())

    def _texts(self) -> Iterator[str]:
        """The texts that objects and globals hold which were found since, and those that code has."""
        held: list[Iterable[Any]] = [before.values() for _, before in self._since(1, self._tables)]
        held += (kept for _, kept in self._since(2, self._holders))
        held += (w for w in self._since(3, self._wholes) if type(w) in (tuple, frozenset))
        held.append(value for *_, value in self._since(4, self._slots))
        held.append(self._since(6, self._paths))
        for _, kept in self._since(5, list(self._globals.values())):
            held.append(v for name, v in kept.items() if type(name) is str and name[:2] != "__")
        return (str.__str__(v) for v in chain(*held) if issubclass(type(v), str))

    def _since(self, which: int, found: list[Any]) -> list[Any]:
        """Those of a list that were found since it was asked last."""
        at, self._asked[which] = self._asked[which], len(found)
        return found[at:]

    def _look(self, items: Iterable[Any]) -> None:
        """Look at these later, as far as they can hold anything."""
        kinds, wait, empty = self._kinds, self._waiting.append, self._empty.append
        table, holder = Reach._dict, Reach._holder
        for item in items:
            key = identity(type(item))
            kind = kinds.get(key, MISSING)
            if kind is None:
                continue
            if kind is table or kind is holder:  # they hold nothing as long as they are empty
                (wait if item else empty)(item)
                if kind is holder and not item:
                    self._lying(item)
                continue
            if kind is MISSING:
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
        base = dict_class(item)
        module = _whose_globals(item)
        if module is not None:  # somebody has them for code to run in
            self._module_kept(module)
            return
        self._tables.append((item, before := entries_of(item)))
        if base is OrderedDict and vars(item):
            self._own_table(item)
        if not LEAVES.issuperset(kinds_of(before)):
            self._look(before)
            if any(map(answers_by_code, before)):
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
        kept = list(holder_class(item).__iter__(item))
        self._holders.append((item, kept))
        self._lying(item)
        if not LEAVES.issuperset(kinds_of(kept)):
            self._look(kept)
            if type(item) is set:
                self._wholes.append(item)
            if issubclass(type(item), set) and any(map(answers_by_code, kept)):
                self._answered.add(identity(item))

    def _lying(self, item: Any) -> None:
        """Where its items are, of a set."""
        if issubclass(type(item), set) and (there := places(item)) is not None:
            self._sets.append((item, there))

    def _tuple(self, item: Iterable[Any]) -> None:
        self._look(item)
        self._wholes.append(item)

    def _object(self, item: Any) -> None:
        cls: Any = type(item)
        if identity(cls) not in self._shows:
            self._shows[identity(cls)] = (
                slots_of(cls), made_in_c(cls), not is_in_python(cls), has_table(cls), going_with(cls),
            )  # fmt: skip
        slots, made, in_c, tabled, goes = self._shows[identity(cls)]
        table, had = table_of(item) if tabled else None, None
        if type(table) is dict:
            before = self._owned(table)
            self._look(before.values())
            had = held_in(before) if self._in_c(cls, before) else None
        elif issubclass(type(table), dict):
            self._look((table,))
        self._objects.append((item, cls, table))
        at = len(self._slots)
        for slot in slots:
            self._slot(slot, item)
        if had is not None or made is not None or goes is not None:
            parts = [table, *(had or ())] if made is None else referents(item)
            parts = [part for part in parts if identity(type(part)) in CONTAINERS or part is table]
            shows: Callable[[], bool] | None = None
            if made is not None:
                shows = functools.partial(
                    all_shown, item, made, shown_in_c(item, made), self._slots[at:]
                )
            elif goes is not None:
                shows = functools.partial(says_the_same, goes, item, goes(item))
            self._of_c.append((item, had, parts, shows))
        if made is not None or (table is None and in_c):
            self._look(referents(item))
        c_alone = table is None and in_c
        if (c_alone and (says_all(cls) or says_nothing(cls))) or issubclass(cls, _PICKLE):
            self.stateful.append(item)
        if issubclass(cls, dict):  # others only say that they are one
            self._dict(item)
        elif issubclass(cls, (list, set, deque)):
            self._holder(item)
        elif issubclass(cls, tuple):  # its own way through it may do anything (`platform.uname()`)
            self._look(tuple.__iter__(item))
            self._wholes.append(item)
        elif issubclass(cls, frozenset):
            self._look(frozenset.__iter__(item))
        if identity(cls) not in self._types:
            self._home(cls)

    def _in_c(self, cls: type, table: dict[str, Any]) -> bool:
        """Whether an object with these attributes has a part that was made in C by a package."""
        known = self._of_extensions
        kinds = {identity(each): each for each in (cls, *map(type, table.values()))}
        known |= {n: is_of_an_extension(kinds[n]) for n in kinds.keys() - known.keys()}
        return any(map(known.__getitem__, kinds))

    def _error(self, item: BaseException) -> None:
        self.errors.append(item)
        self._object(item)

    def _scripted(self, item: Any) -> None:
        """A module that is run by torch's own interpreter, which has its attributes."""
        self._object(item)
        self.stateful.append(item)
        self._look((*scripted(item).values(), *item.children()))

    def _scripted_container(self, item: Any) -> None:
        """A table or a list that torch's own interpreter has."""
        self.stateful.append(item)
        self._look(scripted_items(item))

    def _row(self, item: Any) -> None:
        """A record of NumPy's, with what it is a part of."""
        self.stateful.append(item)
        self._look((item.base, *(item[name] for name in item.dtype.names or ())))

    def _owned(self, table: dict[Any, Any]) -> dict[Any, Any]:
        """What is in a dictionary that is looked at with what has it."""
        self._seen.add(identity(table))
        self._tables.append((table, before := dict.copy(table)))
        return before

    def _between_threads(self, item: Any) -> None:
        """What threads hand each other things by, or wait for each other; not who waits."""
        table, cls = vars(item), type(item)
        self._slots.append((KIND, item, cls))
        self._owned(table)
        parts = [table, *(v for v in table.values() if any(type(v) is each for each in _IN_ORDER))]
        self._common.append(
            (item, [(p, held_by(p)) for p in parts if p is not table.get(_WAITERS)])
        )
        self._look(value for name, value in table.items() if name != _WAITERS)
        self._named_slots(item)
        if identity(cls) not in self._types:
            self._home(cls)

    def _between_processes(self, item: Any) -> None:
        """What processes wait for each other by: who waits, or woke, is not to be taken back."""
        self._seen.update(identity(item.__dict__[n]) for n in _COUNTING if n in item.__dict__)
        self._object(item)

    def _of_threads(self, item: threading.local) -> None:
        """What threads have in one each."""
        self._look(_tables_of_threads(item))
        self._named_slots(item)
        if identity(type(item)) not in self._types:
            self._home(type(item))

    def _own_table(self, item: Any) -> None:
        """The attributes of what is looked at as another kind of thing, those that it has not yet, too."""
        table = table_of(item)
        if type(table) is dict and identity(table) not in self._seen:
            self._objects.append((item, type(item), table))  # which keeps the table with it
            self._look(self._owned(table).values())
        self._named_slots(item)

    def _named_slots(self, item: Any, *, follow: bool = True) -> None:
        """What is in the slots that classes of Python's have given it."""
        for each in type(item).__mro__:
            for slot in own_slots(each) if "__slots__" in vars(each) else ():
                self._slot(slot, item, follow=follow)

    def _compiled(self, item: Any) -> None:
        """What a compiler made of a function, which may run in Python, too."""
        self._look((getattr(item, "__wrapped__", None),))

    def _slot(self, slot: Any, item: Any, *, follow: bool = True) -> None:
        """What a descriptor gives of an object, or that it gives nothing; not what is made each time."""
        value = slot_value(slot, item)
        if are_alike(value, slot_value(slot, item)):
            self._slots.append((slot, item, value))
            self._look((value,) * follow)

    def _home(self, cls: type) -> None:
        """The code of the modules in which a class and its forward are defined is followed, but not of what
        libraries keep."""
        if not self._own:
            return
        run = kept_as(cls, "forward", cls)
        for name in (cls.__module__, getattr(run, "__module__", None)):
            if name is not None and name not in self._homes and not is_opaque(name):
                self._homes.add(name)
                self._look(self._abroad.pop(name, ()))

    def _follows(self, name: str | None, item: Any) -> bool:
        """Whether code of a module of Python's is followed: all of a person's own, and of installed
        packages the modules that the model's classes are from. What is not may be later."""
        if name is None or is_opaque(name):
            return False
        if name in self._homes or not is_installed(name):
            return True
        self._files.add(name)
        self._abroad.setdefault(name, []).append(item)
        self._seen.discard(identity(item))
        return False

    def _tensor(self, item: Tensor) -> None:
        self.tensors[identity(item)] = item
        hooks = [graded(item, name) for name in _HOOKS]
        self._look((item.__dict__, gradient(item), graded(item, "grad_fn"), *hooks))
        self._named_slots(item)
        if item.is_quantized and item.device.type != "meta":
            self._look(scales(item))

    def _node(self, item: Any) -> None:
        """What autograd knows of an operator: what somebody put there, and what came before."""
        self.history.append(item)  # torch makes another one where nobody has it
        self.stateful.append(item)
        table = table_of(item)
        self._look((item.metadata, table, getattr(item, "variable", None)))
        self._look(before for before, _ in item.next_functions)

    def _iterator(self, item: Any) -> None:
        self.iterators.append(item)
        self._look(drawn_from(item))
        waits = waiting_code(item)
        if waits is not None and self._follows(module_of(waits[1]), item):
            self._code(*waits)

    def _shared(self, item: Any) -> None:
        """What other processes have a part of: it is asked, and left as it is."""
        self.stateful.append(item)

    def _states(self, item: Any) -> None:
        """What says its own state: generators of random numbers, buffers."""
        if not getattr(item, "closed", False):
            self.stateful.append(item)
            says = ending(type(item))
            if says is not None and says(item) is False:
                self._going_on.append((item, says))
        self._look((getattr(getattr(item, "bit_generator", item), "seed_seq", None),))
        if issubclass(type(item), Context):
            self._look(item.values())
        elif issubclass(type(item), SimpleQueue):
            self._look(
                chain.from_iterable(
                    each if type(each) is list else (each,) for each in referents(item)
                )
            )
        elif made_with(type(item), "set_result"):
            with suppress(Exception):  # it has none, or an error
                self._look(
                    (item.value() if issubclass(type(item), torch._C.Future) else item._result,)
                )
            table = table_of(item)
            if (
                type(table) is dict and "_done_callbacks" in table
            ):  # one that a thread gives its result
                self._look((table["_done_callbacks"],))
                self._kept_in(item)
                return
        if behind(type(item)) is None:
            self._own_table(item)
            return
        self._kept_in(item)
        if type(table := table_of(item)) is dict:  # a program is heard through its pipes
            self._look(v for v in table.values() if issubclass(type(v), _IN_AND_OUT))

    def _kept_in(self, item: Any) -> None:
        """Of what stands for something, or goes on by itself, as threads do, what somebody keeps in it: the
        rest would make it say what is not so."""
        self._slots.append((KIND, item, type(item)))
        if type(table := table_of(item)) is dict:
            self._seen.add(identity(table))
            self._apart.append(own := Own(item, table))
            self._look(own.held())
        for each in type(item).__mro__:
            for slot in () if is_closed(each.__module__) else own_slots(each):
                self._slot(slot, item)

    def _bound(self, item: Any) -> None:
        """A method that is written in C: `items.append`."""
        if not issubclass(type(item.__self__), ModuleType):
            self._look((item.__self__,))
            if is_iterator(type(item.__self__)) or issubclass(type(item.__self__), Tensor):
                self._wholes.append(item)

    def _reference(self, item: weakref.ref[Any]) -> None:
        self._own_table(item)
        self._look((self._behind(item),))
        if type(item) in REFERENCES:
            self._wholes.append(item)

    def _behind(self, item: weakref.ref[Any]) -> Any:
        """What a weak reference leads to: that one leads to nothing is remembered."""
        found = weakref.ref.__call__(item)
        if found is None:
            self.dead.add(identity(item))
        return found

    def _stands_for(self, item: Any) -> None:
        """What another object is behind."""
        if issubclass(type(item), memoryview):
            self.stateful.append(item)
        self._look((item.obj,) if issubclass(type(item), memoryview) else _of_proxy(item))

    def _shown(self, item: Any) -> None:
        """What an object shows and does not have itself: the dictionary behind a view of it."""
        self._own_table(item)
        self._look(referents(item))

    def _module_kept(self, item: ModuleType) -> None:
        """A module of Python's that somebody keeps: its attributes, and what those hold that code names."""
        space = vars(item)
        self._spaces.append((space, dict(space)))
        self._slots.append((KIND, item, type(item)))
        self._named_slots(item)
        if self._follows(item.__name__, item):
            self._look(self._wanted.offered({name: [value] for name, value in space.items()}))
            self._look(space[name] for name in _ANSWERS & space.keys())
        elif self._own and is_installed(item.__name__) and not is_opaque(item.__name__):
            self._lends.append(item)

    def _array(self, item: Any) -> None:
        """What has memory: arrays of NumPy, and what C knows of."""
        self.arrays.append(item)
        behind = getattr(item, "base", None)  # of another kind it is a file, say, that is mapped
        self._look((table_of(item),))
        self._named_slots(item)
        if issubclass(type(item), ctypes.py_object):
            self._look(referents(item))
        self._look(
            b for b in (behind,) if issubclass(type(b), Tensor) or is_numpys(type(b), "ndarray")
        )
        if getattr(getattr(item, "dtype", None), "hasobject", False):
            self._look(item.flat)

    def _function(self, item: FunctionType) -> None:
        space = item.__globals__
        self.tells_fakes |= space.get("__name__") in _OF_FAKES
        says = look_at(item)
        self._functions.append((item, says))
        self._look((says[1], says[2], item.__dict__, *(item.__closure__ or ())))
        if self._follows(module_of(space), item):
            self._code(says[0], space)
            if item.__closure__:
                self._assigned_around(says[0], item.__closure__)
        elif not is_closed(item.__module__) or self._is_held(item):
            self._kept(
                *around(item)
            )  # a library made it of another, or of its own for whoever holds it

    def _is_held(self, function: FunctionType) -> bool:
        """Whether a function of a library's module is one that code which is followed may call without
        naming it."""
        of_module = function.__qualname__ == function.__name__
        return self._own and of_module and identity(function) not in self._named

    def _cell(self, item: CellType) -> None:
        self._slot(CONTENTS, item)

    def _code(self, code: CodeType, space: dict[str, Any]) -> None:
        """What some code names: globals, attributes of modules of Python's, methods."""
        (names, stored, said, places), parts = named_in(code), looked_for(code)
        if identity(space) not in self.spaces:
            self.spaces[identity(space)] = space
            self._own_space(space)
        self._codes.append((code, space))
        self.tells_fakes |= not TELLING.isdisjoint(names)
        self._assigned(stored, space)
        self._placed(places)
        self._paths += map(".".join, places)
        by_name = not names.isdisjoint(_GLOBALS) or {"modules", "__name__"} <= names
        if by_name and identity(space) not in self._seen:
            self._owned(space)
        present, within, libraries, put, read = present_in(code, names, space)
        found = [table[name] for table, name in put]
        self._kept(within, read)
        self._said |= said
        mine = self._own and not is_closed(module_of(space))
        for holder in libraries:
            self._libraries.setdefault(identity(holder), (holder, set()))[1].update(said)
            if parts and mine and is_loaded(holder) and not is_opaque(holder.__name__):
                self._looked_in.append((holder, parts))
        values: list[Any] = [
            space[name] if name in space else sys.modules.get(name) for name in present
        ]
        self._common_names = self._common_names or put_in()
        values += [self._common_names[name] for name in names & self._common_names.keys()]
        for value in values:
            if is_loaded(value):
                self._module(value, names, parts)
            elif issubclass(type(value), type):
                self._named_class(value)
                if not names.isdisjoint(BY_NAME) and identity(value) not in self._types:
                    self._class(value)
            else:
                found.append(value)
                self._named.add(identity(value))
        if "globals" in names:
            found += (value for value in space.values() if type(value) is FunctionType)
        self._look(found)
        self._look(self._wanted.add(names, parts))
        self._makes |= not (names.isdisjoint(_MAKES) or self._wanted.names.issuperset(_MAKING))
        if mine and not names.isdisjoint(_FINDING):
            self._finding(code, names, space)
        if not names.isdisjoint(_OF_LOGGERS):
            self._look(Logger.manager.loggerDict.values())

    def _finding(self, code: CodeType, names: frozenset[str], space: dict[str, Any]) -> None:
        """Code of a person's own may find what is in its module, or in any, by a name that it makes."""
        by_table = {"sys", "modules"} <= names and takes_modules(code)
        if "globals" in names or (by_table and "__name__" in names):
            self._called += all_in(space)
        if by_table or not names.isdisjoint(_FINDING - {"globals", "modules"}):
            package = space.get("__package__")
            if (package := package if type(package) is str else "") not in self._finds:
                self._finds.add(package)
                self._modules = None
                self._asked[1:] = [0] * (_ASKED - 1)  # texts may say more now

    def _own_space(self, space: dict[str, Any]) -> None:
        """The globals of a module of a person's own, whoever sets them and by whatever name."""
        name = module_of(space)
        known = type(name) is not str or is_closed(name) or identity(space) in self._globals
        if not known and not is_unready(space):
            self._globals[identity(space)] = space, dict(space)

    def _assigned(self, stored: Iterable[tuple[str, ...]], space: dict[str, Any]) -> None:
        """What some code with these globals assigns."""
        for root, *path in stored:
            if not path:
                self._names.append((space, root, space.get(root, MISSING)))
                continue
            if (holder := space.get(root, sys.modules.get(root))) is None:
                continue
            for part in path[:-1]:  # what would import something, or compute it, is not there yet
                holder = getattr_static(holder, part, None)
            if self._is_set_by_code(holder, path[-1]):
                self._look((holder,))
            elif is_loaded(holder) or not issubclass(type(holder), ModuleType):
                with suppress(
                    Exception
                ):  # what a library has in the place of what is not there yet
                    found = attribute_of(holder, path[-1])
                    self._attributes.append((holder, path[-1], found))

    def _assigned_around(self, code: CodeType, closure: Iterable[CellType]) -> None:
        """What some code assigns to attributes of what is behind variables of an enclosing function."""
        held = {n: slot_value(CONTENTS, c) for n, c in zip(code.co_freevars, closure, strict=True)}
        paths = (path for path in named_in(code).assigned if len(path) > 2 and path[0] in held)
        self._assigned(paths, held)

    @staticmethod
    def _is_set_by_code(holder: Any, name: str) -> bool:
        """Whether code of somebody's own runs where an attribute is set: what that changes is found with
        the object. To ask for the attribute would run some, too."""
        cls = type(holder)
        if is_closed(cls.__module__) and not issubclass(cls, torch.nn.Module):
            return False
        found = type(kept_as(cls, name))
        sets = type(cls.__setattr__) is FunctionType and not issubclass(cls, type)
        return sets or found is property or type(getattr(found, "__set__", None)) is FunctionType

    def _placed(self, places: Iterable[tuple[str, ...]]) -> None:
        """What some code says by a text where it is, for others to set it: an attribute of a module or of a
        class."""
        for root, *path, name in places:
            holder: Any = sys.modules.get(root)
            for part in path:
                holder = getattr_static(holder, part, None)
            of = is_loaded(holder) or issubclass(type(holder), type)
            if of and not self._is_set_by_code(holder, name):
                self._attributes.append((holder, name, attribute_of(holder, name)))

    def _kept(
        self,
        within: Iterable[tuple[dict[str, Any], str | None]],
        read: Iterable[tuple[dict[str, Any], str]],
    ) -> None:
        """What code may change in libraries, and what it may be given there."""
        for table, each in within:
            key = identity(table if each is None else table.get(each))
            if key not in self._told:
                self._told.add(key)
                self._within(table, each)
        self._read |= {(identity(table), name): table for table, name in read}

    def _within(self, table: dict[str, Any], name: str | None) -> None:
        """Something that code names of a library: a container, an object, a class, or a function, and what
        that assigns; the whole module where there is no name."""
        value: Any = table if name is None else table.get(name)
        if name is None or value is sys.modules:
            self._spaces.append((value, dict(value)))
        elif type(value) is FunctionType:
            at = len(self._names)
            self._assigned(named_in(value.__code__).assigned, value.__globals__)
            self._last += self._names[at:]
            del self._names[at:]
        elif issubclass(type(value), type) and not is_opaque(value.__module__):
            self._for_all.append(value)
        elif issubclass(type(value), type):
            self._class(value)
        elif (
            type(value) is dict and identity(value) not in self._seen
        ):  # what it has in there is its own
            self._owned(value)
            if not CONTAINERS.isdisjoint(kinds_of(value.values())) or name == "loggerDict":
                held = [
                    v
                    for v in value.values()
                    if identity(type(v)) in CONTAINERS or issubclass(type(v), Logger)
                ]
                self._theirs.append(held)
            self._read[identity(table), name] = table
        else:
            torchs = (type(value).__module__ or "").startswith("torch.")
            self._theirs.append((value, table_of(value) if torchs else None))

    def beside(self) -> Reach:
        """What is beside what was found, and nothing says that the forward can reach it: nothing yet."""
        empty: dict[str, Any] = {name: [] for name in LISTS}
        found = replace(self, tensors={}, _globals={}, spaces={}, staying=set(), _copied=0, **empty)
        found._seen, found._met = (
            self._seen.copy(),
            self._met.copy(),
        )  # what is imported may lead there
        return found

    def add_kept(self, modules: Iterable[str]) -> None:
        """What these modules of a person's own keep beside what was found: somebody else may change it."""
        with torch._C.DisableTorchFunctionSubclass():
            self._shallow(*chain.from_iterable(map(self._kept_by, modules)))

    def _kept_whole(self) -> Iterator[str]:
        """The files of installed packages of which all is remembered, whoever changes it: those of which
        code that is followed names something, or whose classes and functions it has; not where another
        thread may change what is its own."""
        busy = packages_at_work()
        for name in self._files:
            known = name in sys.modules and is_installed(name) and not is_opaque(name)
            if known and name.partition(".")[0] not in busy:
                yield name

    def _kept_by(self, name: str) -> Iterator[_Kept]:
        """What a module keeps: all of its globals, what is in those, what its functions have, and what its
        classes do."""
        module = sys.modules.get(name)
        space = table_of(module)
        if type(space) is not dict or not is_loaded(module) or identity(space) in self._met:
            return
        self._met.add(identity(space))
        theirs, held = is_closed(name), _within(space)
        if theirs:
            self._spaces.append((space, dict(space)))
            moving = {identity(value) for value in held if is_iterator(type(value))}
            named = space.items() if moving else ()
            self._last += [(space, n, v) for n, v in named if identity(v) in moving]
        else:
            self._own_space(space)
        home, depth = (name, 3) if theirs else (_OWN, 6)
        yield held, home, depth
        for value in list(space.values()):
            if type(value) is FunctionType:
                yield self._with_function(value), home, depth
            elif issubclass(type(value), type) and value.__module__ == name:
                yield from self._kept_for_all(value)

    def _with_function(self, function: FunctionType) -> list[Any]:
        """What a function has: attributes that somebody gave it, defaults, and what it closes over."""
        held: list[Any] = [*(function.__defaults__ or ())]
        held += (function.__kwdefaults__,) if function.__kwdefaults__ else ()
        if table := function.__dict__:
            held.append(table)
        elif not is_closed(function.__module__):
            self._empty.append(table)
            self._copied += 1
        for cell in function.__closure__ or ():
            self._slot(CONTENTS, cell, follow=False)
            held.append(slot_value(CONTENTS, cell))
        return held

    def _kept_for_all(self, cls: type) -> Iterator[_Kept]:
        """What a class has, what is in the containers there, and the classes within it."""
        if identity(cls) in self._types or identity(cls) in self._met:
            return  # the model's classes are below it, or it was met before
        self._met.add(identity(cls))
        members, home = dict(vars(cls)), cls.__module__
        self._classes.append((cls, members))
        if not is_closed(home):
            parts = chain.from_iterable(map(parts_of, members.values()))
            methods = (part for part in parts if type(part) is FunctionType)
            yield chain.from_iterable(map(self._with_function, methods)), _OWN, 3
        if not _ALONE.issuperset(kinds_of(members.values())):
            yield _within(members), home if is_closed(home) else _OWN, 3
        for value in members.values():
            if issubclass(type(value), type) and value.__module__ == home:
                yield from self._kept_for_all(value)

    def _read_there(self, table: dict[str, Any], name: str) -> None:
        """What a library's module, or its class, has under a name, and gives somebody who changes that."""
        value: Any = table.get(name)
        home = table.get("__name__", table.get("__module__"))
        if type(home) is not str or is_opaque(home) or value is sys.modules:
            return
        of: Any = value.__self__ if identity(type(value)) in METHODS_IN_C else value
        if is_iterator(type(of)):  # a run has a copy in its place
            self._last.append((table, name, value))
            self._look((value,))
        known = identity(value) in self._seen and identity(type(value)) in CONTAINERS
        self._shallow((held_by(value) if known else (value,), None, 6))

    def _shallow(self, *kept: _Kept) -> None:
        """What modules and classes keep: things, with what is in containers and in objects of the classes
        of a package, or of any that are neither torch's nor Python's, and in those that these have, but so
        many levels deep. What is nearer to any of them comes first."""
        waiting = list(kept)
        while waiting and self._copied < _MOST_KEPT:
            ahead: list[_Kept] = []
            for items, home, depth in waiting:
                held: list[Any] = []
                wrapped = identity(FunctionType) if home == _OWN else None
                for item in items:
                    kind = identity(type(item))
                    if identity(item) in self._seen or (kind in _ALONE and kind != wrapped):
                        continue
                    try:
                        found = self._one_level(item, home)
                    except Exception:  # noqa: BLE001  (objects may answer as they like)
                        self.complete = False
                        continue
                    held += found if len(found) < _MANY else ()
                    self._copied += len(found) + 1
                if depth and held:
                    ahead.append((held, home, depth - 1))
            waiting = ahead

    def _one_level(self, item: Any, home: str | None) -> Collection[Any]:
        """Something that a library keeps, and what is in it."""
        cls = type(item)
        if issubclass(cls, tuple):
            held = list(tuple.__iter__(item))
            return () if LEAVES.issuperset(kinds_of(held)) else held
        if issubclass(cls, weakref.ref):
            return (self._behind(item),)
        if issubclass(cls, weakref.ProxyTypes):
            return _of_proxy(item)
        if issubclass(cls, threading.local):
            return _tables_of_threads(item)
        if cls is FunctionType:
            new = identity(item) not in self._met and not is_closed(item.__module__)
            self._met.add(identity(item))
            return self._with_function(item) if new else ()
        if issubclass(cls, functools.partial):
            return (item.func, item.args, item.keywords)
        if cls is LRU and home == _OWN:
            self.caches.append((item, item.cache_info().currsize))
            return (item.__wrapped__,)
        if identity(cls) in _METHODS:
            return () if issubclass(type(item.__self__), ModuleType) else (item.__self__,)
        if identity(cls) not in self._wholly:
            self._known.append(cls)
            self._wholly[identity(cls)] = _is_more(cls)
        of = cls.__module__
        own = are_related(of, home) if home else not (is_closed if home == _OWN else is_opaque)(of)
        if self._wholly[identity(cls)]:
            self._look(
                ()
                if home == _OWN
                else (item,)
                if own or is_opaque(of) or issubclass(cls, _VALUED)
                else ()
            )
            return ()
        held, base = [], next((c for c in _HOLDERS if issubclass(cls, c)), None)
        if cls is ContextVar:
            self._seen.add(identity(item))
            held = [item.get(MISSING), _default_of(item)]
            self._contexts.append((item, held[0]))
        elif base is not None:
            if self._copied + base.__len__(item) > _MOST_KEPT:  # a copy takes long
                return ()
            self._seen.add(identity(item))
            held = held_by(item)
            found: list[Any] = self._tables if base is dict else self._holders
            found.append((item, contents(item)))
            self._lying(item)
        if own or of in _HOLDING or base not in (None, cls):
            at = len(self._slots)
            self._named_slots(item, follow=False)
            held += (value for *_, value in self._slots[at:])
            table = None if issubclass(cls, (type, ModuleType)) else table_of(item)
            if type(table) is dict and identity(table) not in self._seen:
                held += self._owned(table).values()
        return held

    def _module(self, module: ModuleType, names: frozenset[str], parts: frozenset[str]) -> None:
        """Of a module of Python's, what some code names."""
        name, space = module.__name__, vars(module)
        if is_opaque(name):
            return
        if name not in self._homes and is_installed(name):
            if any(n[:2] != "__" and not is_loaded(space[n]) for n in names & space.keys()):
                self._files.add(name)
            return
        self._own_space(space)
        for name in (names | _ANSWERS) & space.keys() | with_parts(space, parts):
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

    def _held_class(self, cls: type) -> None:
        """A class that an object holds."""
        if self._own and is_closed(cls.__module__) and not cls.__flags__ & IMMUTABLE:
            self._lends.append(cls)
        self._named_class(cls)

    def _class(self, cls: type) -> None:
        """The attributes of a class and of those above it, and the methods that are wanted."""
        for each in cls.__mro__:
            if identity(each) in self._types:
                continue
            self._types.add(identity(each))
            if type(each) is not type:
                self._class(type(each))
            self._files.add(each.__module__)
            if each.__flags__ & IMMUTABLE:
                continue
            self._slots += [(slot, each, slot.__get__(each)) for slot in _OF_CLASSES]
            members, methods, others, called = members_of(each)
            self._look(registered(each))
            self._classes.append((each, members))
            if methods:
                self._look(self._wanted.offered(methods))
            self._look(others)
            self._called += called

    def _method(self, item: MethodType) -> None:
        self._look((item.__self__, item.__func__))
        if issubclass(type(item.__self__), Tensor):
            self._wholes.append(item)

    def _partial(self, item: functools.partial[Any]) -> None:
        self._own_table(item)
        says = said_by(item)
        self._partials.append((item, says))
        self._look(says)

    def _cache(self, item: Any) -> None:
        self.caches.append((item, item.cache_info().currsize))
        self._look((item.__wrapped__,))
        linked = item.cache_parameters()["maxsize"] is not None
        self._look(x for x in referents(item) if not (linked and is_of_links(x)))

    def _context(self, item: ContextVar[Any]) -> None:
        value = item.get(MISSING)
        self._contexts.append((item, value))
        self._look((value, _default_of(item)))

    @property
    def launches(self) -> bool:
        """Whether anything found runs programs on an accelerator, by the addresses of tensors."""
        of = (cls.__module__ for cls in self._known)
        return not self._wanted.names.isdisjoint(_LAUNCHING) or any(
            type(name) is str and name.partition(".")[0] in _OF_LAUNCHING for name in of
        )

    @property
    def awaited(self) -> list[Any]:
        """The queues at which a thread waits for what somebody puts there."""
        queues = (item for item, _ in self._common if issubclass(type(item), Queue))
        return [item for item in queues if item.not_empty._waiters]

    @property
    def tensor_classes(self) -> list[type]:
        """The classes of tensors that were found, whether there is a tensor of them or not."""
        return [cls for cls, _ in self._classes if issubclass(cls, Tensor)]

    @property
    def collects(self) -> bool:
        """Whether code that is followed may have Python look for rubbish."""
        return {"gc", "collect"} <= self._wanted.names

    @property
    def sets_classes(self) -> bool:
        """Whether code that is followed may set the class of an object."""
        return "__class__" in self._said

    @property
    def reads_memory(self) -> bool:
        """Whether code that is followed reads memory by its address."""
        return self.calls_c or reads_memory(self._wanted.names)

    def add_tables(self, modules: Iterable[torch.nn.Module]) -> None:
        """Remember what modules hold, where not all within reach could be looked at."""
        for module in modules:
            held = (
                module.__dict__,
                *(v for v in module.__dict__.values() if issubclass(type(v), dict)),
            )
            self._tables += [(t, entries_of(t)) for t in held]
            self._holders += [(v, v[:]) for v in module.__dict__.values() if type(v) is list]
            found = [v for t in held[1:] if identity(t) not in self.replaced for v in t.values()]
            self.tensors |= {identity(t): t for t in found if issubclass(type(t), Tensor)}


def reads_memory(names: AbstractSet[str]) -> bool:
    """Whether code that names these goes to memory by its address."""
    binds = "onnxruntime" in sys.modules and not names.isdisjoint(_BINDING)
    return binds or not names.isdisjoint(_READING)


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
    **dict.fromkeys(LEAVES),
    **dict.fromkeys(ids_of((dict, OrderedDict)), Reach._dict),
    identity(defaultdict): Reach._keyed,
    **dict.fromkeys(ids_of((list, set, deque)), Reach._holder),
}
"""How objects of Python's own classes are looked at."""


def _known_kind(cls: type) -> Callable[[Reach, Any], None] | None:
    """The same as `_kind_of` says; of classes of packages it is known from the first time."""
    found = _KINDS.of(cls)
    if found is MISSING:
        found = _kind_of(cls)
        if cls.__flags__ & IMMUTABLE or is_closed(cls.__module__):
            _KINDS.keep(cls, found)
    return found  # type: ignore[no-any-return]


_KINDS = OfClasses()


def _kind_of(cls: type) -> Callable[[Reach, Any], None] | None:
    """How objects of a class are looked at; None where they hold nothing."""
    if issubclass(cls, OF_WORKERS):
        return Reach._shared
    if cls is tuple or cls is frozenset:
        return Reach._tuple
    if issubclass(cls, BaseException):
        return Reach._error
    if is_a_runners(cls.__module__) and not issubclass(cls, torch.nn.Module):
        return None  # it would lead to all tests, and to what they keep
    if is_iterator(cls):
        return Reach._iterator
    if issubclass(cls, Tensor):
        return Reach._tensor
    if made_with(cls, "next_functions", "metadata"):
        return Reach._node
    if issubclass(cls, torch.UntypedStorage):
        return Reach._array
    if issubclass(cls, torch.jit.ScriptModule):
        return Reach._scripted
    if issubclass(cls, SCRIPTED):
        return Reach._scripted_container
    if is_numpys(cls, "void"):
        return Reach._row
    if cls is FunctionType:
        return Reach._function
    if cls is MethodType:
        return Reach._method
    if issubclass(cls, functools.partial):
        return Reach._partial
    if cls is LRU:
        return Reach._cache
    if issubclass(cls, type):
        return Reach._held_class
    if cls is CellType:
        return Reach._cell
    if cls is ContextVar:
        return Reach._context
    if issubclass(cls, (memoryview, *weakref.ProxyTypes)):
        return Reach._stands_for
    if issubclass(cls, _SHOWING) or is_numpys(cls, "ufunc"):
        return Reach._shown
    if issubclass(cls, ModuleType):
        return None if by_code(cls) else Reach._module_kept
    if issubclass(cls, threading.Thread):
        return Reach._kept_in
    if issubclass(cls, threading.local):
        return Reach._of_threads
    if any(c.__module__ in ("threading", "queue") for c in cls.__mro__) and has_table(cls):
        return Reach._between_threads
    if any((c.__name__, c.__module__) == _SHARED_CONDITION for c in cls.__mro__) and has_table(cls):
        return Reach._between_processes
    if issubclass(cls, MEMORY):
        return Reach._array
    if (
        issubclass(cls, _STATEFUL)
        or made_with(cls, "set_result")
        or hashes_bytes(cls)
        or is_numpys(cls, "BitGenerator", "Generator", "RandomState", "SeedSequence")
        or is_decimals(cls)
        or (cls.__name__, cls.__module__) == SHARED_LOCK
        or behind(cls) is not None
    ):
        return Reach._states
    if cls is BuiltinFunctionType or cls is MethodWrapperType:
        return Reach._bound
    if issubclass(cls, weakref.ref):
        return Reach._reference
    if is_numpys(cls, "ndarray") or any(ON_GPU in vars(c) for c in cls.__mro__):
        return Reach._array
    if is_numpys(cls, *ITERATE):
        return Reach._object
    if is_of_a_compiler(cls.__module__ or ""):
        return Reach._compiled
    if issubclass(cls, (dict, list, set, deque, tuple)) or keeps(cls):
        return Reach._object
    return None


def _is_more(cls: type) -> bool:
    """Whether objects of a class are more than attributes, and what is in containers: they have values, or
    draw them, go on by themselves, stand for something, are there for others or have a part in C."""
    return (
        issubclass(cls, (*_VALUED, *_HANDING_ON))
        or is_iterator(cls)
        or is_numpys(cls, "ndarray", "BitGenerator", "Generator", "RandomState")
        or (not is_opaque(cls.__module__) and (
            issubclass(cls, threading.Thread) or behind(cls) is not None or made_in_c(cls) is not None
        ))
    )  # fmt: skip


ON_GPU = "__cuda_array_interface__"
"""What arrays on a GPU of other libraries (CuPy, Numba) tell of their memory by."""


def _tables_of_threads(item: threading.local) -> list[dict[str, Any]]:
    """What this thread has in one, unless code of a person's runs where it is the first to ask; and where
    there is no other that does anything, what those of pools have. Python has a table of these that keeps
    them alive, and is not to be touched."""
    mine = []
    if type(item).__init__ is object.__init__:
        mine.append(threading.local.__getattribute__(item, "__dict__"))
    held = (list(part.items()) for part in referents(item) if type(part) is dict)
    found = [(key, each) for part in held for key, each in part if type(each) is dict]
    if hosted():
        return [each for _, each in found]
    kept = ctypes.cast(_of_this_thread(), ctypes.py_object).value
    keys = set(map(identity, map(_led_to, kept.values())))  # until Python 3.12
    return mine or [each for key, each in found if identity(_led_to(key)) in keys]


_of_this_thread: Any = ctypes.pythonapi.PyThreadState_GetDict
_of_this_thread.restype = ctypes.c_void_p
"""The place of the dictionary in which Python has what is this thread's own, which it lends."""


def _led_to(item: Any) -> Any:
    return item() if type(item) is weakref.ref else item


def _of_proxy(item: Any) -> tuple[Any, ...]:
    """What a weak proxy stands for, if that is there."""
    try:
        return (item.__repr__.__self__,)
    except ReferenceError:
        return ()


def _within(space: Mapping[str, Any]) -> list[Any]:
    """What may hold something among the globals of a module or the attributes of a class, but for what
    Python has there itself."""
    return [
        value
        for name, value in space.items()
        if identity(type(value)) not in _ALONE
        and not (type(name) is str and name[:2] + name[-2:] == "____")
    ]


def _home_of(item: Any) -> Any:
    """The name of the module that a class is from, or that one is."""
    return item.__module__ if issubclass(type(item), type) else item.__name__


def _whose_globals(table: dict[Any, Any]) -> ModuleType | None:
    """The module of Python's of which a dictionary is the globals."""
    name = table.get("__name__") if type(table) is dict and "__spec__" in table else None
    module = sys.modules.get(name) if type(name) is str else None
    return module if is_loaded(module) and vars(module) is table else None


_WAITERS = "_waiters"


def _default_of(variable: ContextVar[Any]) -> Any:
    """What a context variable says where nobody has set it, which it tells in a context without any."""
    try:
        return Context().run(variable.get)
    except LookupError:
        return MISSING
