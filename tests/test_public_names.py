"""What others may use, locked: a name that comes or goes is a change of this table, made on purpose."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import opgraph

PUBLIC = {
    "opgraph": (
        "Atlas Comparison Costed Graph InputError Measured MissingDependency OpgraphError Profile "
        "ProfileError RenderError Serving SourceError Sweep TraceError UnknownModel UntrustedFile "
        "__version__ atlas check compare join load measure plan profile ranks recording serve survey sweep "
        "trace"
    ),
    "opgraph.api": "compare load profile trace",
    "opgraph.checking": "ALL check",
    "opgraph.cli": "COMMANDS main process whole_parser",
    "opgraph.exporting": "EXPORTERS Exported Exporter exporter_for",
    "opgraph.hardware": "Device Figure UnknownDevice cluster device devices",
    "opgraph.measuring": "measured step_of",
    "opgraph.inputs": ("Example InputRequest OpenSize TensorSpec inputs_at make_inputs open_sizes"),
    "opgraph.inputs.rules": "RULES Rule audio images rule structured text",
    "opgraph.options": (
        "AXES CAPTURED CONVENTIONS Commanding Costing NAMES ON_PAPER OPTIONS Option Options "
        "PRECISION QUANTIZED SETTINGS SIZES Showing Stage TRACED TensorSpec check_needs checked "
        "named_options names option options_of targeted"
    ),
    "opgraph.results": (
        "CheckedTracers Comparison Costed Measured Plan Profile Serving ServingPlan Sweep compared load"
    ),
    "opgraph.views.schemas": "FOLDER VERSION schema",
    "opgraph.sources": "BuildOptions Model Source resolve sources",
    "opgraph.sources.libraries": "Library lazy_imports registered",
    "opgraph.surveying": "Answer Atlas atlas survey",
    "opgraph.traces": "join joined read",
    "opgraph.tracing": "Tracer plain_difference trace tracer_named tracers",
    "opgraph.tracing.target": "Substitutes",
    "opgraph.views": "Kind Result View choices heeded render view_for view_named views views_of",
    "opgraph.views.picture.layout": "Geometry Rect Spacing arrange",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_these_names_are_public(module: str) -> None:
    found = import_module(module)
    assert sorted(found.__all__) == sorted(PUBLIC[module].split())
    assert [name for name in found.__all__ if not hasattr(found, name)] == []


def test_every_room_that_offers_names_is_here() -> None:
    root = Path(opgraph.__file__).parent
    rooms = [
        ".".join(("opgraph", *path.relative_to(root).parent.parts))
        for path in root.rglob("__init__.py")
        if "\n__all__ = " in path.read_text(encoding="utf-8")
    ]
    assert sorted(rooms) == sorted(PUBLIC)
