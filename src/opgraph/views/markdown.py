"""The Markdown view: a report of a profile for a pull request or a wiki, with a diagram that GitHub draws.
Text from a model is escaped so that it stays text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from opgraph import units
from opgraph.analysis import GENERIC_RIDGE, bottlenecks, by_op
from opgraph.document import Profile
from opgraph.views.listing import markdown_cell as cell
from opgraph.views.mermaid import to_mermaid
from opgraph.views.picture import Options, Picture
from opgraph.views.rows import Row, rows
from opgraph.views.summary import facts

OPERATORS = 12
DIAGRAM_BOXES = 40


def to_markdown(profile: Profile, *, ridge: float = GENERIC_RIDGE) -> str:
    """The report: totals, a diagram, modules, operators, bottlenecks."""
    return "\n".join(_lines(profile, ridge)) + "\n"


def _lines(profile: Profile, ridge: float) -> Iterator[str]:
    yield f"# {cell(profile.model.name)}"
    yield ""
    labels = [(label, text) for label, text in facts(profile) if text]
    yield from _table(("", ""), [(f"**{cell(label)}**" if label else "", text) for label, text in labels],
                      raw=(0,))  # fmt: skip
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
    name = "&emsp;" * row.depth + cell(row.label) + (f" × {row.count}" if row.count > 1 else "")
    return (
        name if row.is_module else f"{'&emsp;' * row.depth}*{cell(row.label)}*",
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
        yield f"| {' | '.join(text if i in raw else cell(text) for i, text in enumerate(row))} |"
