"""Profiles of names, kept in the user's cache folder: a name, the options and the versions say what the
profile of a library's own model is, so the second command about it need not trace it, nor import torch.

Files of one's own that hold a model without code (checkpoints, programs, a `config.json`) are hashed. What
depends on more is not kept: code of one's own, models that a network or a hub's cache gave, forwards that
failed. The folder is that of the system (`XDG_CACHE_HOME`, `LOCALAPPDATA`), or
`OPGRAPH_CACHE`; with `OPGRAPH_CACHE=0` nothing is kept. A profile is written whole or not at all; of many
processes that keep the same one, one is kept; where nothing can be written, nothing is.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from opgraph.options import Options
from opgraph.record.errors import OpgraphError
from opgraph.record.files import write_atomically
from opgraph.record.loading import load
from opgraph.record.profile import ProfileRecord
from opgraph.record.versions import installed, plug_ins
from opgraph.sources.files import CONFIG, FILES
from opgraph.version import __version__

__all__ = ["Kept", "clear", "folder", "keep", "kept", "place", "used"]

VARIABLE = "OPGRAPH_CACHE"
MOST = 512 * 2**20
"""Bytes that the folder may take: the profiles that were not asked for the longest go first."""

_LIBRARIES = ("torch", "torchvision", "timm", "transformers", "ultralytics", "diffusers", "numpy")
_GROUPS = ("opgraph.sources", "opgraph.hardware", "opgraph.views")


class Kept(NamedTuple):
    """A profile that is kept: its file, its bytes, when it was last used, in seconds of the epoch, and the
    name of its model (empty where the file does not say)."""

    path: Path
    bytes: int
    used: float
    model: str


def folder() -> Path | None:
    """Where profiles are kept; None where they are not."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given) if given not in ("", "0") else None
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or _at_home(
            "Library/Caches" if sys.platform == "darwin" else ".cache"
        )
    return Path(base) / "opgraph" if base else None


def _at_home(name: str) -> str | None:
    try:
        return str(Path.home() / name)
    except RuntimeError:  # there is no home
        return None


def place(spec: str, options: Options) -> Path | None:
    """The file of a profile; None for what is not kept."""
    where = folder()
    own = None if options.trust or not spec.strip() else _own_files(spec)
    if where is None or own is None:
        return None
    asked = [f"{f.name}={getattr(options, f.name)!r}" for f in fields(options)]
    parts = (
        spec,
        *own,
        *asked,
        platform.platform(),
        sys.version,
        __version__,
        *_versions(),
        _own_source(),
    )
    name = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    return where / "profiles" / f"{name[:40]}.json"


def kept(path: Path) -> ProfileRecord | None:
    """The profile in a file of the cache; None where there is none. One that is broken is removed."""
    if not path.is_file():
        return None
    try:
        found = load(path)
    except OpgraphError:
        with suppress(OSError):
            path.unlink()
        return None
    with suppress(OSError):
        os.utime(path)
    return found


def keep(path: Path, profile: ProfileRecord) -> None:
    """Keep a profile, if it is one that only its name, the options and the versions say; where it cannot be
    written, nothing happens."""
    from opgraph.analysis.costed import CostedRecord
    from opgraph.sources.registry import is_configured
    from opgraph.views.files.json import to_json

    source, name = profile.model.source, profile.model.name
    hashed = source == "file" or (source == "hf" and (Path(name) / CONFIG).is_file())
    if profile.graph.failed is not None or not (hashed or is_configured(source, name)):
        return
    with suppress(OSError, OpgraphError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, to_json(CostedRecord(profile)))
        _trim(path)


def used() -> list[Kept]:
    """All profiles that are kept, the last used first."""
    where = folder()
    found = []
    for path in (where / "profiles").glob("*.json") if where is not None else ():
        with suppress(OSError):  # another process removed it
            stat = path.stat()
            found.append(Kept(path, stat.st_size, stat.st_mtime, _model_of(path)))
    return sorted(found, key=lambda k: -k.used)


def _model_of(path: Path) -> str:
    """The name of the model from the beginning of a profile: most of it is the graph."""
    with path.open("rb") as file:
        head = file.read(2000).decode("utf-8", "replace")
    name = re.search(r'"model": \{\s*"name": ("(?:[^"\\]|\\.)*")', head)
    try:
        return "" if name is None else str(json.loads(name[1]))
    except ValueError:
        return ""


def clear() -> int:
    """Remove all profiles that are kept; how many there were."""
    all_of_them = used()
    for each in all_of_them:
        with suppress(OSError):
            each.path.unlink()
    return len(all_of_them)


def _trim(newest: Path) -> None:
    total = 0
    for each in used():
        total += each.bytes
        if total > MOST and each.path != newest:
            with suppress(OSError):
                each.path.unlink()


def _own_files(spec: str) -> list[str] | None:
    """The hashes of the files here that are meant; None where one may be code, or is too large."""
    base = spec.partition(":")[0]
    try:
        path = Path(spec) / CONFIG if Path(spec).is_dir() else Path(spec)
        if path.suffix in (*FILES, ".json") and path.is_file() and path.stat().st_size <= MOST:
            with path.open("rb") as file:
                return [hashlib.file_digest(file, "sha256").hexdigest()]
        own = base.endswith(".py") or path.exists() or Path(base).exists()
    except (OSError, ValueError):
        own = True
    return None if own else []


def _versions() -> Iterator[str]:
    """The versions of the model libraries and of all plug-ins."""
    yield from (f"{name} {found}" for name in _LIBRARIES if (found := installed(name)) is not None)
    for group in _GROUPS:
        for point in plug_ins(group):
            yield f"{point} {'' if point.dist is None else point.dist.version}"


def _own_source() -> str:
    """The hash of opgraph's own source where it is not an installed release, which its version names."""
    root = Path(__file__).parents[1]
    if "site-packages" in root.parts:
        return ""
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".toml"):
            found.update(path.read_bytes())
    return found.hexdigest()
