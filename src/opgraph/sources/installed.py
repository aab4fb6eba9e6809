"""What installed packages offer, read from their source text without importing them: listing a
thousand names must not cost the seconds that importing torch takes."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from opgraph.record.errors import MissingDependency


def folder(package: str) -> Path | None:
    """The folder of an installed top-level package; None when it is not installed."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec and spec.origin else None


EXTRAS = {"torchvision": "torchvision", "timm": "timm", "ultralytics": "yolo",
          "transformers": "transformers", "diffusers": "diffusers"}  # fmt: skip
"""The extra of opgraph that brings a model library."""
_NAMING = ("torchvision", "timm", "ultralytics")
"""Those of which it takes the library itself to know the names of its models."""


def require(package: str) -> Path:
    """The folder of a model library. Raises `MissingDependency` when it is not installed."""
    found = folder(package)
    if found is None:
        raise MissingDependency(package, EXTRAS[package])
    return found


def absent() -> str | None:
    """A sentence on the libraries whose names are not known here; None where all are installed."""
    missing = [package for package in _NAMING if folder(package) is None]
    if not missing:
        return None
    extras = ",".join(EXTRAS[package] for package in missing)
    return f"models of {' and '.join(missing)} are known with pip install 'opgraph[{extras}]'"


@cache
def registered(package: str, subfolder: str, pattern: str) -> Mapping[str, str]:
    """The names that `pattern` finds in the package's source files (any of its groups), each with the
    stem of its file, under the folder the file is in where that is deeper."""
    root = folder(package)
    if root is None:
        return {}
    wanted = re.compile(pattern)
    top = root / subfolder
    return {
        next(group for group in match.groups() if group): str(file.relative_to(top).with_suffix(""))
        for file in sorted(top.rglob("*.py"))
        for match in wanted.finditer(file.read_text(encoding="utf-8"))
    }
