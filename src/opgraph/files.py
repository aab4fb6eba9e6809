"""Writing files so that they appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from opgraph.errors import RenderError


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write to a temporary name beside `path`, then rename; what was there before stays until then.

    Raises `RenderError` when the folder or the file cannot be written.
    """
    target = Path(path)
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    try:
        target = target.resolve()
        if target.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    except (OSError, RuntimeError) as error:
        raise RenderError(f"cannot write {path}: {_reason(error)}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_mode(target))
        Path(temporary).replace(target)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise RenderError(f"cannot write {path}: {_reason(error)}") from error
        raise


def ensure_writable(path: str | os.PathLike[str]) -> None:
    """Find out before the work whether a file could be written, without leaving anything.

    Raises `RenderError` when it could not.
    """
    target = Path(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        with tempfile.TemporaryFile(dir=target.resolve().parent):
            pass
    except (OSError, RuntimeError) as error:
        raise RenderError(f"cannot write {path}: {_reason(error)}") from error


def _mode(target: Path) -> int:
    """The permissions the file had, or those a new file would get."""
    if target.exists():
        return target.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
