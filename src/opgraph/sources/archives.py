"""Zip archives, as torch writes its files, before anything in them is unpacked. torch takes the memory that
a member says it needs, so what they say together must be in proportion to the file."""

from __future__ import annotations

import zipfile
from pathlib import Path

from opgraph.errors import SourceError

_RATIO = 4
_SLACK = 64 * 2**20
"""torch stores its members as they are. What was packed by hand may unpack to so many times the size of the
file, and so many bytes more."""
_MOST_MEMBERS = 1_000_000


def check_size(path: Path) -> None:
    """Raise `SourceError` for an archive that unpacks to far more than it is, or names a member twice (of
    which two readers may take different ones). What is no archive is left to whoever reads it."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError):
        return
    total = sum(m.file_size for m in members)
    if total > _RATIO * path.stat().st_size + _SLACK or len(members) > _MOST_MEMBERS:
        raise SourceError(f"{path} unpacks to {total:,} bytes, far more than it is")
    if len({m.filename for m in members}) < len(members):
        raise SourceError(f"{path} holds two members of one name")
