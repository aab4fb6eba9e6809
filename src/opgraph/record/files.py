"""Writing files so that they appear whole or not at all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

from opgraph.record.errors import RenderError


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write to a temporary file beside `path`, then rename it; what was there before stays until then.
    Where the system can, the file has no name while it is written: a process that is killed leaves nothing.

    Raises `RenderError` when the folder or the file cannot be written.
    """
    target = Path(path)
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    try:
        target = target.resolve()
        if target.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        if _passes_on(path):
            with Path(path).open("wb") as file:
                file.write(data)
            return
        temporary = target.with_name(f".opgraph-{os.urandom(8).hex()}")
        try:
            _write(temporary, data, target)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except (OSError, RuntimeError) as error:
        raise _unwritable(path, error) from error


def _passes_on(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a pipe or a device, which is written to and never replaced."""
    target = Path(path)
    return target.exists() and not target.is_file() and not target.is_dir()


def _write(temporary: Path, data: bytes, target: Path) -> None:
    """Make the temporary file, with the permissions of the target where there is one."""
    try:
        handle = os.open(temporary.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
        with os.fdopen(handle, "wb") as file:
            _fill(file, data, target)
            # Python follows this link to the file only where it is given a folder, too; any handle will do.
            os.link(f"/proc/self/fd/{handle}", temporary, src_dir_fd=handle, follow_symlinks=True)
    except (AttributeError, OSError):
        # A system or a file system without such files, or the same error in a moment.
        with temporary.open("xb") as file:
            _fill(file, data, target)


def _fill(file: IO[bytes], data: bytes, target: Path) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
    if target.exists() and hasattr(os, "fchmod"):
        os.fchmod(file.fileno(), target.stat().st_mode & 0o7777)


def ensure_writable(path: str | os.PathLike[str]) -> None:
    """Find out before the work whether a file could be written, without leaving anything.

    Raises `RenderError` when it could not.
    """
    import tempfile  # takes longer than all else here

    target = Path(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        if _passes_on(path):
            return
        with tempfile.TemporaryFile(dir=target.resolve().parent):
            pass
    except (OSError, RuntimeError) as error:
        raise _unwritable(path, error) from error


def suffix_of(path: str | os.PathLike[str], known: Collection[str], writer: str) -> str:
    """The suffix of a file in lower case, one of those that `writer` writes.

    Raises `RenderError` when it is another: the file may hold something else.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in known:
        raise RenderError(f"{writer} does not write {suffix or 'files without a suffix'}",
                          hint=f"one of {', '.join(known)}")  # fmt: skip
    return suffix


def _unwritable(path: str | os.PathLike[str], error: Exception) -> RenderError:
    """What is said of a file that cannot be written, and what helps where its folder is not there."""
    from shlex import quote  # only a mistake needs it

    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    folder = Path(path).parent
    missing = isinstance(error, FileNotFoundError) and not folder.exists()
    hint = f"mkdir -p {quote(str(folder))}" if missing else None
    return RenderError(f"cannot write {path}: {why}", hint=hint)


# JSON as opgraph writes it: UTF-8 that people can read, in which control characters and those that reorder
# or hide text are escaped, since it may well end up on a terminal. Nothing here imports torch.

_HIDDEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Characters of the categories Cc, Cf, Cs, Zl and Zp beyond ASCII; json escapes those of ASCII itself."""


def dumps(
    data: Any, *, indent: int | None = None, separators: tuple[str, str] | None = None
) -> str:
    """The data as JSON text. Raises `ValueError` for NaN and infinities, which JSON has not."""
    text = json.dumps(
        data, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators
    )
    return text if text.isascii() and "\x7f" not in text else _HIDDEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
