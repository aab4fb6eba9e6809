"""Modules that a forward is the first to import. They stay imported, with all that their import does: so
it is done as if there were no trace, and what the forward does with them afterwards is guarded like the
rest."""

from __future__ import annotations

import _frozen_importlib as importing
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch.overrides import _get_current_function_mode_stack
from torch.utils import _python_dispatch as dispatching

from opgraph.record.turns import is_mine
from opgraph.tracing.state.process import set_dispatch_modes, set_function_modes

_FIRST = "_find_and_load"
"""What Python calls to import a module that is not there yet, and `importlib` for any."""


class Imports:
    """Hears which modules are imported, from `begin` until `end`: `heard` is given their names, what
    `before` gave just before, and whether torch or opgraph asked for them. Each runs within `plainly`."""

    def __init__(
        self,
        before: Callable[[], Any],
        heard: Callable[[set[str], Any, bool], None],
        plainly: Callable[[], Any],
    ) -> None:
        self._before, self._heard, self._plain = before, heard, getattr(importing, _FIRST)
        self._plainly = plainly
        self._within = threading.local()
        self._failed: dict[str, tuple[Any, ...]] = {}  # by what was looked for then

    def begin(self) -> None:
        """Hear from now on."""
        setattr(importing, _FIRST, self._imported)

    def end(self) -> None:
        """Hear no more, not even of an import that goes on."""
        self._before, self._heard = lambda: None, lambda *_: None
        if getattr(importing, _FIRST) == self._imported:
            setattr(importing, _FIRST, self._plain)

    def _imported(self, name: str, import_: Any) -> Any:
        known = name in sys.modules or self._failed.get(name) == _looked_through()
        if known or not is_mine() or getattr(self._within, "one", False):
            return self._plain(name, import_)  # it is there, or is not, or another one imports it
        self._within.one, before, then = True, set(sys.modules), self._before()
        try:
            with _undisturbed(), self._plainly():
                return self._plain(name, import_)
        finally:
            new = sys.modules.keys() - before
            if not new and name not in sys.modules:
                self._failed[name] = _looked_through()
            try:
                self._heard(new, then, _by_tracing())
            finally:
                self._within.one = False


def _looked_through() -> tuple[Any, ...]:
    """Where modules are looked for."""
    return *sys.path, *map(id, sys.meta_path)


def _by_tracing() -> bool:
    """Whether it is torch or opgraph that imports something."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and "importlib" in (name := str(frame.f_globals.get("__name__"))):
        frame = frame.f_back
    return frame is not None and name.partition(".")[0] in ("torch", "opgraph")


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Within, none of opgraph's modes is on."""
    functions, operators = (
        _get_current_function_mode_stack(),
        dispatching._get_current_dispatch_mode_stack(),
    )
    set_function_modes([m for m in functions if not _is_own(m)])
    set_dispatch_modes([m for m in operators if not _is_own(m)])
    try:
        yield
    finally:
        set_function_modes(functions)
        set_dispatch_modes(operators)


def _is_own(mode: Any) -> bool:
    return type(mode).__module__.startswith("opgraph.")
