"""Modules that a forward is the first to import. They stay imported, with all that their import does: so
it is done as if there were no trace, and what the forward does with them afterwards is guarded like the
rest."""

from __future__ import annotations

import _frozen_importlib as importing
import _frozen_importlib_external as importing_files
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

from torch.overrides import _get_current_function_mode_stack
from torch.utils import _python_dispatch as dispatching

from opgraph.record.turns import is_mine, put_aside
from opgraph.tracing.state.process import modes_around, set_dispatch_modes, set_function_modes

_FILES: Any = importing_files._LoaderBasics
"""Has what makes a module of its file."""
_FIRST = "_find_and_load"
"""What Python calls to import a module that is not there yet, and `importlib` for any."""


class Imports:
    """Hears which modules are imported, from `begin` until `end`: `heard` is given them by name, what
    `before` gave just before, and whether torch or opgraph asked for them. Each runs within `plainly`."""

    def __init__(
        self,
        before: Callable[[], Any],
        heard: Callable[[dict[str, ModuleType], Any, bool], None],
        plainly: Callable[[], Any],
    ) -> None:
        self._before, self._heard, self._plain = before, heard, getattr(importing, _FIRST)
        self._plainly, self._make = plainly, _FILES.exec_module
        self._within = threading.local()
        self._modes: list[Any] = []  # those that are around a run
        self._execute: Any = None
        self._there: dict[str, ModuleType] = {}
        self._failed: dict[str, tuple[Any, ...]] = {}  # by what was looked for then

    def begin(self) -> None:
        """Hear from now on."""
        self._there, self._modes = dict(sys.modules), modes_around()
        setattr(importing, _FIRST, self._imported)

        def execute(loader: Any, module: ModuleType) -> None:
            self._executed(loader, module)

        _FILES.exec_module = self._execute = execute

    def end(self) -> None:
        """Hear no more, not even of an import that goes on."""
        self._before, self._heard = lambda: None, lambda *_: None
        if getattr(importing, _FIRST) == self._imported:
            setattr(importing, _FIRST, self._plain)
        if _FILES.exec_module is self._execute:
            _FILES.exec_module = self._make
        self._execute = None  # which leads here

    def _imported(self, name: str, import_: Any) -> Any:
        if name in sys.modules or self._failed.get(name) == _looked_through():
            return self._plain(name, import_)  # it is there, or is not
        before = set(sys.modules)
        with self._hearing(before) as hears:
            try:
                return self._plain(name, import_)
            finally:
                if hears and name not in sys.modules and before.issuperset(sys.modules):
                    self._failed[name] = _looked_through()

    def _executed(self, loader: Any, module: ModuleType) -> None:
        """A module is made of its file, as by who loads it by its path. That is an import if all find it
        from then on; else it is somebody's own, and goes with what he has it in."""
        name, before = module.__name__, set(sys.modules)
        stays = sys.modules.get(name) is module or _registers()
        if self._there.get(name) is module or not stays:  # it is loaded once more
            self._make(loader, module)
            return
        with self._hearing(before - {name}, module):
            self._make(loader, module)

    @contextmanager
    def _hearing(self, before: set[str], *loaded: ModuleType) -> Iterator[bool]:
        """Within, modules are imported that are not among those `before`, or these are `loaded`: whether
        that is heard, as it is not where another one imports what does that, or another thread does."""
        if not is_mine() or getattr(self._within, "one", False):
            yield False
            return
        self._within.one = True
        try:
            with _undisturbed(self._modes):
                then = self._before()
                try:
                    with self._plainly():
                        yield True
                finally:
                    new = {name: sys.modules[name] for name in sys.modules.keys() - before}
                    new |= {module.__name__: module for module in loaded}
                    self._heard(new, then, _by_tracing())
        finally:
            self._within.one = False


def _registers() -> bool:
    """Whether the code that loads a module puts it among all, as it may do when that is made."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    if frame is None:
        return False
    names = frame.f_code.co_names
    return {"sys", "modules"} <= set(names) or any(
        frame.f_globals.get(name) is sys.modules for name in names
    )


def _looked_through() -> tuple[Any, ...]:
    """Where modules are looked for."""
    return *sys.path, *map(id, sys.meta_path)


def _by_tracing() -> bool:
    """Whether it is torch or opgraph that imports something."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        "importlib" in (name := str(frame.f_globals.get("__name__")))
        or name in (__name__, contextmanager.__module__)
    ):
        frame = frame.f_back
    return frame is not None and name.partition(".")[0] in ("torch", "opgraph")


@contextmanager
def _undisturbed(around: Collection[Any]) -> Iterator[None]:
    """Within, no mode traces but what is `around` a run, and nothing stands in the place of anything."""

    def stays(mode: Any) -> bool:
        return any(mode is each for each in around) or not _traces(mode)

    functions = _get_current_function_mode_stack()
    set_function_modes(list(filter(stays, functions)))
    try:
        with dispatching._disable_current_modes() as off, put_aside():
            set_dispatch_modes(list(filter(stays, reversed(off))))
            try:
                yield
            finally:
                set_dispatch_modes([])
    finally:
        set_function_modes(functions)


def _traces(mode: Any) -> bool:
    """Whether a mode is opgraph's, or one by which torch captures a graph."""
    return type(mode).__module__.startswith(_TRACING)


_TRACING = (
    "opgraph.", "torch.fx.", "torch.export.", "torch._export.", "torch._subclasses.",
    "torch._functorch.", "torch._dynamo.",
)  # fmt: skip
