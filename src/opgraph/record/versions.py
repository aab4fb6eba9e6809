"""Which packages are there: whether the torch and the model libraries among them can trace, and what others
add. Only what is written about them is read: nothing is imported."""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.metadata import EntryPoints, PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from typing import Any

from opgraph.record.errors import MissingDependency, SourceError

__all__ = ["OLDEST", "installed", "plug_ins", "require_bound", "require_torch"]

OLDEST = (2, 14)
"""The oldest torch that opgraph traces with; pyproject.toml says the same (a test holds both together)."""


def require_torch(extra: str = "torch") -> None:
    """Raise `MissingDependency` without torch, and `SourceError` with one that is too old. `extra` brings
    torch, or the library of the model that is to be traced, too."""
    found = _installed()
    if found is None:
        raise MissingDependency("torch", extra)
    require_bound("torch", found, OLDEST, extra)


def require_bound(package: str, found: str, oldest: tuple[int, ...], extra: str) -> None:
    """Raise `SourceError` for a version of a package that is known to be too old."""
    number = re.match(r"\d+(\.\d+)+", found)
    if number and tuple(map(int, number[0].split("."))) < oldest:
        bound = ".".join(map(str, oldest))
        raise SourceError(
            f"opgraph traces with {package} {bound} or newer, and here is {package} {found}",
            hint=f"pip install -U 'opgraph[{extra}]' brings a newer one",
        )


def _installed() -> str | None:
    """The version of torch, empty where it does not say one; None where there is no torch."""
    loaded = sys.modules.get("torch")
    if loaded is not None:
        return str(getattr(loaded, "__version__", ""))
    try:
        if find_spec("torch") is None:
            return None
    except (ImportError, ValueError):
        return None
    return installed("torch") or ""  # built in a folder, and not installed


@cache
def installed(package: str) -> str | None:
    """The version of a package that is installed; None where it is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def plug_ins(group: str) -> EntryPoints:
    """What other packages add to a group of entry points."""
    found: EntryPoints = _all_plug_ins().select(group=group)
    return found


@cache
def _all_plug_ins() -> Any:
    return entry_points()  # once, for each look goes through all packages that are installed
