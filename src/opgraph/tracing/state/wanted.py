"""What code that is followed may call or find without having it in hand: methods by their names, and what
texts say where it is."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from inspect import getattr_static
from types import FunctionType
from typing import Any

from opgraph.tracing.state.code import with_parts
from opgraph.tracing.state.holding import MISSING, is_loaded, table_of
from opgraph.tracing.state.packages import is_closed


class Wanted:
    """The names by which code calls methods, and the parts of those that it makes; and the methods that
    were found of other names, as long as nobody wants them."""

    __slots__ = ("_others", "names", "parts")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.parts: set[str] = set()
        self._others: defaultdict[str, list[Any]] = defaultdict(list)

    def add(self, names: Collection[str], parts: Collection[str] = ()) -> list[Any]:
        """Code names these. The methods of such names that were found before."""
        new = self._others.keys() & names
        self.names.update(names)
        if not self.parts.issuperset(parts):
            new |= with_parts(self._others, set(parts) - self.parts)
            self.parts.update(parts)
        return [method for name in new for method in self._others.pop(name)]

    def offered(self, methods: Mapping[str, Iterable[Any]]) -> list[Any]:
        """Methods were found. Those of them that are wanted."""
        wanted = methods.keys() & self.names
        if self.parts:
            wanted |= with_parts(methods, self.parts)
        for name in methods.keys() - wanted:
            self._others[name] += methods[name]
        return [method for name in wanted for method in methods[name]]

    def unnamed(self) -> list[Any]:
        """The functions that nobody wants."""
        return [f for found in self._others.values() for f in found if type(f) is FunctionType]


def all_in(space: Mapping[str, Any]) -> list[Any]:
    """The functions and classes of a module, given its globals."""
    return [v for v in space.values() if type(v) is FunctionType or issubclass(type(v), type)]


class Modules:
    """The modules that are a person's own, as texts may name them: from the first package on, or from those
    that the code is in which looks them up, or, with a dot before it, from any."""

    __slots__ = ("_named",)

    def __init__(self, packages: Collection[str]) -> None:
        self._named: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for name, module in list(sys.modules.items()):
            if type(name) is not str or is_closed(name) or name.partition(".")[0] == "opgraph":
                continue
            space = table_of(module) if is_loaded(module) else None
            if type(space) is dict:
                parts = name.split(".")
                names = {name, *("." + ".".join(parts[at:]) for at in range(1, len(parts)))}
                within = (p for p in packages if p and name.startswith(f"{p}."))
                for each in names.union(name[len(package) + 1 :] for package in within):
                    self._named[each].append(space)

    def told_by(self, texts: Iterable[str]) -> Iterator[Any]:
        """What texts say where it is: all that a module has of its own (`"mine.blocks"`, `".blocks"`), or
        something in one (`"mine.blocks.Block"`, `"mine.blocks:Block"`)."""
        for text in texts:
            for name, way in _ways(text):
                for space in self._named.get(name, ()):
                    if way:
                        yield from _within(space, way)
                    else:
                        home = space.get("__name__")
                        yield from (v for v in all_in(space) if v.__module__ == home)


def theirs(texts: Iterable[str]) -> Iterator[Any]:
    """The classes of libraries that texts say where they are (`"library.part.Class"`)."""
    for text in texts:
        for name, way in _ways(text):
            module = sys.modules.get(name) if way else None
            if module is not None and is_loaded(module) and is_closed(module.__name__):
                found = _within(vars(module), way)
                yield from (v for v in found if issubclass(type(v), type))
                break


def _ways(text: str) -> Iterator[tuple[str, list[str]]]:
    """How a text may say where something is: the name of a module, and the way from there on. The longest
    name is the first."""
    before = "." if text[:1] == "." else ""
    path = text.lstrip(".").replace(":", ".").split(".") if len(text) < _LONGEST else []
    for at in range(len(path), 0, -1):
        yield before + ".".join(path[:at]), path[at:]


_LONGEST = 200
"""Characters of a text that says where something is."""


def _within(space: dict[str, Any], path: list[str]) -> Iterator[Any]:
    found = space.get(path[0], MISSING)
    for name in path[1:]:
        found = getattr_static(found, name, MISSING)
    if found is not MISSING:
        yield found
