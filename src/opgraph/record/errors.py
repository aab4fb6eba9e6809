"""The errors that opgraph raises on purpose.

    OpgraphError
    ├── SourceError            the model cannot be found or built
    │   ├── UnknownModel       no source knows the name (with the nearest names)
    │   ├── MissingDependency  a package is not installed (with the extra that brings it)
    │   └── UntrustedFile      a pickle that wants more than the allow-list
    ├── InputError             example inputs cannot be made or do not fit
    ├── TraceError             no tracer got through (with every attempt and its reason)
    ├── ProfileError           a file that is not a profile, is newer, or is broken
    └── RenderError            a view cannot be drawn or written

Each has a one-line message and, where it helps, a one-line `hint`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any


class OpgraphError(Exception):
    """The base of all errors of opgraph. `hint` says what to do about it, where that is known."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint is not None:
            self.add_note(f"hint: {hint}")


class SourceError(OpgraphError):
    """The model cannot be found or built."""


class UnknownModel(SourceError):
    """No source knows the name."""


class MissingDependency(SourceError):
    """A package that this model or view needs is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed", hint=f"pip install 'opgraph[{extra}]' brings it"
        )
        self.package = package
        self.extra = extra


class UntrustedFile(SourceError):
    """A pickle that wants more than the allow-list."""


class InputError(OpgraphError):
    """Example inputs cannot be made, or do not fit the model."""


class TraceError(OpgraphError):
    """No tracer got through the model. Where the forward raised, `profile` holds the graph up to there."""

    profile: Any = None


class ProfileError(OpgraphError):
    """A file that is not a profile, is of a newer version, or is broken."""


class RenderError(OpgraphError):
    """A view cannot be drawn or written."""


_BEGINNING = 3
"""Characters that say less than what was meant."""


def did_you_mean(
    name: str, known: Iterable[str], count: int = 3, cutoff: float = 0.6
) -> str | None:
    """A hint with the nearest of the names that are known, or one that begins so; None without either."""
    from difflib import get_close_matches  # only a mistake needs it

    names = list(known)
    near = get_close_matches(name, names, count, cutoff)
    if not near and len(name) > _BEGINNING:
        near = sorted(n for n in names if n.startswith(name))[:1]
    return f"did you mean {', '.join(near)}?" if near else None


def one_of(asked: str, known: Iterable[str]) -> str:
    """A hint with what can be chosen, the nearest first."""
    from difflib import get_close_matches

    names = list(known)
    return f"one of {', '.join(dict.fromkeys([*get_close_matches(asked, names, 1), *names]))}"


def words(error: BaseException | str) -> str:
    """What an error says; nothing where it fails to."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (errors of a model may answer as they like)
        return ""


def first_line(error: BaseException) -> str:
    """An error in one line: its class, unless it is opgraph's own, and the first line of what it says, with
    the next one where a colon leads to it."""
    lines = [line.strip() for line in words(error).splitlines() if line.strip()]
    own = isinstance(error, OpgraphError)
    text = ": ".join([*([] if own and lines else [type(error).__name__]), *lines[:1]])
    if text.endswith(":") and len(lines) > 1:
        text = f"{text} {lines[1]}"
    return text if len(text) <= 300 else text[:299] + "…"


def beside(path: str) -> str:
    """A hint for a file that is not there: those of like names in its folder, or where that is."""
    folder, name = os.path.split(path)
    if os.path.exists(path):  # noqa: PTH110
        return f"{path} is there, but no file on a disk, which it has to be"
    try:
        there = os.listdir(folder or ".")  # noqa: PTH208
    except (OSError, ValueError):
        return f"there is no folder {folder}, seen from {os.getcwd()}"  # noqa: PTH109
    return did_you_mean(name, there) or f"it was looked for in {os.path.realpath(folder)}"
