"""Lists of nodes for files and scripts: Markdown and JSON (CSV is a view of its own)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opgraph import units
from opgraph.analysis import GENERIC_RIDGE
from opgraph.analysis.endings import endings
from opgraph.analysis.fusion import Subgraph
from opgraph.analysis.prediction import predict
from opgraph.document import Profile
from opgraph.graph import Node, Shape
from opgraph.hardware import Device
from opgraph.jsontext import dumps
from opgraph.views.nodes import NodeRow, node_rows
from opgraph.views.records import Record
from opgraph.views.terminal import safe

_COLUMNS: dict[str, Callable[[NodeRow], str]] = {
    "#": lambda row: str(row.id),
    "operator": lambda row: row.op,
    "name": lambda row: row.name,
    "in → out": lambda row: f"{_shapes(row.inputs)} → {_shapes(row.outputs)}",
    "params": lambda row: units.count(row.parameters) if row.parameters else "",
    "FLOPs": lambda row: units.flops(row.flops) if row.flops else "",
    "traffic": lambda row: units.size(row.bytes) if row.bytes else "",
    "FLOPs/byte": lambda row: "" if row.intensity is None else units.intensity(row.intensity),
    "bound": lambda row: row.bottleneck or "",
    "time": lambda row: units.seconds(row.seconds) if row.seconds else "",
    "source": lambda row: row.place,
}
_NUMBERS = frozenset({"#", "params", "FLOPs", "traffic", "FLOPs/byte", "time", "subgraph"})


def as_markdown(
    profile: Profile,
    nodes: Sequence[Node],
    notes: Sequence[str] = (),
    *,
    ridge: float = GENERIC_RIDGE,
    parts: Sequence[Subgraph] = (),
    device: Device | None = None,
) -> str:
    """A table of the nodes with their formatted figures; with `device` also predicted times, with `parts`
    the subgraphs that they are in, each explained below."""
    seconds = None if device is None else predict(profile.graph, device).by_node
    columns = {h: c for h, c in _COLUMNS.items() if h != "time" or device is not None}
    home = {node: part for part in parts for node in part.nodes}
    heads = [*columns, *(["subgraph"] if parts else [])]
    lines = [
        f"## {markdown_cell(profile.model.name)}",
        "",
        _line(heads),
        "|" + "|".join("---:" if h in _NUMBERS else "---" for h in heads) + "|",
    ]
    for row in node_rows(profile, nodes, ridge, seconds):
        cells = [markdown_cell(column(row)) for column in columns.values()]
        lines.append(_line([*cells, *([str(home[row.id].id)] if parts else [])]))
    ends = endings(profile.graph, parts)
    listed = dict.fromkeys(home[n.id] for n in nodes) if parts else {}
    lines += ["", *(_explained(part, ends[part.id]) for part in listed)] if listed else []
    return "\n".join([*lines, *(f"\n{markdown_cell(note)}" for note in notes)]) + "\n"


def as_json(profile: Profile, nodes: Sequence[Record], notes: Sequence[str] = ()) -> str:
    """Records of nodes as JSON, with the model's name and the notes."""
    data = {"model": profile.model.name, "nodes": list(nodes), "notes": list(notes)}
    return dumps(data, indent=1) + "\n"


def _explained(part: Subgraph, end: str) -> str:
    """What rule made a subgraph, why, and why it ends."""
    said = markdown_cell(f"{part.rule}: {part.reason}; ends: {end}")
    return f"- subgraph {part.id}, {units.plural(len(part.nodes), 'node')}, {said}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _shapes(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(units.shape, shapes))


def markdown_cell(text: str) -> str:
    """Text that cannot break out of a cell of a Markdown table."""
    plain = safe(text, 300)
    for sign in "\\`*_{}[]<>|":
        plain = plain.replace(sign, "\\" + sign)
    return plain
