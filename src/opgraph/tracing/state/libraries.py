"""What code that is followed may change in libraries."""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from inspect import getmro
from itertools import chain, repeat
from logging import Logger
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any, TypeVar

import torch

from opgraph.record.identity import identity
from opgraph.tracing.state.classes import IMMUTABLE
from opgraph.tracing.state.code import (
    BY_NAME,
    FILL,
    KNOWN,
    fills,
    fills_any,
    named_in,
    opens_dictionary,
    sets_by_name,
)
from opgraph.tracing.state.holding import (
    CONTAINERS,
    CONTENTS,
    LEAVES,
    LRU,
    has_table,
    ids_of,
    is_decimals,
    is_loaded,
    kept_as,
    slot_value,
    table_of,
)
from opgraph.tracing.state.packages import are_related, is_closed, is_opaque, is_put, parts_of

_T = TypeVar("_T")
_Within = list[tuple[dict[str, Any], str | None]]
_Read = list[tuple[dict[str, Any], str]]
_Found = tuple[list[str], _Within, list[Any], _Read, _Read]
_Places = list[tuple[dict[str, Any] | None, str]]
_PRESENT: dict[int, tuple[CodeType, int, int, _Places, list[int], _Found]] = {}
"""Which of them there are, and where that was looked up, as long as there are as many modules and
attributes of libraries, and the same ones. The globals of the code itself, which lead to models, are not
kept with it."""


def present_in(code: CodeType, names: frozenset[str], space: dict[str, Any]) -> _Found:
    """The names in some code that are globals, or modules that are imported; what it may change in
    libraries, by their attributes and a name; those libraries, with the classes in them that it names;
    where others have put something there; and what functions of libraries may give it to change."""
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
    if len(_PRESENT) > KNOWN:
        _PRESENT.clear()
    if all(_is_lasting(table, name) for table, name in found[1]):
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
    closed = [m for m in modules if is_closed(m.__name__)]
    inside = [(vars(m), name) for m in closed for name in names & vars(m).keys()]
    values += (table[name] for table, name in inside)
    classes, changed, read = _through(values, names)
    libraries: list[Any] = [*closed, *classes]
    within += changed
    methods = [(own, name) for own in map(vars, classes) for name in own.keys() & (names | _CALLED)]
    put = [(table, name) for table, name in (*inside, *methods) if is_put(table[name])]
    inside += (
        (own, name)
        for own in map(vars, classes)
        for name in names & own.keys()
        if type(own[name]) is not FunctionType
    )
    return (present, within, libraries, put, read), places + inside + methods


_CALLED = {
    "__init__",
    "__new__",
    "__call__",
    "__enter__",
    "__exit__",
    "__getitem__",
    "__iter__",
    "__len__",
}
"""Methods that are called without being named."""


def _through(values: Iterable[Any], names: Collection[str]) -> tuple[list[type], _Within, _Read]:
    """The classes of libraries among some values; what code that names these may change by them, and by
    functions of libraries; and what it may be given."""
    classes: list[type] = []
    within: _Within = []
    read: _Read = []
    for value in values:
        if issubclass(type(value), type) and not value.__flags__ & IMMUTABLE:
            if is_closed(value.__module__):
                classes.append(value)
                own = vars(value)
                within += told_of(value, names)
                read += (at for each in _called(value, names) for at in _read_by(each))
                within += (
                    (own, n) for n in own.keys() & names if identity(type(own[n])) in CONTAINERS
                )
        elif identity(type(value)) in _CALLED_BY_NAME and is_closed(value.__module__):
            within += _kept_by(value)
            read += _read_by(value)
    return classes, within, read


def by_held(
    value: Any, texts: Collection[str], names: Collection[str]
) -> tuple[list[Any], _Within, _Read]:
    """The same of a class of a library that an object holds, or of what a module has by these `texts`."""
    if not is_loaded(value):
        return _through((value,), names)
    space = vars(value)
    inside = {name: space[name] for name in space.keys() & texts if name[:2] != "__"}
    classes, within, read = _through(inside.values(), names)
    within += ((space, n) for n, v in inside.items() if identity(type(v)) in CONTAINERS)
    return [value, *classes], within, read


def put_in() -> dict[str, Any]:
    """What has a name in all code, but for the functions and classes of Python's own."""
    return {
        name: value
        for name, value in vars(builtins).items()
        if type(value) is not BuiltinFunctionType
        and not (type(value) is type and value.__flags__ & IMMUTABLE)
    }


def _above(package: Any) -> list[str]:
    """A package, and those that it is in."""
    parts = package.split(".") if issubclass(type(package), str) and package else []
    names = (".".join(parts[: n + 1]) for n in range(len(parts)))
    return [name for name in names if name in sys.modules]


def _changeable(
    code: CodeType, names: frozenset[str], modules: list[ModuleType]
) -> Iterator[tuple[dict[str, Any], str | None]]:
    """What code that names these may change in libraries: containers, and whatever there is where it sets
    attributes by a name that it makes."""
    by_name = not names.isdisjoint(BY_NAME) and sets_by_name(code)
    by_name = by_name or ("__dict__" in names and fills(code) and opens_dictionary(code))
    for module in modules:  # which grow
        space = vars(module)
        if not is_closed(module.__name__):
            continue
        if by_name:
            yield space, None
        for name in names & space.keys():
            value = space[name]
            if is_loaded(value) and value not in modules:
                modules.append(value)
            elif (
                (
                    identity(type(value)) in CONTAINERS
                    and not name.startswith("__")
                    and (value is not sys.modules or fills(code) or not names.isdisjoint(FILL))
                )
                or (by_name and issubclass(type(value), type) and not value.__flags__ & IMMUTABLE)
                or _is_shown(value, module)
            ):
                yield space, name


def _is_shown(value: Any, module: ModuleType) -> bool:
    """Whether what a module has under a name is an object of a class of its own, or of a module below it,
    and may be changed."""
    cls = type(value)
    of, name = cls.__module__, module.__name__
    if not (are_related(of, name) or (type(of) is str and of.startswith(f"{name}."))):
        return False
    return is_decimals(cls) or (has_table(cls) and not issubclass(cls, (type, ModuleType)))


def told_of(cls: type, names: Collection[str]) -> Iterator[tuple[dict[str, Any], str | None]]:
    """What a library's class keeps for all its objects; and what its methods of these names change, and
    those that make objects and are called as they are entered and left."""
    if is_opaque(cls.__module__):
        for name in _SETTING & vars(cls).keys():
            method = vars(cls)[name]
            if type(method) is FunctionType and named_in(method.__code__).assigned:
                yield {name: method}, name
        for name in vars(cls).keys() & names:
            method = vars(cls)[name]
            if issubclass(type(method), (classmethod, staticmethod)):
                yield {cls.__name__: cls}, cls.__name__
                yield from _kept_by(method.__func__)
        return
    yield from _shared_by(cls)
    for function in _called(cls, names):
        if not is_opaque(_behind(function)[-1].__globals__.get("__name__")):
            yield from _kept_by(function)


def _shared_by(cls: type) -> Iterator[tuple[dict[str, Any], str]]:
    """A class of a library's, those above it, and its own."""
    for each in (*cls.__mro__, *getmro(type(cls))):
        if not is_opaque(each.__module__) and is_closed(each.__module__):
            yield {each.__name__: each}, each.__name__


_SETTING = frozenset({"__new__", "__init__", "__post_init__", "__init_subclass__", "__enter__",
                      "__exit__"})  # fmt: skip
_CALLED_BY_NAME = frozenset(ids_of((FunctionType, MethodType, LRU)))


def _behind(value: Any) -> list[Any]:
    """A function of a library, and those behind it: what a decorator made it of, and that of a method."""
    found = [value]
    while (type(value) is LRU or type(value) is MethodType) or (
        type(value) is FunctionType and "__wrapped__" in vars(value)
    ):
        value = value.__func__ if type(value) is MethodType else value.__wrapped__
        if any(value is each for each in found):  # it leads to itself
            break
        found.append(value)
    return found


def _is_theirs(value: Any) -> bool:
    """Whether a function, with what is in its closure and what decorators and others put on it, leads to
    nobody's code or model, as far as one can see soon."""
    waiting, seen = [value], set[int]()
    for each in waiting:
        cls = type(each)
        if identity(cls) in LEAVES or identity(each) in seen:
            continue
        seen.add(identity(each))
        if cls is FunctionType:
            home = each.__globals__.get("__name__")
            waiting += (slot_value(CONTENTS, cell) for cell in each.__closure__ or ())
            waiting += (*vars(each).values(), *(each.__defaults__ or ()))
        elif cls is LRU or cls is MethodType:
            home = None
            waiting += (each.__wrapped__,) if cls is LRU else (each.__self__, each.__func__)
        elif issubclass(cls, type):
            home = each.__module__
        else:
            home = cls.__module__
            table = table_of(each) if has_table(cls) else None
            waiting += each if cls is tuple else table.values() if type(table) is dict else ()
        its_own = home is not None and not is_closed(home)
        if its_own or issubclass(cls, (torch.Tensor, torch.nn.Module)) or len(waiting) > _SOON:
            return False
    return True


_SOON = 200
"""Things that are looked at for that."""


def _is_lasting(table: dict[str, Any], name: str | None) -> bool:
    """Whether a place is one of a library's modules or classes, or leads to nobody's model."""
    return (
        name is None
        or not table.keys().isdisjoint(("__spec__", "__module__"))
        or _is_theirs(table[name])
    )


def _remembered(look: Callable[..., _T]) -> Callable[..., _T]:
    """What is looked up of a function of libraries is known from then on."""
    known = functools.lru_cache(maxsize=4096)(look)

    def looked(function: FunctionType, *given: Any) -> _T:
        return (known if _is_theirs(function) else look)(function, *given)

    return looked


@_remembered
def _helpers(function: FunctionType) -> tuple[tuple[FunctionType, ...], tuple[Any, ...]]:
    """A function of a library, and those that it calls by name or as methods of classes that it names, and
    those that they call, of the same package; with these classes, and the objects of which they are
    methods."""
    found: dict[FunctionType, None] = {function: None}
    kept: list[Any] = []
    home = function.__globals__.get("__name__")
    for each in (waiting := [function]):
        names = named_in(each.__code__).all
        for name in names & each.__globals__.keys():
            value = each.__globals__[name]
            if issubclass(type(value), type) and are_related(value.__module__, home):
                kept.append(value)
            for part in _called(value, names):
                *above, last = _behind(part)
                if (
                    type(last) is FunctionType
                    and are_related(last.__globals__.get("__name__"), home)
                    and last not in found
                ):
                    found[last] = None
                    waiting.append(last)
                    kept += (m.__self__ for m in above if type(m) is MethodType)
    return tuple(found), tuple(kept)


def _called(value: Any, names: Collection[str]) -> Iterator[Any]:
    """A function, those of a module, or those methods of a class that are called where these names are."""
    if is_loaded(value):
        space = vars(value)
        found = [space[name] for name in space.keys() & names]
    elif issubclass(type(value), type):
        found = [vars(type(value)).get("__call__")]
        own = [vars(each).keys() for each in value.__mro__]
        for name in {name for keys in own for name in (*(keys & _SETTING), *(keys & names))}:
            found += parts_of(kept_as(value, name))
    else:
        found = [value]
    for each in found:
        if type(_behind(each)[-1]) is FunctionType:
            yield each


def _kept_by(value: Any) -> Iterator[tuple[dict[str, Any], str | None]]:
    """What a function of a library keeps among its globals, and as the defaults of its arguments: what it
    and its helpers assign, the containers that they fill, objects of its package's own classes, also of
    which they are methods, what classes that they name keep, loggers; of one with a cache, that; and what a
    decorator keeps with the function that it was given."""
    *above, last = _behind(value)
    if above or type(last) is not FunctionType:
        yield from _kept_with(*above, last)
    else:
        yield from _of(last)[0]


def around(function: FunctionType) -> tuple[_Within, _Read]:
    """The same of a function that no code names: one that a library made of one that is not its own, whose
    name it may have, or one that somebody holds. And what it may give them to change."""
    if is_opaque(function.__globals__.get("__name__")):
        return [], []
    return _of(function)


def _of(function: FunctionType) -> tuple[_Within, _Read]:
    """What a function of a library keeps, and what it may give: looked up once for what there is of a kind
    where it and its helpers name something."""
    return _looked_up_of(function, _kinds_named(function))


def _kinds_named(function: FunctionType) -> tuple[int, ...]:
    """What kinds of things there are, by the ids of their classes."""
    found = (map(space.get, names, repeat(_KEPT)) for space, names in _named_by(function))
    return tuple(map(id, map(type, chain.from_iterable(found))))


_KEPT = object()


@_remembered
def _named_by(function: FunctionType) -> list[tuple[dict[str, Any], list[str]]]:
    """Where a function of a library and its helpers may name something: their globals."""
    return [(f.__globals__, sorted(named_in(f.__code__).all)) for f in _helpers(function)[0]]


@_remembered
def _looked_up_of(function: FunctionType, _: tuple[int, ...]) -> tuple[_Within, _Read]:
    return list(_kept_with(function)), list(_read_with(function))


def _kept_with(*functions: Any) -> Iterator[tuple[dict[str, Any], str | None]]:
    """What the last of these functions keeps, of which the others are made."""
    *above, function = functions
    yield from (({"cache": each}, "cache") for each in above if type(each) is LRU)
    if type(function) is not FunctionType:
        return
    helpers, others = _helpers(function)
    home = function.__globals__.get("__name__")
    filled = any(fills_any(each.__code__) for each in helpers)
    for each in helpers:
        space, given = each.__globals__, _defaults(each)
        names, stored, *_ = named_in(each.__code__)
        there = [(space, name) for name in names & space.keys()]
        for table, name in there + [(given, name) for name in given]:
            kept = table[name]
            own = are_related(type(kept).__module__, home) and has_table(type(kept))
            own = own and not issubclass(type(kept), (int, type, FunctionType))
            if (filled and identity(type(kept)) in CONTAINERS and kept is not sys.modules) or own:
                yield table, name
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


def _read_by(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """What a function of an installed package, and its helpers, name among their globals, and may give
    somebody, or a part of it, who changes that: what may be no function, class or module."""
    function = _behind(value)[-1]
    if type(function) is FunctionType and not is_opaque(function.__globals__.get("__name__")):
        yield from _of(function)[1]


def _read_with(function: FunctionType) -> Iterator[tuple[dict[str, Any], str]]:
    """The same, whatever it is made of."""
    for each in _helpers(function)[0]:
        space, (names, stored, *_) = each.__globals__, named_in(each.__code__)
        for name in names & space.keys():
            cls = type(space[name])
            if (name,) in stored or not (
                identity(cls) in _NOTHING_IN or issubclass(cls, (type, ModuleType))
            ):
                yield space, name


_NOTHING_IN = LEAVES.union(ids_of((FunctionType, LRU)))


def _defaults(function: FunctionType) -> dict[str, Any]:
    """What the arguments of a function are where nobody gives any, by their names."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    values = function.__defaults__ or ()
    return dict(zip(names[::-1], values[::-1], strict=False)) | (function.__kwdefaults__ or {})
