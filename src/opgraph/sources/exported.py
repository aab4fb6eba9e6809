"""Saved `torch.export` programs: `.pt2` archives, looked into before torch opens them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opgraph.document import ModelInfo
from opgraph.errors import SourceError
from opgraph.sources.archives import check_size
from opgraph.sources.base import Model
from opgraph.sources.building import first_line, undisturbed
from opgraph.sources.vouching import vouch


def open_program(path: Path, *, trust: bool = False) -> Model:
    """The program in a `.pt2` file as a module, with the example inputs it was exported with.

    Raises `UntrustedFile` when the archive could run code, and `SourceError` when it is no program.
    """
    import torch

    if not trust:
        check_size(path)
        vouch(path)
    try:
        with undisturbed():
            program: Any = torch.export.load(str(path))
            # The guards are Python source, and say nothing of what the program costs.
            module = program.module(check_guards=False)
    except Exception as error:
        raise SourceError(f"{path} is not an exported program: {first_line(error)}") from error
    info = ModelInfo(path.name, "file", "torch.export.ExportedProgram", (f"from the file {path}",))
    hints = {"example": program.example_inputs} if program.example_inputs is not None else {}
    return Model(module, info, None, hints)
