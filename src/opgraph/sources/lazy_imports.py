"""Leaving out, while a model library is imported, what that library imports for the sake of one function
that building a model never calls: transformers brings in SciPy's optimizers for a loss of detectors (half
a second, 35 MB). The function gets a stand-in that imports the real one when it is called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

FUNCTIONS = {"scipy.optimize": frozenset({"linear_sum_assignment"})}
"""Modules that are dear to import, and the functions that model libraries want of them."""


@contextmanager
def deferring() -> Iterator[None]:
    """Within, an import of one of these functions from its module does not import the module. Whatever
    else is asked of the module imports it, and afterwards imports are again what they were."""
    placed = [_StandIn(name) for name in FUNCTIONS if name not in sys.modules]
    sys.modules.update({module.__name__: module for module in placed})
    try:
        yield
    finally:
        for module in placed:
            module.leave()


class _StandIn(ModuleType):
    """A module that becomes the real one as soon as more is asked of it than the functions."""

    def leave(self) -> None:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what the import system looks at
            raise AttributeError(name)
        if name in FUNCTIONS[self.__name__]:
            return _Deferred(self, name)
        return self.real(name)

    def real(self, name: str) -> Any:
        self.leave()
        return getattr(import_module(self.__name__), name)


class _Deferred:
    """A function that is imported when it is called."""

    def __init__(self, home: _StandIn, name: str) -> None:
        self._home = home
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._home.real(self.__name__)(*args, **kwargs)
