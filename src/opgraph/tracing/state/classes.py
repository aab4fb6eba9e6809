"""What is known of classes: what made them, what their objects hold, and what these say of it."""

from __future__ import annotations

import builtins
import ctypes
import logging
import os
import sys
import weakref
from collections.abc import Mapping
from inspect import BoundArguments
from mmap import mmap
from types import (
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    TracebackType,
)
from typing import Any

import torch
from torch.utils._pytree import SUPPORTED_NODES

from opgraph.record.identity import identity
from opgraph.tracing.state.code import looked_for
from opgraph.tracing.state.holding import LEAVES, MISSING, has_table, ids_of, same_entries, table_of
from opgraph.tracing.state.packages import (
    are_related,
    home_of,
    is_closed,
    is_of_a_compiler,
    is_opaque,
    parts_of,
)

_CLOSED = frozenset({"opgraph", "importlib", "_frozen_importlib", "_frozen_importlib_external", "abc",
                     "_abc", "typing", "inspect", "_weakref"})  # fmt: skip
"""Packages whose objects are their own business."""
MEMORY = (ctypes._SimpleCData, ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._Pointer, mmap)
"""What has memory of a size of its own, which it lets others write to."""
_UNWANTED = frozenset(
    "__init__ __new__ __post_init__ __init_subclass__ __repr__ __str__ __reduce__ "
    "__reduce_ex__ __getstate__ __setstate__ __deepcopy__ __copy__ __del__ __dir__ __sizeof__ "
    "__format__".split()
)
"""Methods that Python calls by itself, and not in a forward that does not name the class."""


class OfClasses:
    """What is known of classes, as long as they are there."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[type], Any]] = {}

    def of(self, cls: type) -> Any:
        known = self._known.get(identity(cls))
        return MISSING if known is None else known[1]

    def keep(self, cls: type, value: Any) -> None:
        key, known = identity(cls), self._known
        known[key] = weakref.ref(cls, lambda _: known.pop(key, None)), value


def scripted(module: Any) -> dict[str, Any]:
    """What torch's interpreter has as the attributes of a module that it runs."""
    kind = module.__dict__.get("_concrete_type")
    names = () if kind is None else kind.get_attributes()
    return {name: module._c.getattr(name) for name in names}


SCRIPTED = torch._C.ScriptDict, torch._C.ScriptList
"""Containers of its own."""


def scripted_items(container: Any) -> list[Any]:
    """What is in one of these; of a table, pairs."""
    return list(container.items() if isinstance(container, SCRIPTED[0]) else container)


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
    compare by what is in them do, and note their hash when they are asked for it; what calls something by a
    name notes at its first call how."""
    return cls.__module__ not in ("operator", "_operator") and (
        (
            cls.__module__.partition(".")[0] in sys.stdlib_module_names
            or is_numpys(cls, *ITERATE)
            or (made_with(cls, "__next__") and made_in_c(cls) is not None)
        )
        and cls.__hash__ in (object.__hash__, None)
        and cls.__basicsize__ > object.__basicsize__
        and not cls.__itemsize__
        and not is_in_python(cls)
    )


ITERATE = ("flatiter", "nditer", "broadcast")


def hashes_bytes(cls: type) -> bool:
    """Whether objects of a class are fed with bytes, and say in a few what they got."""
    return made_with(cls, "update", "digest", "block_size")


def made_with(cls: type, *names: str) -> bool:
    """Whether a class, or one above it, that was made in C or by a library of no model's has all of these:
    what those of others have is among the attributes of their objects."""
    return any(
        all(name in vars(c) for name in names) and (is_opaque(c.__module__) or not is_in_python(c))
        for c in cls.__mro__
    )


def is_numpys(cls: type, *names: str) -> bool:
    """Whether a class is NumPy's of one of these names, or below it."""
    return any(
        c.__name__ in names and c.__module__.partition(".")[0] == "numpy" for c in cls.__mro__
    )


def keeps(cls: type) -> bool:
    """Whether objects of a class can hold what a forward puts there, and Python can see it: not those that
    torch and NumPy made in C, or that are of the machinery of torch (`torch._dynamo`), which whoever traces
    uses. What they have in a part of a package that is for everybody (`torch.utils.data._utils`) a model
    may hold between two calls."""
    top, _, rest = (cls.__module__ or "").partition(".")
    if issubclass(cls, (torch.nn.Module, logging.Handler, BoundArguments)):
        return True
    if top in ("torch", "numpy"):
        return not rest.startswith("_") and is_in_python(cls)
    if top in sys.stdlib_module_names and is_in_python(
        cls
    ):  # `ABCMeta` says to be where it makes classes
        top = top if cls.__name__ in vars(sys.modules.get(cls.__module__, builtins)) else ""
    return not (top in _CLOSED or is_of_a_compiler(top) or identity(cls) in _OWN)


def is_in_python(cls: type) -> bool:
    """Whether a class was written in Python: its objects have a dictionary, or slots by name. One that a
    package made in C may show a dictionary in its own way (wrapt's, that of what it stands for)."""
    return any(
        "__slots__" in vars(c) or ("__dict__" in vars(c) and not _shows_another(c))
        for c in cls.__mro__[:-1]
    )


def _shows_another(cls: type) -> bool:
    shown = vars(cls)["__dict__"]
    return (
        type(shown) is GetSetDescriptorType
        and not is_opaque(cls.__module__)
        and _functions_of(shown)[0] != _functions_of(vars(_WithDictionary)["__dict__"])[0]
    )


class _WithDictionary:
    """A class that was written in Python."""


def is_of_an_extension(cls: type) -> bool:
    """Whether a class, or one above it, was made in C by a package, or stands for what is in C."""
    return issubclass(cls, (*MEMORY, ctypes._CFuncPtr)) or any(  # type: ignore[attr-defined]
        not is_in_python(c) and not is_opaque(c.__module__) for c in cls.__mro__
    )


_OWN = frozenset(ids_of((object, logging.Manager, type(os.environ), TracebackType, FrameType)))
"""Classes whose objects lead to all of the process, or to nothing, or which `process` knows."""
IMMUTABLE = 1 << 8
"""The flag of classes whose attributes cannot be set."""
_MEMBERS = OfClasses()
"""What classes of libraries hold, as long as it is the same, and nobody else put something there."""


def members_of(cls: type) -> tuple[dict[str, Any], Mapping[str, list[Any]], list[Any], list[Any]]:
    """The attributes of a class; its methods by name; its other attributes, with the methods that Python
    calls by itself; and those of its methods that a library may call whose class it is below. What
    functions a library of no model's has in its own classes is left out."""
    known: Any = _MEMBERS.of(cls)
    if known is MISSING or not same_entries(known[0], cls.__dict__):
        methods: dict[str, list[Any]] = {}
        others: list[Any] = []
        called: list[Any] = []
        opaque, closed = is_opaque(cls.__module__), is_closed(cls.__module__)
        above = [_called_by(c) for c in _above(cls)]
        for name, value in cls.__dict__.items():
            for part in parts_of(value):
                if type(part) is not FunctionType:
                    closed = closed and is_closed(type(part).__module__)
                    others += () if identity(type(part)) in LEAVES else (part,)
                    continue
                home = home_of(part)
                closed = closed and is_closed(home)
                if opaque and is_opaque(home):
                    continue
                if name.startswith("__") and name not in _UNWANTED:
                    others.append(part)
                    continue
                methods.setdefault(name, []).append(part)
                if not name.startswith("__") and _is_called(name, above):
                    called.append(part)
        known = dict(cls.__dict__), methods, others, called
        if closed:
            _MEMBERS.keep(cls, known)  # others come and go
    return known  # type: ignore[no-any-return]


def _above(cls: type) -> list[type]:
    """Classes of libraries of which a class is a special case, and whose code calls its methods."""
    above = [c for c in cls.__mro__[1:-1] if is_closed(c.__module__)]
    return [c for c in above if not are_related(c.__module__, cls.__module__)]


def _called_by(cls: type) -> tuple[frozenset[str], tuple[str, ...]]:
    """The names of the methods of a library's class, which its code may call where classes below it have
    others; and how those begin that it calls by a name which it makes (`visit_Name`)."""
    known: Any = _CALLED_BY.of(cls)
    if known is MISSING:
        functions = (p for value in vars(cls).values() for p in parts_of(value))
        codes = [f.__code__ for f in functions if type(f) is FunctionType]
        texts = {t for code in codes if looked_for(code) for t in code.co_consts if type(t) is str}
        known = frozenset(vars(cls)), tuple(t for t in texts if t.isidentifier() and t[-1] == "_")
        _CALLED_BY.keep(cls, known)
    return known  # type: ignore[no-any-return]


_CALLED_BY = OfClasses()


def _is_called(name: str, above: list[tuple[frozenset[str], tuple[str, ...]]]) -> bool:
    return any(name in names or name.startswith(begins) for names, begins in above)


def registered(cls: type) -> tuple[Any, ...]:
    """The functions by which pytree takes objects of a class apart, and makes them."""
    if len(_REGISTERED) != len(SUPPORTED_NODES):
        _REGISTERED.clear()
        _REGISTERED.update((identity(kind), node) for kind, node in list(SUPPORTED_NODES.items()))
    node = _REGISTERED.get(identity(cls))
    return () if node is None else (node.flatten_fn, node.unflatten_fn)


_REGISTERED: dict[int, Any] = {}


def slots_of(cls: Any) -> tuple[Any, ...]:
    """The descriptors of what objects of a class have beside their dictionary: slots, and what C
    shows and lets be set: the rest it may compute when it is asked for, for long, and warn."""
    if issubclass(cls, BaseException):
        found = [vars(BaseException)[name] for name in _OF_ERRORS]
    else:
        found = []
    for each in cls.__mro__:
        if each is not BaseException:
            found += own_slots(each)
    return tuple(found)


def own_slots(cls: type) -> list[Any]:
    """Those of a class itself; of packages' they are known from the first time. They lead to the class, and
    so to all that its code can reach: nobody keeps those of others."""
    known: Any = _SLOTS.of(cls)
    if known is MISSING:
        known = [d for name, d in vars(cls).items() if issubclass(type(d), _DESCRIPTORS)
                 and name not in ("__dict__", "__weakref__", "__class__")
                 and not _only_gives(d)]  # fmt: skip
        if cls.__flags__ & IMMUTABLE or is_closed(cls.__module__):
            _SLOTS.keep(cls, known)
    return known  # type: ignore[no-any-return]


_SLOTS = OfClasses()
_OF_ERRORS = ("args", "__cause__", "__context__", "__traceback__", "__suppress_context__")
"""The last is set with the second."""
_DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType)
_POINTER = ctypes.sizeof(ctypes.c_void_p)


def _only_gives(slot: Any) -> bool:
    """Whether a descriptor of C has a function that gets and none that sets (`PyGetSetDef`): Python says so
    only where somebody sets it."""
    return type(slot) is GetSetDescriptorType and not _functions_of(slot)[1]


def _functions_of(slot: GetSetDescriptorType) -> tuple[int | None, int | None]:
    """Where the functions of such a descriptor are that get and set."""
    at = id(slot) + object.__basicsize__ + 3 * _POINTER  # its class and its two names come before
    found = ctypes.c_void_p.from_address(at).value
    if found is None:
        return None, None
    gets, sets = (ctypes.c_void_p.from_address(found + n * _POINTER) for n in (1, 2))
    return gets.value, sets.value


def has_part_in_c(value: Any) -> bool:
    """Whether an object, or one of its attributes, is of a class that a package made in C."""
    table = table_of(value) if has_table(type(value)) else None
    values = table.values() if type(table) is dict else ()
    return any(map(is_of_an_extension, (type(value), *map(type, values))))


def made_in_c(cls: type) -> type | None:
    """The first of a class and those above it that a package made in C, and that has memory there."""
    for each in cls.__mro__:
        if not is_in_python(each) and not is_opaque(each.__module__):
            return each if each.__basicsize__ > object.__basicsize__ else None
    return None
