"""The Markdown view: a report of a profile for a pull request or a wiki, with a diagram that GitHub draws.
Text from a model is escaped so that it stays text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from opgraph.analysis.cost.bottleneck import GENERIC_RIDGE, bottlenecks
from opgraph.analysis.cost.totals import by_op
from opgraph.analysis.fusion.partition import Subgraph, endings
from opgraph.analysis.timing.prediction import predict
from opgraph.hardware import Device
from opgraph.record import units
from opgraph.record.files import dumps
from opgraph.record.graph import Node, Shape
from opgraph.record.profile import Profile
from opgraph.views.files.records import Record
from opgraph.views.picture.mermaid import to_mermaid
from opgraph.views.picture.picture import Options, Picture
from opgraph.views.text.nodes import NodeRow, node_rows
from opgraph.views.text.summary import facts
from opgraph.views.text.table import Row, rows
from opgraph.views.text.terminal import safe

# Lists of nodes for files and scripts: Markdown and JSON (CSV is a view of its own).

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


OPERATORS = 12
DIAGRAM_BOXES = 40


def to_markdown(profile: Profile, *, ridge: float = GENERIC_RIDGE) -> str:
    """The report: totals, a diagram, modules, operators, bottlenecks."""
    return "\n".join(_lines(profile, ridge)) + "\n"


def _lines(profile: Profile, ridge: float) -> Iterator[str]:
    yield f"# {markdown_cell(profile.model.name)}"
    yield ""
    labels = [(label, text) for label, text in facts(profile) if text]
    said = [(f"**{markdown_cell(label)}**" if label else "", text) for label, text in labels]
    yield from _table(("", ""), said, raw=(0,))
    yield from ("", "## Graph", "", "```mermaid", _diagram(profile).rstrip(), "```")
    yield from ("", "## Modules", "")
    listed = rows(profile.graph, None, fold=True, ridge=ridge)
    heads = (
        "Module",
        "Class",
        "Output",
        "Params",
        "FLOPs",
        "Share",
        "Traffic",
        "FLOPs/byte",
        "Bound",
    )
    yield from _table(
        heads,
        [_module(row, profile.totals.flops) for row in listed],
        raw=(0,),
        numbers=(3, 4, 5, 6, 7),
    )
    yield from ("", "## Operators", "")
    found = by_op(profile.graph, constants_apart=False)
    body = [
        (o.op, f"{o.count:,}", units.flops(o.flops), units.size(o.bytes),
         units.intensity(o.cost.arithmetic_intensity))
        for o in found[:OPERATORS]
    ]  # fmt: skip
    yield from _table(
        ("Operator", "Nodes", "FLOPs", "Traffic", "FLOPs/byte"), body, numbers=(1, 2, 3, 4)
    )
    if len(found) > OPERATORS:
        yield f"\n… and {units.plural(len(found) - OPERATORS, 'more operator')}."
    yield from ("", f"## Bottlenecks at a ridge of {ridge:g} FLOPs/byte", "")
    shares = bottlenecks(profile.nodes, ridge)
    flops, traffic = (sum(s.flops for s in shares) or 1), (sum(s.bytes for s in shares) or 1)
    bounds = [
        (s.bottleneck, f"{s.nodes:,}", units.percent(s.flops / flops), units.percent(s.bytes / traffic))
        for s in shares
    ]  # fmt: skip
    yield from _table(("", "Nodes", "FLOPs", "Bytes"), bounds, numbers=(1, 2, 3))


def _diagram(profile: Profile) -> str:
    """The picture at the deepest level at which it is still easy to take in."""
    picture = Picture(profile, Options())
    for depth in range(picture.drawing.depth, 0, -1):
        picture = Picture(profile, Options(depth=depth))
        if len(picture.drawing.leaves) <= DIAGRAM_BOXES:
            break
    return to_mermaid(picture)


def _module(row: Row, flops: int) -> tuple[str, ...]:
    cost = row.cost
    name = (
        "&emsp;" * row.depth
        + markdown_cell(row.label)
        + (f" × {row.count}" if row.count > 1 else "")
    )
    return (
        name if row.is_module else f"{'&emsp;' * row.depth}*{markdown_cell(row.label)}*",
        row.cls,
        "" if row.output is None else units.shape(row.output),
        units.count(row.parameters) if row.parameters else "",
        units.flops(cost.flops) if cost.flops else "",
        units.percent(cost.flops / flops) if flops and cost.flops else "",
        units.size(cost.bytes) if cost.bytes else "",
        "" if cost.arithmetic_intensity is None else units.intensity(cost.arithmetic_intensity),
        row.bottleneck or "",
    )


def _table(
    heads: Sequence[str], body: Iterable[Sequence[str]], *, raw: Sequence[int] = (),
    numbers: Sequence[int] = (),
) -> Iterator[str]:  # fmt: skip
    """A table; the columns in `raw` are Markdown already, those in `numbers` stand at the right."""
    yield f"| {' | '.join(heads)} |"
    yield "|" + "|".join("---:" if i in numbers else "---" for i in range(len(heads))) + "|"
    for row in body:
        yield f"| {' | '.join(text if i in raw else markdown_cell(text) for i, text in enumerate(row))} |"
