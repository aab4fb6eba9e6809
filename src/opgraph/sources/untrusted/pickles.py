"""Opening checkpoints without trusting them. A `.pt` file is a pickle, and a pickle can call whatever it
names, so only the classes that Ultralytics and torch checkpoints need are let in, and of model classes only
the bare object: their constructors, some of which evaluate text, cannot be called from a file.
"""

from __future__ import annotations

import enum
import importlib
import pathlib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import torch
from torch import nn

from opgraph.record.errors import SourceError, UntrustedFile

# Zip archives, as torch writes its files, before anything in them is unpacked. torch takes the memory that
# a member says it needs, so what they say together must be in proportion to the file.

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


_MODULES = (
    "torch.nn.",
    "torchvision.models.",
    "torchvision.ops.",
    "ultralytics.nn.modules.",
    "ultralytics.nn.tasks.",
    "timm.models.",
    "timm.layers.",
)
_DATA = (
    "collections.OrderedDict", "collections.defaultdict", "types.SimpleNamespace", "argparse.Namespace",
    "datetime.datetime", "datetime.timedelta", "builtins.set", "builtins.slice", "builtins.complex",
    "numpy.dtype", "numpy.ndarray",
)  # fmt: skip
_RENAMED = {
    "ultralytics.yolo.utils.IterableSimpleNamespace": "ultralytics.utils.IterableSimpleNamespace",
    "ultralytics.nn.modules.block.Silence": "torch.nn.modules.linear.Identity",
    "ultralytics.nn.tasks.YOLOv10DetectionModel": "ultralytics.nn.tasks.DetectionModel",
}
TRUST = "if you trust where the file comes from, add --trust"
_PATHS = ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath", "Path", "PurePath")
_INERT = ("ultralytics.utils.loss.", "ultralytics.utils.tal.", "ultralytics.utils.IterableSimpleNamespace",
          "torchvision.transforms.")  # fmt: skip
"""Classes that come along in checkpoints and that a forward does not need: kept as plain records."""


def open_checkpoint(path: Path, *, trust: bool = False) -> Any:
    """What a `.pt` file holds. Raises `UntrustedFile` for a pickle that wants more than the allow-list,
    and `SourceError` for a file that is no checkpoint."""
    if trust:
        return _load(path, weights_only=False)
    check_size(path)
    try:
        wanted = torch.serialization.get_unsafe_globals_in_checkpoint(str(path))
    except Exception as error:
        if "torchscript" in str(error):
            raise SourceError(
                f"{path} is a TorchScript archive, which has no modules to look into",
                hint="torch.export.save the model instead, or profile its code: model.py:build",
            ) from error
        raise SourceError(f"{path} is not a checkpoint: {_line(error)}") from error
    bare: dict[type, type] = {}
    allowed = [(_allow(name, path, bare), name) for name in wanted]
    import numpy as np

    allowed += [
        (type(np.dtype(kind)), "") for kind in ("f2", "f4", "f8", "i4", "i8", "u1", "b1") if wanted
    ]
    entries = [entry if entry[1] else entry[0] for entry in allowed]
    with torch.serialization.safe_globals(entries):
        content = _load(path, weights_only=True)
    _restore(content, bare)
    return content


def unsafe_names(data: IO[bytes]) -> list[str]:
    """What a pickled tensor file asks for beyond plain tensors; everything, if it cannot be told."""
    try:
        return list(torch.serialization.get_unsafe_globals_in_checkpoint(data))
    except Exception as error:  # noqa: BLE001 - what cannot be read cannot be vouched for
        return [f"something unreadable ({_line(error)})"]


def refuse(path: Path, name: str) -> UntrustedFile:
    return UntrustedFile(
        f"{path} is a pickle that wants to run {name}",
        hint=TRUST,
    )


def _load(path: Path, *, weights_only: bool) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=weights_only)
    except UntrustedFile as error:
        raise UntrustedFile(f"{path}: {error}", hint=TRUST) from error
    except Exception as error:
        text = str(error)
        if weights_only and (
            "Unsupported" in text or "allowlist" in text or "unrecognized" in text
        ):
            raise refuse(path, "what it should not: " + _line(error)) from error
        raise SourceError(f"{path} cannot be opened: {_line(error)}") from error


def _allow(name: str, path: Path, bare: dict[type, type]) -> Any:
    """What stands for this name while the file is read. Raises `UntrustedFile`."""
    module, _, last = name.rpartition(".")
    if module in ("pathlib", "pathlib._local") and last in _PATHS:
        return pathlib.PurePosixPath
    if name == "builtins.getattr":
        return _attribute
    if name in ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"):
        import numpy as np

        return np.float64(0).__reduce__()[0]
    if name in ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"):
        import numpy as np

        return np.zeros(1).__reduce__()[0]
    name = _RENAMED.get(name, name)
    if name in _DATA:
        return _found(name)
    if name.startswith(_INERT):
        found = _found(name)
        return found if isinstance(found, type) and issubclass(found, enum.Enum) else _record(last)
    if name.startswith(_MODULES):
        found = _found(name)
        if isinstance(found, type) and issubclass(found, enum.Enum):
            return found
        if isinstance(found, type) and issubclass(found, nn.Module):
            return bare.setdefault(found, _without_constructor(found))
    raise refuse(path, name)


def _found(name: str) -> Any:
    module, _, last = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), last)
    except (ImportError, AttributeError):
        return None


def _without_constructor(cls: type) -> type:
    """The class as a pickle may have it: its objects can be made and filled, its constructor not called."""

    def refused(_self: Any, *_args: Any, **_kwargs: Any) -> None:
        raise UntrustedFile(f"the file calls the constructor of {cls.__name__}")

    return type(cls.__name__, (cls,), {"__init__": refused, "__module__": cls.__module__})


def _record(name: str) -> type:
    """A class of plain records that take any state."""

    def keep(_self: Any, *_args: Any, **_kwargs: Any) -> None:
        """Arguments of a class that nobody calls are not kept."""

    return type(name, (SimpleNamespace,), {"__init__": keep})


def _attribute(owner: Any, name: str) -> Any:
    """`getattr` as checkpoints use it: another forward of a model class (of fused layers), or a member of
    an enumeration."""
    module = isinstance(owner, nn.Module) or _is(owner, nn.Module)
    if module and isinstance(name, str) and name.startswith("forward"):
        return getattr(owner, name)
    if _is(owner, enum.Enum) and name in owner.__members__:
        return owner[name]
    raise UntrustedFile(f"the file reads {name!r:.60} of {type(owner).__name__}")


def _is(owner: Any, cls: type) -> bool:
    return isinstance(owner, type) and issubclass(owner, cls)


def _restore(content: Any, bare: Mapping[type, type]) -> None:
    """Give the modules in a loaded object their real classes back."""
    real = {stand: cls for cls, stand in bare.items()}
    for root in _modules_in(content):
        for module in root.modules():
            cls = real.get(type(module))
            if cls is not None:
                module.__class__ = cls


def _modules_in(content: Any) -> Iterable[nn.Module]:
    if isinstance(content, nn.Module):
        yield content
    elif isinstance(content, Mapping):
        for value in content.values():
            if isinstance(value, nn.Module):
                yield value


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
