"""The model libraries: what building with them takes, what they offer, read without importing them, and
how to import little of them. A library is one file here, with its `Library` and its `Source`, and one
entry in `opgraph.sources.registry`, which gives the libraries to whoever goes over them (versions,
extras, preloading).
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from opgraph.record.errors import MissingDependency
from opgraph.record.versions import installed, require_bound

__all__ = ["Library", "lazy_imports", "registered"]


@dataclass(frozen=True, slots=True)
class Library:
    """A package that models come from.

    `extra` is the extra of opgraph that brings it, `modules` what building a model imports, and `oldest`
    the first version that it is built with; pyproject.toml says the same. With `heads` its models come with
    a choice of heads.
    """

    package: str
    extra: str
    modules: tuple[str, ...]
    oldest: tuple[int, ...]
    heads: bool = False

    @property
    def folder(self) -> Path | None:
        """Its folder; None when it is not installed."""
        return _folder(self.package)

    def require(self) -> None:
        """Raise `MissingDependency` when it is not installed, and `SourceError` when it is too old."""
        if self.folder is None:
            raise MissingDependency(self.package, self.extra)
        require_bound(self.package, installed(self.package) or "", self.oldest, self.extra)


@cache
def _folder(package: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec and spec.origin else None


@cache
def registered(
    library: Library, subfolder: str, pattern: str, files: str = "*.py"
) -> Mapping[str, str]:
    """The names that `pattern` finds in the library's source files (any of its groups), each with the
    stem of its file, under the folder the file is in where that is deeper. Nothing is imported: listing a
    thousand names must not cost the seconds that importing torch takes."""
    if library.folder is None:
        return {}
    wanted = re.compile(pattern)
    top = library.folder / subfolder
    return {
        next(group for group in match.groups() if group): stem
        for file in sorted(top.rglob(files))
        for stem in (str(file.relative_to(top).with_suffix("")),)
        for match in wanted.finditer(file.read_text(encoding="utf-8"))
    }


# Lazy imports: what a library imports for the sake of one function that building a model never calls is
# left out while the library is imported. The function gets a stand-in that imports the real one when it
# is called.

FUNCTIONS = {
    "scipy.optimize": frozenset({"linear_sum_assignment"}),
    "torchao.prototype.safetensors.safetensors_support": frozenset({"flatten_tensor_state_dict"}),
}
"""Modules that are slow to import, and the functions that model libraries want of them: transformers brings
in SciPy's optimizers for a loss of detectors (half a second, 35 MB), and torchao, where it is installed, to
save what it has quantized (a quarter of a second)."""


@contextmanager
def lazy_imports() -> Iterator[None]:
    """Within, an import of one of these functions from its module does not import the module. Whatever
    else is asked of the module imports it, and afterwards imports are again what they were."""
    placed = [_LazyModule(name) for name in FUNCTIONS if name not in sys.modules]
    sys.modules.update({module.__name__: module for module in placed})
    try:
        yield
    finally:
        for module in placed:
            module.leave()


class _LazyModule(ModuleType):
    """A module that becomes the real one as soon as more is asked of it than the functions."""

    def leave(self) -> None:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what the import system looks at
            raise AttributeError(name)
        if name in FUNCTIONS[self.__name__]:
            return partial(self._call, name)
        return self.real(name)

    def real(self, name: str) -> Any:
        self.leave()
        return getattr(import_module(self.__name__), name)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.real(name)(*args, **kwargs)
