"""What was found within reach of a forward, with what it was then, and the way back of all of it."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from operator import is_
from types import BuiltinFunctionType, MethodType, MethodWrapperType
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdRef

from opgraph.record.identity import identity
from opgraph.record.remarks import Remark
from opgraph.tracing.state.holding import (
    MISSING,
    are_alike,
    attribute_of,
    contents,
    dict_class,
    entries_of,
    fill,
    holder_class,
    holds,
    ids_of,
    in_space,
    same_entries,
    slot_value,
    table_of,
)
from opgraph.tracing.state.places import Places, placed
from opgraph.tracing.state.signals import held
from opgraph.tracing.state.speaking import Own
from opgraph.tracing.state.steps import Step, all_back
from opgraph.tracing.state.undoing import (
    cache_back,
    class_back,
    context_back,
    emptied,
    ended,
    function_back,
    has_any,
    holder_back,
    kept_alive,
    look_at,
    named_back,
    object_back,
    one_with_c,
    own_space_back,
    partial_back,
    said_by,
    says_now,
    slot_back,
    space_back,
    stays,
    table_back,
    unused,
    with_new,
    without_ended,
)

OfC = tuple[Any, list[Any] | None, list[Any], Callable[[], bool] | None]
"""An object that has a part in C; what its attributes held, where they may have one, too; its containers;
and, if it is itself of that part, whether that is as it was."""
Now = tuple[list[Any], ...]
"""What is in dictionaries, in lists and the like, in those that were empty, in classes, and by names; how
much is in caches; what functions and partials say."""
LISTS = (
    "stateful arrays caches errors iterators _empty _tables _apart _holders _sets _wholes _common _objects "
    "_of_c _slots _classes _functions _partials _names _last _spaces _attributes _contexts history _lent "
    "_going_on"
).split()
"""The lists of what was found, with what it was then."""
METHODS_IN_C = frozenset(ids_of((BuiltinFunctionType, MethodWrapperType)))
"""Types of methods that are written in C, and of functions, which are methods of their modules."""

REFERENCES = frozenset({weakref.ref, weakref.KeyedRef, WeakIdRef})
"""Types of weak references to which there can be another, to a copy."""


@dataclass(slots=True)
class Found:
    """Everything that was found, with what it was when it was found. `spaces` are the globals of all code
    that is followed. `staying` are files of packages whose globals stay: they note there what was done for
    good."""

    tensors: dict[int, Tensor] = field(default_factory=dict)
    stateful: list[Any] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    caches: list[tuple[Any, int]] = field(default_factory=list)
    history: list[Any] = field(default_factory=list)
    iterators: list[Any] = field(default_factory=list)
    _empty: list[Any] = field(default_factory=list)
    _tables: list[tuple[dict[Any, Any], dict[Any, Any]]] = field(default_factory=list)
    _apart: list[Own] = field(default_factory=list)
    _holders: list[tuple[Any, Any]] = field(default_factory=list)
    _sets: list[tuple[Any, Places]] = field(default_factory=list)
    _wholes: list[Any] = field(default_factory=list)
    _common: list[tuple[Any, list[tuple[Any, list[Any]]]]] = field(default_factory=list)
    _objects: list[tuple[Any, type, Any]] = field(default_factory=list)
    _of_c: list[OfC] = field(default_factory=list)
    _slots: list[tuple[Any, Any, Any]] = field(default_factory=list)
    _classes: list[tuple[type, dict[str, Any]]] = field(default_factory=list)
    _functions: list[tuple[Any, tuple[Any, ...]]] = field(default_factory=list)
    _partials: list[tuple[Any, tuple[Any, ...]]] = field(default_factory=list)
    _names: list[tuple[dict[str, Any], str, Any]] = field(default_factory=list)
    _last: list[tuple[dict[str, Any], str, Any]] = field(default_factory=list)
    _spaces: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    _globals: dict[int, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)
    _attributes: list[tuple[Any, str, Any]] = field(default_factory=list)
    _contexts: list[tuple[ContextVar[Any], Any]] = field(default_factory=list)
    _going_on: list[tuple[Any, Callable[[Any], Any]]] = field(default_factory=list)
    _lent: list[tuple[Any, str, Any]] = field(default_factory=list)
    _answered: set[int] = field(default_factory=set)
    spaces: dict[int, dict[str, Any]] = field(default_factory=dict)
    staying: set[str] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)

    def now(self) -> Now:
        """What there is by now where something was found: to be asked for before what is no part of the
        forward, as an import."""
        return (
            [contents(table) for table, _ in self._dictionaries()],
            [contents(holder) for holder, _ in self._holders],
            [contents(holder) for holder in self._empty],
            [dict(vars(cls)) for cls, _ in self._classes],
            [[look(*place[:2]) for place in places] for places, look in self._places()],
            [cached.cache_info().currsize for cached, _ in self.caches],
            [look_at(function) for function, _ in self._functions],
            [said_by(item) for item, _ in self._partials],
            [(type(item), table_of(item)) for item, *_ in self._objects],
        )

    def let_stay(self, then: Now) -> None:
        """What was changed since `then` is so as if it had been before."""
        tables, holders, empty, classes, named, caches, functions, partials, kinds = then
        for (table, before), was in zip(self._dictionaries(), tables, strict=True):
            if not same_entries(table, was):
                stays(before, was, contents(table))
        for (holder, kept), was in zip(self._holders, holders, strict=True):
            if not holds(holder, was):
                kept[:] = with_new(kept, was, contents(holder))
        for holder, was in zip(self._empty.copy(), empty, strict=True):
            now = contents(holder)
            if issubclass(type(holder), dict) and now.keys() != was.keys():
                entries: dict[Any, Any] = {}
                stays(entries, was, now)
                self._tables.append((holder, entries))
            elif len(now) != len(was):
                self._holders.append((holder, with_new([], was, now)))
            else:
                continue
            self._empty = [each for each in self._empty if each is not holder]
        for at, ((cls, members), was) in enumerate(zip(self._classes, classes, strict=True)):
            if not same_entries(was, vars(cls)):
                members = members.copy()  # noqa: PLW2901  (others go by it, too)
                stays(members, was, dict(vars(cls)))
                self._classes[at] = cls, members
        for (places, look), values in zip(self._places(), named, strict=True):
            for at, ((holder, name, _), value) in enumerate(zip(places, values, strict=True)):
                if not are_alike(now := look(holder, name), value):
                    places[at] = holder, name, now
        for at, ((cached, _), was) in enumerate(zip(self.caches, caches, strict=True)):
            if (size := cached.cache_info().currsize) != was:
                self.caches[at] = cached, size
        for at, ((item, *_), (cls, table)) in enumerate(zip(self._objects, kinds, strict=True)):
            if type(item) is not cls or table_of(item) is not table:
                self._objects[at] = item, type(item), table_of(item)
        saying: Any = ((self._functions, look_at, functions), (self._partials, said_by, partials))
        for found, says, before in saying:
            for at, ((item, _), said) in enumerate(zip(found, before, strict=True)):
                if not all(map(is_, by_now := says(item), said)):
                    found[at] = item, by_now

    def found_in_tables(self) -> Iterator[tuple[dict[Any, Any], dict[Any, Any]]]:
        """The dictionaries of Python's own class that were found, with what was in them."""
        return (pair for pair in self._tables if type(pair[0]) is dict)

    def _dictionaries(self) -> Iterator[tuple[dict[Any, Any], dict[Any, Any]]]:
        """The dictionaries that were found, with what was in them."""
        own = ((each.table, each.before) for each in self._apart)
        yield from chain(self._tables, own, self._spaces, self._globals.values())

    def _by_name(self) -> Iterator[tuple[list[tuple[Any, str, Any]], Callable[[Any, str], Any]]]:
        """What was found by a name in something, and how it is looked up there."""
        yield self._names, in_space
        yield self._last, in_space
        yield self._attributes, attribute_of
        yield self._lent, lambda holder, name: in_space(vars(holder), name)  # not asking it

    def _places(self) -> Iterator[tuple[list[tuple[Any, Any, Any]], Callable[[Any, Any], Any]]]:
        """The same, and slots of objects."""
        yield from self._by_name()
        yield self._slots, slot_value

    def _with_wholes(self, copies: Mapping[int, Any]) -> Mapping[int, Any]:
        """These copies, and tuples, sets, methods and weak references, for those that have something of
        which there is one: a set that is changed may be gone through in another order ever after."""
        known = dict(copies)
        for item in _inner_first(self._wholes):
            if not known.keys().isdisjoint(map(identity, _parts(item))):
                parts = [known.get(identity(part), part) for part in _parts(item)]
                known[identity(item)] = _of_parts(item, parts)
        return known

    def lend(self, copies: Mapping[int, Any]) -> None:
        """Put copies in the place of some things, by their ids, until all is restored: wherever these were
        found, and are still."""
        copies = self._with_wholes(copies)
        for made in copies.values():  # which may have methods of what it is for
            own = vars(made) if issubclass(type(made), Tensor) else {}
            own.update({n: copies[identity(v)] for n, v in own.items() if identity(v) in copies})
        for table in (*(table for table, _ in self._tables), *(own.table for own in self._apart)):
            base = dict_class(table)
            if not copies.keys().isdisjoint(map(identity, base.values(table))):
                for key, value in entries_of(table).items():
                    if identity(value) in copies:
                        base.__setitem__(table, key, copies[identity(value)])
            if not copies.keys().isdisjoint(map(identity, base.keys(table))):
                entries = {copies.get(identity(k), k): v for k, v in entries_of(table).items()}
                base.clear(table)
                fill(table, entries)
        for holder, _ in self._holders:
            base, now = holder_class(holder), contents(holder)
            if identity(holder) not in copies and not copies.keys().isdisjoint(map(identity, now)):
                base.clear(holder)
                (base.update if base is set else base.extend)(
                    holder, [copies.get(identity(item), item) for item in now]
                )
        for slot, item, before in self._slots:
            if identity(before) in copies and slot_value(slot, item) is before:
                with suppress(AttributeError, TypeError):  # it may only be shown
                    slot.__set__(item, copies[identity(before)])
        for space, name, value in chain(self._names, self._last):
            if identity(value) in copies and space.get(name) is value:
                space[name] = copies[identity(value)]
        for function, (_, defaults, *_) in self._functions:
            if identity(defaults) in copies and function.__defaults__ is defaults:
                function.__defaults__ = copies[identity(defaults)]
        for item, (of, args, named) in self._partials:
            if identity(args) in copies and item.args is args:
                says_now(item, (of, copies[identity(args)], named))
            if identity(of) in copies and item.func is of:
                says_now(item, (copies[identity(of)], item.args, named))
        for variable, value in self._contexts:
            if identity(value) in copies and variable.get(MISSING) is value:
                variable.set(copies[identity(value)])
        for cls, members in self._classes:
            for name, value in members.items():
                if identity(value) in copies and vars(cls).get(name) is value:
                    type.__setattr__(cls, name, copies[identity(value)])
        for space in self.spaces.values():
            for name, value in list(space.items()):
                if identity(value) in copies:
                    self._names.append((space, name, value))
                    space[name] = copies[identity(value)]

    def restore(self) -> list[Remark]:
        """Make everything again what it was when it was found, but for the values of tensors, arrays and
        generators, and for globals. What is to be said of what could not be. Signals wait meanwhile."""
        with held(), torch._C.DisableTorchFunctionSubclass():
            return all_back(*self.undoing())

    def restore_all(self, *, alone: bool) -> list[Remark]:
        """The same with globals, where no modules were imported since."""
        with held(), torch._C.DisableTorchFunctionSubclass():
            return all_back(*self.undoing(alone=alone), *self.undoing_last(alone=alone))

    def undoing(self, *, alone: bool = True) -> Iterator[Step]:
        """The same in steps that can each fail by itself: what there is of a kind, and its way back. Unless
        this thread is `alone`, what is in queues and the like may be of another, and is only said."""
        yield self._replaced(), ended
        yield self._apart, Own.back
        one, theirs = self._one_with_c(), set[int]()
        if not alone:
            theirs = {identity(part) for _, parts in self._common for part, _ in parts}
            yield self._common, unused
        its, stay = one.keys() - theirs, one.keys() | theirs
        kept = (found for found in (*self._tables, *self._holders) if identity(found[0]) in its)
        yield kept if its else (), functools.partial(one_with_c, one)
        tables = [pair for pair in self._tables if identity(pair[0]) not in stay]
        holders = [pair for pair in self._holders if identity(pair[0]) not in stay]
        empty = [holder for holder in self._empty if identity(holder) not in stay]
        yield ((item, had) for item, had, *_ in self._of_c if had is not None), kept_alive
        yield (holder for holder in empty if holder), emptied
        late = self._answered and {
            identity(pair[0])
            for pairs, same in ((tables, same_entries), (holders, holds)) for pair in pairs
            if identity(pair[0]) in self._answered and not same(*pair)
        }  # fmt: skip
        tabled, held = (
            functools.partial(back, dead=self.dead) for back in (table_back, holder_back)
        )
        yield (pair for pair in tables if identity(pair[0]) not in late), tabled
        yield (pair for pair in holders if identity(pair[0]) not in late), held
        yield (found for found in self._objects if identity(found[0]) not in one), object_back
        slots = [found for found in self._slots if identity(found[1]) not in one]
        yield slots, slot_back
        yield self._functions, function_back
        yield self._partials, partial_back
        yield self._classes, class_back
        for places, look in self._by_name():
            found = filter(self._goes_back, places) if places is self._names else places
            yield () if places is self._last else found, functools.partial(named_back, look)
        yield self._contexts, context_back
        yield self.caches, cache_back
        if late:  # what code answers by goes back first, and what that changed in turn
            for of_code in (True, False):
                for pairs, back in ((tables, tabled), (holders, held)):
                    yield [p for p in pairs if (identity(p[0]) in late) is of_code], back
            yield slots, slot_back
            yield self._classes, class_back
        yield (found for found in self._sets if identity(found[0]) not in stay), placed

    def _one_with_c(self) -> dict[int, str]:
        """By their ids, the objects that a package made in C, and that went on there where Python does not
        see it, with their attributes, the containers that they have, and objects of the same module that
        have them: none of that goes back by itself. With the names of their classes."""
        found: dict[int, str] = {}
        for item, _, parts, shows in self._of_c:
            if shows is not None and not shows():
                found |= dict.fromkeys(map(identity, (item, *parts)), type(item).__qualname__)
        for item, had, parts, _ in self._of_c if found else ():
            home = type(item).__module__
            if any(identity(v) in found and type(v).__module__ == home for v in had or ()):
                found |= dict.fromkeys(map(identity, (item, *parts)), type(item).__qualname__)
        return found

    def _replaced(self) -> set[str]:
        """Let what there is in the place of what has ended since, or of what has that, be what was there
        before. The names of the classes of what was replaced so, which stays as it is, too."""
        over = {identity(item) for item, says in self._going_on if says(item) is not False}
        if not over:
            return set()
        having = self._having()
        over |= _owners(having, over)
        gone: list[Any] = []
        for table, before in self._dictionaries():
            gone += without_ended(before, functools.partial(dict_class(table).get, table), over)
        for at, (cls, members) in enumerate(self._classes):
            own = members.copy()  # others go by it, too
            gone += without_ended(own, dict(vars(cls)).get, over)
            self._classes[at] = cls, own
        for holder, kept in self._holders:
            now = contents(holder)
            out = over.intersection(map(identity, kept)).difference(map(identity, now))
            out = set() if any(has_any(item, over) for item in now if out) else out
            gone += (item for item in kept if identity(item) in out)
            kept[:] = now if out else kept
        for places, look in self._places():
            found = {at: value for at, (*_, value) in enumerate(places)}
            gone += without_ended(found, lambda at, _: look(*places[at][:2]), over)  # noqa: B023
            places[:] = [(*p[:2], found.get(at, MISSING)) for at, p in enumerate(places)]
        left = {identity(item) for item in gone}
        while new := {
            identity(value) for item in left for value, _ in having.get(item, ()) if identity(value) in over
        } - left:  # fmt: skip
            left |= new
        tables = {identity(table) for item, _, table in self._objects if identity(item) in left}
        self._tables[:] = [pair for pair in self._tables if identity(pair[0]) not in tables]
        self._slots[:] = [found for found in self._slots if identity(found[1]) not in left]
        return {type(item).__qualname__ for item in gone}

    def _having(self) -> dict[int, list[tuple[Any, Any]]]:
        """What objects had as attributes, and have in their place, by their ids: but for modules, which are
        the model itself."""
        tables = {identity(table): (table, before) for table, before in self._tables}
        having: dict[int, list[tuple[Any, Any]]] = {}
        for item, _, table in self._objects:
            if identity(table) in tables and not issubclass(type(item), torch.nn.Module):
                now, before = tables[identity(table)]
                having[identity(item)] = [(v, now.get(name)) for name, v in before.items()]
        for slot, item, value in self._slots:
            if not issubclass(type(item), (torch.nn.Module, type)):
                having.setdefault(identity(item), []).append((value, slot_value(slot, item)))
        return having

    def _goes_back(self, of: tuple[Any, ...]) -> bool:
        """Whether something was found in globals that go back."""
        return of[0].get("__name__") not in self.staying

    def undoing_last(self, *, alone: bool = True) -> Iterator[Step]:
        """The same of globals of torch and others: the ways back of settings go by them."""
        yield filter(self._goes_back, self._spaces), space_back
        yield filter(self._goes_back, self._last), functools.partial(named_back, in_space)
        yield self._globals.values(), functools.partial(own_space_back, alone=alone)


def _owners(having: Mapping[int, list[tuple[Any, Any]]], over: set[int]) -> set[int]:
    """By their ids, the objects that have something which is over, and nothing of its kind in its place:
    what is in their own place may be there for that."""
    found: set[int] = set()
    while new := {
        item for item, held in having.items()
        if item not in found and any(
            identity(value) in over or identity(value) in found
            for value, now in held if now is value or type(now) is not type(value)
        )
    }:  # fmt: skip
        found |= new
    return found


def _parts(item: Any) -> Iterable[Any]:
    """What is in a tuple or a set, whatever its own way through it does; what a method is of, or a weak
    reference leads to."""
    if identity(type(item)) in METHODS_IN_C or type(item) is MethodType:
        return (item.__self__,)
    if type(item) in REFERENCES:
        return (item(),)
    return tuple.__iter__(item) if issubclass(type(item), tuple) else item


def _inner_first(wholes: Iterable[Iterable[Any]]) -> Iterator[Iterable[Any]]:
    """Tuples, sets, methods and references, each once, behind those that it has in it."""
    waiting = list(wholes)
    left, opened = {identity(item) for item in waiting}, set[int]()
    while waiting:
        item = waiting[-1]
        if identity(item) in left and identity(item) not in opened:
            opened.add(identity(item))
            waiting += [part for part in _parts(item) if identity(part) in left]
            continue
        waiting.pop()
        if identity(item) in left:
            left.remove(identity(item))
            yield item


def _of_parts(item: Any, parts: list[Any]) -> Any:
    """The same tuple, set, method or reference of other parts, made by what is in C of its class: results
    of torch's that have names (`torch.max`) make themselves."""
    cls: Any = type(item)
    if cls in REFERENCES:  # what becomes of the part is told to nobody
        return cls(*parts, None, *([item.key] if cls is weakref.KeyedRef else []))
    if cls is MethodType:
        return MethodType(item.__func__, *parts)
    if identity(cls) in METHODS_IN_C:
        return getattr(type(parts[0]), item.__name__).__get__(
            parts[0]
        )  # not one of its own by that name
    if not issubclass(cls, tuple):
        return cls(parts)
    makers = (vars(each).get("__new__") for each in cls.__mro__)
    made = next(new for new in makers if type(new) is BuiltinFunctionType)(cls, parts)
    if (table := table_of(item)) is not None:  # of a class below: both have the same attributes
        object.__setattr__(made, "__dict__", table)
    return made
