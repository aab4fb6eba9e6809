"""Lists of nodes for files and scripts: Markdown and JSON (CSV is a view of its own)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from opgraph import units
from opgraph.analysis import GENERIC_RIDGE
from opgraph.document import Profile
from opgraph.graph import Node, Shape
from opgraph.views.nodes import NodeRow, node_rows
from opgraph.views.records import records
from opgraph.views.terminal import safe


def as_markdown(
    profile: Profile, nodes: Sequence[Node], notes: Sequence[str] = (), ridge: float = GENERIC_RIDGE
) -> str:
    """A table of the nodes with their formatted figures."""
    heads = ("#", "operator", "name", "in → out", "params", "FLOPs", "traffic", "FLOPs/byte", "bound",
             "source")  # fmt: skip
    lines = [
        f"## {markdown_cell(profile.model.name)}",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "|".join("---:" if h in ("#", "params", "FLOPs", "traffic", "FLOPs/byte") else "---"
                       for h in heads) + "|",
        *("| " + " | ".join(map(markdown_cell, _formatted(row))) + " |"
          for row in node_rows(profile, nodes, ridge)),
    ]  # fmt: skip
    return "\n".join([*lines, *(f"\n{markdown_cell(note)}" for note in notes)]) + "\n"


def as_json(
    profile: Profile, nodes: Sequence[Node], notes: Sequence[str] = (), ridge: float = GENERIC_RIDGE
) -> str:
    """The nodes as JSON records, with the model's name and the notes."""
    data = {
        "model": profile.model.name,
        "nodes": records(profile, nodes, ridge=ridge),
        "notes": list(notes),
    }
    return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _formatted(row: NodeRow) -> tuple[str, ...]:
    return (
        str(row.id), row.op, row.name, f"{_shapes(row.inputs)} → {_shapes(row.outputs)}",
        units.count(row.parameters) if row.parameters else "",
        units.flops(row.flops) if row.flops else "",
        units.size(row.bytes) if row.bytes else "",
        "" if row.intensity is None else units.intensity(row.intensity),
        row.bottleneck or "", row.place,
    )  # fmt: skip


def _shapes(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(units.shape, shapes))


def markdown_cell(text: str) -> str:
    """Text that cannot break out of a cell of a Markdown table."""
    plain = safe(text, 300)
    for sign in "\\`*_{}[]<>|":
        plain = plain.replace(sign, "\\" + sign)
    return plain
