"""The Markdown view: a report of a profile for a pull request or a wiki, with a diagram that GitHub draws.
Text from a model is escaped so that it stays text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.fusion.partition import Subgraph
from opgraph.analysis.nodes import NodeView, by_op
from opgraph.record import units
from opgraph.record.files import dumps
from opgraph.record.graph import Node, Value
from opgraph.views.files.records import Record
from opgraph.views.picture.diagrams import to_mermaid
from opgraph.views.picture.picture import Options, Picture
from opgraph.views.tables import markdown_cell, markdown_table
from opgraph.views.text.summary import bottleneck_title, facts
from opgraph.views.text.table import Row, cells_of, columns_of, rows

# Lists of nodes for files and scripts: Markdown and JSON (CSV is a view of its own).

_COLUMNS: dict[str, Callable[[NodeView], str]] = {
    "#": lambda row: str(row.id),
    "operator": lambda row: row.op,
    "name": lambda row: row.name,
    "in → out": lambda row: f"{_shapes(row.read)} → {_shapes(row.outputs)}",
    "params": lambda row: units.count(row.elements) if row.elements else "",
    "FLOPs": lambda row: units.flops(row.flops) if row.flops else "",
    "bytes": lambda row: units.size(row.bytes) if row.bytes else "",
    "FLOPs/byte": lambda row: units.intensity(row.arithmetic_intensity) if row.bytes else "",
    "bound": lambda row: row.bound or "",
    "time": lambda row: units.seconds(row.seconds) if row.seconds else "",
    "host": lambda row: units.seconds(row.host_seconds) if row.host_seconds else "",
    "measured": lambda row: units.seconds(row.measured) if row.measured else "",
    "source": lambda row: row.place,
}
_NUMBERS = frozenset(
    {"#", "params", "FLOPs", "bytes", "FLOPs/byte", "time", "host", "measured", "subgraph"}
)


def as_markdown(
    costed: CostedRecord,
    nodes: Sequence[Node],
    notes: Sequence[str] = (),
    *,
    subgraphs: bool = False,
) -> str:
    """A table of the nodes with their formatted figures; on a device also predicted times, with
    `subgraphs` those that they are in, each explained below."""
    parts = costed.parts if subgraphs else ()
    known = (costed.device, "time"), (costed.device, "host"), (costed.measurement, "measured")
    without = {head for found, head in known if found is None}
    columns = {h: c for h, c in _COLUMNS.items() if h not in without}
    home = {node: part for part in parts for node in part.nodes}
    heads = [*columns, *(["subgraph"] if parts else [])]
    body = (
        [*(column(row) for column in columns.values()), *([str(home[row.id].id)] if parts else [])]
        for row in (NodeView(costed, node) for node in nodes)
    )
    numbers = [i for i, head in enumerate(heads) if head in _NUMBERS]
    title = f"## {markdown_cell(costed.profile.model.name)}"
    lines = [title, "", *markdown_table(heads, body, numbers=numbers)]
    listed = dict.fromkeys(home[n.id] for n in nodes) if parts else {}
    lines += (
        ["", *(_explained(part, costed.barriers[part.id]) for part in listed)] if listed else []
    )
    return "\n".join([*lines, *(f"\n{markdown_cell(note)}" for note in notes)]) + "\n"


def as_json(costed: CostedRecord, nodes: Sequence[Record], notes: Sequence[str] = ()) -> str:
    """Records of nodes as JSON, with the model's name and the notes."""
    data = {
        "model": costed.profile.model.name,
        "nodes": list(nodes),
        "notes": list(notes),
        "remarks": [r.to_dict() for r in costed.remarks],
    }
    return dumps(data, indent=1) + "\n"


def _explained(part: Subgraph, end: str) -> str:
    """What rule made a subgraph, why, and why it ends."""
    said = markdown_cell(f"{part.rule}: {part.reason}; ends: {end}")
    return f"- subgraph {part.id}, {units.plural(len(part.nodes), 'node')}, {said}"


def _shapes(values: Sequence[Value]) -> str:
    return ", ".join(units.shape(v.shape) for v in values)


OPERATORS = 12
DIAGRAM_BOXES = 40


def to_markdown(costed: CostedRecord, *, verbose: bool = False) -> str:
    """The report: totals, a diagram, modules, operators, bottlenecks."""
    return "\n".join(_lines(costed, verbose=verbose)) + "\n"


def _lines(costed: CostedRecord, *, verbose: bool) -> Iterator[str]:
    yield f"# {markdown_cell(costed.profile.model.name)}"
    yield ""
    labels = [(label, text) for label, text in facts(costed, verbose=verbose) if text]
    said = [(f"**{markdown_cell(label)}**" if label else "", text) for label, text in labels]
    yield from markdown_table(("", ""), said, raw=(0,))
    if costed.remarks:
        yield from (
            "",
            "## Remarks",
            "",
            *(f"- `{r.code}`: {markdown_cell(r)}" for r in costed.remarks),
        )
    yield from ("", "## Graph", "", "```mermaid", _diagram(costed).rstrip(), "```")
    yield from ("", "## Modules", "")
    timed = [c.title for c in columns_of(costed) if c.key == "seconds"]
    columns = [c for c in columns_of(costed) if c.key not in ("share_bar", "bytes_bar", "macs")]
    numbers = [i for i, c in enumerate(columns, start=1) if c.justify == "right"]
    body = [(_module(row), *(cells_of(row)[c.key] for c in columns)) for row in rows(costed)]
    yield from markdown_table(
        ("Module", *(c.title for c in columns)), body, raw=(0,), numbers=numbers
    )
    yield from ("", "## Operators", "")
    found = by_op(costed)
    operators = [
        (o.name, f"{o.count:,}", units.flops(o.flops), units.size(o.bytes),
         units.intensity(o.cost.arithmetic_intensity),
         *([units.seconds(o.seconds or 0.0)] if timed else []))
        for o in found[:OPERATORS]
    ]  # fmt: skip
    yield from markdown_table(
        ("Operator", "Nodes", "FLOPs", "Bytes", "FLOPs/byte", *timed),
        operators,
        numbers=(1, 2, 3, 4, 5),
    )
    if len(found) > OPERATORS:
        yield f"\n… and {units.plural(len(found) - OPERATORS, 'more operator')}."
    yield from ("", f"## {bottleneck_title(costed)}", "")
    shares = costed.bounds
    flops, traffic = (sum(s.flops for s in shares) or 1), (sum(s.bytes for s in shares) or 1)
    bounds = [
        (s.bound, f"{s.nodes:,}", *([units.percent(s.share)] if costed.device else []),
         units.percent(s.flops / flops), units.percent(s.bytes / traffic))
        for s in shares
    ]  # fmt: skip
    yield from markdown_table(("", "Nodes", *timed, "FLOPs", "Bytes"), bounds, numbers=(1, 2, 3, 4))


def _diagram(costed: CostedRecord) -> str:
    """The picture at the deepest level at which it is still easy to take in."""
    picture = Picture(costed, Options())
    for depth in range(picture.drawing.depth, 0, -1):
        picture = Picture(costed, Options(depth=depth))
        if len(picture.drawing.leaves) <= DIAGRAM_BOXES:
            break
    return to_mermaid(picture)


def _module(row: Row) -> str:
    label = markdown_cell(row.label)
    times = f" × {row.count}" if row.count > 1 else ""
    return "&emsp;" * row.depth + (label if row.is_module else f"*{label}*") + times
