"""Which packages keep nothing of a model's, which are installed, and which are a person's own."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from importlib._bootstrap_external import _NamespacePath  # type: ignore[attr-defined]
from itertools import chain
from types import (
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any

from opgraph.tracing.state.code import sets_code
from opgraph.tracing.state.holding import CONTENTS, is_loaded, slot_value, table_of

_COMPILERS = frozenset({"numba", "llvmlite", "jax", "jaxlib", "triton", "taichi", "tvm", "warp"})
"""Packages that make machine code of Python functions as these are called: what they keep of it in Python
is one with what they keep in C, which nobody can put back."""
_RUNNERS = frozenset({"pytest", "_pytest", "xdist", "execnet"})
"""What runs tests, of which other threads are told meanwhile."""
_LEADING = frozenset(
    "config main nodes python fixtures runner terminal unittest doctest assertion".split()
)
"""The parts of pytest whose objects lead to all tests, as those of the others of these packages do."""
_SENT = "__channelexec__"
"""What execnet calls the code that it is sent: a runner's of tests, whose queue another thread fills."""
_WRITTEN = "_remote_module_non_scriptable"
"""A module that torch writes for itself, in no folder of its own."""
_OPAQUE = (
    frozenset(sys.stdlib_module_names)
    | _COMPILERS
    | _RUNNERS
    | {"torch", "numpy", "opgraph", "builtins", _WRITTEN}
)
"""Packages whose functions and classes keep nothing of a model's between two calls, or what `process`
knows by name."""


def _of_loaded(tell: Callable[[str], bool]) -> Callable[[str], bool]:
    """What is told of a module by its name is known from when it is there, as long as it is."""
    known: dict[str, tuple[int, bool]] = {}

    def told(name: str) -> bool:
        here = id(sys.modules.get(name))
        found = known.get(name)
        if found is None or found[0] != here:
            found = here, tell(name)
            if name in sys.modules:
                known[name] = found
        return found[1]

    return told


def is_opaque(name: str | None) -> bool:
    """Whether a module of Python's is of a package whose insides are not looked at, and none of a person's
    own that has the name of one of them."""
    return type(name) is not str or _is_opaque(name)


@_of_loaded
def _is_opaque(name: str) -> bool:
    top = name.partition(".")[0]
    if top in _OPAQUE:
        return not _is_anothers(top, _file_of(top))
    return is_installed(name) and is_loaded(sys.modules[name]) and _remakes(sys.modules[name])


def is_a_runners(name: str | None) -> bool:
    """Whether a module of Python's is of what runs tests, and its objects lead to these: not what takes
    what tests print, log or set."""
    top, _, within = name.partition(".") if type(name) is str else ("", "", "")
    leads = top != "_pytest" or within.partition(".")[0] in _LEADING
    return top in _RUNNERS and leads and is_opaque(name)


def is_of_a_compiler(name: str) -> bool:
    """Whether a module of Python's is of a package that makes machine code of functions of Python's."""
    return name.partition(".")[0] in _COMPILERS and is_opaque(name)


def _is_anothers(top: str, file: str) -> bool:
    """Whether a module that has the name of one of these is a person's own: one of Python's elsewhere than
    Python is, one of a compiler that is not installed, and has no version as that has."""
    if top in sys.stdlib_module_names:
        return file.endswith(".py") and not file.startswith(os.path.dirname(os.__file__))  # noqa: PTH120
    if top in _RUNNERS:
        return top in sys.modules and not is_installed(top)
    if top not in _COMPILERS or not file or is_installed(top):
        return False
    return "__version__" not in (table_of(sys.modules[top]) or ())


def _file_of(name: str) -> str:
    """The file of a module of Python's, or of the package that it is in, without code of what is there in
    the place of one."""
    if name not in sys.modules:
        return ""
    table = table_of(sys.modules[name])
    held = table if type(table) is dict else {}
    path: Any
    file, path = held.get("__file__"), held.get("__path__")
    if type(path) is _NamespacePath:  # which is computed anew where one goes through it
        path = vars(path).get("_path")
    if type(file) is not str and type(path) is list:  # of several folders, and no file
        file = next(iter(path), None)
    return file if type(file) is str else _file_of(name.rpartition(".")[0])


def _remakes(module: ModuleType) -> bool:
    """Whether functions of a library's module, or of its classes, give others the code that they run, as
    one does that compiles functions as these are called: what it keeps of them is one with that code."""
    spaces: list[Any] = [module]
    for space in spaces:
        for value in chain.from_iterable(map(parts_of, list(vars(space).values()))):
            if type(value) is FunctionType:
                if value.__globals__ is vars(module) and sets_code(value.__code__):
                    return True
            elif issubclass(type(value), type) and value.__module__ == module.__name__:
                spaces += () if value in spaces else (value,)
    return False


@_of_loaded
def is_installed(name: str) -> bool:
    """Whether a module of Python's belongs to an installed package."""
    file = _file_of(name)
    return "site-packages" in file or "dist-packages" in file


def is_closed(name: str | None) -> bool:
    """Whether a module of Python's is of a library, and not of opgraph: all code is followed of those alone
    that the model's classes are from."""
    if type(name) is not str or name[:7] == "opgraph":
        return False
    return is_installed(name) or is_opaque(name) or name == _SENT


def is_put(value: Any) -> bool:
    """Whether what a library's module or class has is of a person's own, who put it in the place of what
    was there: a function, a method, an object, a class."""
    kind: Any = type(value)
    if kind is MethodType:
        return is_put(value.__func__) or is_put(value.__self__)
    if kind is functools.partial:
        return is_put(value.func)
    if kind is FunctionType:
        home = home_of(value)
    else:
        home = (value if issubclass(kind, type) else kind).__module__
    return type(home) is str and not is_closed(home) and home.partition(".")[0] != "opgraph"


def own_modules() -> list[str]:
    """The names of the modules that are a person's own and there, with a file of theirs."""
    names = tuple(sys.modules)
    if _OWN[0] != names:
        own = (n for n in names if type(n) is str and not is_closed(n))
        found = [
            n for n in own if n.partition(".")[0] != "opgraph" and (n == "__main__" or _file_of(n))
        ]
        _OWN[:] = names, found
    return _OWN[1]  # type: ignore[no-any-return]


_OWN: list[Any] = [(), []]
"""All modules that are there, and those of them."""


def are_related(one: Any, other: Any) -> bool:
    """Whether modules of Python's are one and the same, or of the same installed package."""
    return one == other or (
        type(one) is type(other) is str
        and one.partition(".")[0] == other.partition(".")[0]
        and not is_opaque(one)
    )


def module_of(space: dict[str, Any]) -> Any:
    """The name of the module whose globals these are; an empty one, which no library has, of those that
    somebody made for a text to run in (`exec`)."""
    return space.get("__name__") or ""


def home_of(function: FunctionType) -> Any:
    """The name of the module whose code a function runs: its own, or, of one that a library made of
    others, the first of theirs that is of no library."""
    found = [function]
    for each in found:
        name = module_of(each.__globals__)
        if not is_closed(name):
            return name
        for cell in each.__closure__ or ():
            held = slot_value(CONTENTS, cell)
            if type(held) is FunctionType and held not in found:
                found.append(held)
    return module_of(function.__globals__)


_MADE_OF = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func",),
}
"""The functions of which descriptors of Python's own are made, by their names there."""


def parts_of(value: Any) -> tuple[Any, ...]:
    """An attribute of a class as the functions or the value that it is. What is of a class below those of
    Python's own may keep something itself."""
    of = next((names for cls, names in _MADE_OF.items() if issubclass(type(value), cls)), None)
    if of is None:
        return (value,)
    parts = tuple(getattr(value, name) for name in of)
    return parts if type(value) in _MADE_OF else (*parts, value)
