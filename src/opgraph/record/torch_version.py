"""Whether the torch that is there can trace. Only its version is read: nothing is imported."""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from opgraph.record.errors import MissingDependency, SourceError

__all__ = ["OLDEST", "installed", "require_torch"]

OLDEST = (2, 14)
"""The oldest torch that opgraph traces with; pyproject.toml says the same (a test holds both together)."""


def require_torch(extra: str = "torch") -> None:
    """Raise `MissingDependency` without torch, and `SourceError` with one that is too old. `extra` brings
    torch, or the library of the model that is to be traced, too."""
    found = _installed()
    if found is None:
        raise MissingDependency("torch", extra)
    number = re.match(r"(\d+)\.(\d+)", found)
    if number and (int(number[1]), int(number[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise SourceError(
            f"opgraph traces with torch {oldest} or newer, and here is torch {found}",
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
