"""Where in a person's source something happens: the nearest frame that is neither torch's nor opgraph's."""

from __future__ import annotations

import re
import sys
import sysconfig
import traceback
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType

import torch

from opgraph.record.errors import first_line

_TORCH = str(Path(torch.__file__).parent) + "/"
_OPGRAPH = str(Path(__file__).parents[1]) + "/"
_LIBRARIES = sorted(
    {sysconfig.get_path("purelib") + "/", sysconfig.get_path("platlib") + "/",
     str(Path(torch.__file__).parents[1]) + "/", sysconfig.get_path("stdlib") + "/"},
    key=len, reverse=True,
)  # fmt: skip

Location = tuple[str | None, int | None]


@lru_cache(maxsize=4096)
def shown(filename: str) -> str | None:
    """The path as a person should read it, the same on every machine; None for torch's own files and
    opgraph's, which nobody looks for."""
    if filename.startswith((_TORCH, _OPGRAPH, "<frozen", "<eval_with_key>")):
        return None
    for library in _LIBRARIES:
        if filename.startswith(library):
            return filename[len(library) :]
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return filename


def current_location(outermost: CodeType, above: int = 1) -> Location:
    """The file and line of the nearest frame of the user's code so many frames `above`, up to the one that
    runs `outermost` (what called the model is not the model)."""
    frame: FrameType | None = sys._getframe(above)
    while frame is not None and (code := frame.f_code) is not outermost:  # each look is audited
        name = shown(code.co_filename)
        if name is not None:
            return name, frame.f_lineno
        frame = frame.f_back
    return None, None


def raised_location(trace: TracebackType | None) -> Location:
    """The file and line of the deepest frame of the user's code in a traceback."""
    found: Location = (None, None)
    for frame, line in traceback.walk_tb(trace):
        name = shown(frame.f_code.co_filename)
        if name is not None:
            found = (name, line)
    return found


def raised_at(error: BaseException) -> str:
    """The rest of a sentence on what cannot be done: where in whose code, and why, in one line."""
    file, line = raised_location(error.__traceback__)
    return f"{f' ({file}:{line})' if file else ''}: {first_line(error)}"


_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')


@lru_cache(maxsize=4096)
def traced_location(text: str | None) -> Location:
    """The file and line of the deepest frame of the user's code in a printed stack, as the tools of
    torch keep it with a node."""
    for name, line in reversed(_FRAME.findall(text or "")):
        seen = shown(name)
        if seen is not None:
            return seen, int(line)
    return None, None
