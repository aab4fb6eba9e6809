"""What code that is followed may call or find without having it in hand: methods by their names, and what
texts say where it is."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from inspect import getattr_static
from types import FunctionType
from typing import Any

from opgraph.tracing.state.code import with_parts
from opgraph.tracing.state.holding import MISSING, is_loaded
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


def all_in(space: Mapping[str, Any]) -> list[Any]:
    """The functions and classes of a module, given its globals."""
    return [v for v in space.values() if type(v) is FunctionType or issubclass(type(v), type)]


class Modules:
    """The modules that are a person's own, as texts may name them."""

    __slots__ = ("_own",)

    def __init__(self) -> None:
        self._own: defaultdict[str, list[Any]] = defaultdict(list)
        for name, module in list(sys.modules.items()):
            if type(name) is str and not is_closed(name) and is_loaded(module):
                for each in {name, name.rpartition(".")[2]}:
                    self._own[each].append(module)

    def told_by(self, texts: Iterable[str]) -> Iterator[Any]:
        """What texts say where it is: all that is in a module (`"mine.blocks"`, and `"blocks"` of a
        package), or something in one (`"mine.blocks.Block"`, `"mine.blocks:Block"`)."""
        for text in texts:
            if _PLACE.fullmatch(text) is None:
                continue
            path = text.replace(":", ".").strip(".").split(".")
            for at in range(len(path), 0, -1):
                for module in self._own.get(".".join(path[:at]), ()):
                    yield from (
                        all_in(vars(module)) if at == len(path) else _within(module, path[at:])
                    )


def _within(module: Any, path: list[str]) -> Iterator[Any]:
    for name in path:
        module = getattr_static(module, name, MISSING)
        if module is MISSING:
            return
    yield module


_PLACE = re.compile(r"\.*\w+([.:]\w+)*")
