"""Saved `torch.export` programs. A `.pt2` archive is JSON and raw tensors, with pickles where those do not
do, and torch evaluates some of its texts: both are looked at before torch opens it."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opgraph.document import ModelInfo
from opgraph.errors import SourceError, UntrustedFile
from opgraph.sources.base import Model
from opgraph.sources.building import first_line, undisturbed
from opgraph.sources.pickles import TRUST, refuse, unsafe_names

_EXPRESSION = re.compile(r"[\w\s+\-*/%(),.<>=&|~]*")
_TARGET = re.compile(r"torch\.ops\.\w+\.\w+(\.\w+)?|_?operator\.\w+|math\.\w+|torch\.sym_\w+")
_HELD = (
    "torch.load",
    "torch.save",
    "torch.compile",
    "operator.methodcaller",
    "operator.attrgetter",
)


def open_program(path: Path, *, trust: bool = False) -> Model:
    """The program in a `.pt2` file as a module, with the example inputs it was exported with.

    Raises `UntrustedFile` when the archive could run code, and `SourceError` when it is no program.
    """
    import torch

    if not trust:
        _vouch(path)
    try:
        with undisturbed():
            program: Any = torch.export.load(str(path))
            module = program.module()
    except Exception as error:
        raise SourceError(f"{path} is not an exported program: {first_line(error)}") from error
    info = ModelInfo(path.name, "file", "torch.export.ExportedProgram", (f"from the file {path}",))
    hints = {"example": program.example_inputs} if program.example_inputs is not None else {}
    return Model(module, info, None, hints)


def _vouch(path: Path) -> None:
    """Refuse an archive with anything but plain tensors, known operators and arithmetic."""
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if (
                    name.endswith((".so", ".o", ".cpp", ".py"))
                    or "custom_obj" in name
                    or "opaque_obj" in name
                ):
                    raise UntrustedFile(
                        f"{path} carries {name.rpartition('/')[2]}, which is more than a graph and tensors",
                        hint=TRUST,
                    )
                if name.endswith(".json"):
                    _vouch_for_json(path, json.loads(archive.read(name)))
            for name in _pickled(archive):
                for wanted in unsafe_names(io.BytesIO(archive.read(name))):
                    raise refuse(path, wanted)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise SourceError(f"{path} is not an exported program: {first_line(error)}") from error


def _pickled(archive: zipfile.ZipFile) -> Iterator[str]:
    """The members that torch would unpickle: sample inputs, and payloads marked so."""
    names = archive.namelist()
    yield from (n for n in names if n.endswith(".pt"))
    for name in names:
        if name.endswith("_config.json"):
            config = json.loads(archive.read(name)).get("config", {})
            folder = name.rpartition("/")[0]
            for payload in config.values():
                if payload.get("use_pickle"):
                    yield next(n for n in names if n == f"{folder}/{payload['path_name']}")


def _vouch_for_json(path: Path, data: Any) -> None:
    stack = [data]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if not _plain(str(item.get("expr_str", ""))):
                raise refuse(path, f"the expression {item['expr_str']!r:.60}")
            if "target" in item and "outputs" in item and not _known(str(item["target"])):
                raise refuse(path, str(item["target"])[:60])
            stack += item.values()
        elif isinstance(item, list):
            stack += item


def _plain(expression: str) -> bool:
    return (
        bool(_EXPRESSION.fullmatch(expression))
        and "__" not in expression
        and not re.search(r"\.[A-Za-z_]", expression)
    )


def _known(target: str) -> bool:
    return target not in _HELD and bool(_TARGET.fullmatch(target))
