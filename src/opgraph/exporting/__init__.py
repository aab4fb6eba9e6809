"""Formats that need the model itself, not only its profile: Python, a `torch.export` program, ONNX,
StableHLO. An exporter is one function and one line here; torch is imported when one is used."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from opgraph.record.turns import turn

if TYPE_CHECKING:
    from opgraph.inputs.base import Example
    from opgraph.sources.base import Model

__all__ = ["EXPORTERS", "Exported", "Exporter", "exporter_for"]


@dataclass(frozen=True, slots=True)
class Exported:
    """The content of a file, and remarks on it for the person."""

    content: bytes
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exporter:
    """A format: its name, its suffix, the tracers that it can be made from, and where it is
    ("module:function")."""

    name: str
    suffix: str
    tracers: tuple[str, ...]
    target: str

    def run(self, model: Model, example: Example, tracer: str) -> Exported:
        """Export a model, for the arguments of one call. Raises `TraceError` or `RenderError`."""
        module, _, function = self.target.partition(":")
        found: Callable[[Model, Example, str], Exported] = getattr(import_module(module), function)
        with turn():
            return found(model, example, tracer)


EXPORTERS = (
    Exporter("python", ".py", ("export", "dynamo", "fx"), "opgraph.exporting.python:to_python"),
    Exporter("pt2", ".pt2", ("export",), "opgraph.exporting.programs:to_pt2"),
    Exporter("onnx", ".onnx", ("export",), "opgraph.exporting.programs:to_onnx"),
    Exporter("stablehlo", ".mlir", ("export",), "opgraph.exporting.programs:to_stablehlo"),
)


def exporter_for(path: str | os.PathLike[str] | None, name: str | None = None) -> Exporter | None:
    """The exporter of that name or suffix, if any."""
    suffix = "" if path is None else Path(path).suffix.lower()
    for exporter in EXPORTERS:
        if exporter.name == name or (name is None and exporter.suffix == suffix):
            return exporter
    return None
