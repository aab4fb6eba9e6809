"""The table view: the hierarchy with its costs, the summary, and the bottleneck analysis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from opgraph.analysis.cost.modules import ModuleCost
from opgraph.analysis.cost.modules import fold as fold_tree
from opgraph.analysis.cost.totals import CONSTANTS, Cost, cost_of
from opgraph.analysis.costed import CostedRecord
from opgraph.record import units
from opgraph.record.errors import RenderError
from opgraph.record.graph import Node, Shape
from opgraph.record.kinds import Bound
from opgraph.views.terminal import bar, bound, draw, safe
from opgraph.views.text.summary import bottleneck_analysis, summary

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


# The rows of the hierarchical table: modules, folded where neighbours are equal, and between them the
# operators that stand directly in a module, so that the rows below a module always add up to it.

FITTING_ROWS = 42


@dataclass(frozen=True, slots=True)
class Row:
    """One line: a module with all that is below it, or operators of one kind that stand in a module."""

    path: str
    label: str
    cls: str
    depth: int
    count: int
    parameters: int
    cost: Cost
    output: Shape | None
    bottleneck: Bound | None
    is_module: bool = True


SORT_KEYS: dict[str, Callable[[Row], float | str]] = {
    "flops": lambda r: r.cost.flops,
    "macs": lambda r: r.cost.macs,
    "bytes": lambda r: r.cost.bytes,
    "parameters": lambda r: r.parameters,
    "intensity": lambda r: r.cost.arithmetic_intensity or 0.0,
    "name": lambda r: r.path,
}


def rows(costed: CostedRecord, depth: int | None, *, fold: bool) -> list[Row]:
    """The rows down to a depth below the root, in order of the module tree; without one, down to the
    deepest level at which the table still fits a page."""
    tree = costed.module_tree
    tree = fold_tree(tree) if fold else tree
    return list(_rows(costed, tree, _fitting(tree) if depth is None else depth))


def _fitting(tree: ModuleCost) -> int:
    """The deepest level whose rows fit a page, at least one."""
    level, depth, total = [tree], 0, 1
    while level:
        below = [c for m in level for c in m.children if c.parameters or c.cost.bytes]
        operators = sum(len(_groups(m)) for m in level if m.children or not m.path)
        total += len(below) + operators
        if depth and total > FITTING_ROWS:
            break
        level, depth = below, depth + 1
    return depth


def _rows(costed: CostedRecord, module: ModuleCost, depth: int) -> Iterator[Row]:
    yield Row(
        path=module.path,
        label=module.name or module.cls,
        cls=module.cls if module.path else "",
        depth=module.depth,
        count=module.count,
        parameters=module.parameters,
        cost=module.cost,
        output=module.output,
        bottleneck=costed.bound_of(_nodes(module), module.cost),
    )
    if module.depth >= depth:
        return
    for child in module.children:
        if child.parameters or child.cost.bytes:
            yield from _rows(costed, child, depth)
    if module.children or not module.path:
        yield from _operators(costed, module)


def _operators(costed: CostedRecord, module: ModuleCost) -> Iterator[Row]:
    for op, nodes in _groups(module).items():
        cost = cost_of(nodes)
        yield Row(
            path=f"{module.path}.{op}" if module.path else op,
            label=op,
            cls="",
            depth=module.depth + 1,
            count=len(nodes),
            parameters=0,
            cost=cost,
            output=None,
            bottleneck=costed.bound_of(nodes, cost),
            is_module=False,
        )


def _nodes(module: ModuleCost) -> Iterator[Node]:
    for below in module.walk():
        yield from below.nodes


def _groups(module: ModuleCost) -> dict[str, list[Node]]:
    """What a module computes itself beside its children, by operator; what it makes from constants is
    one row, and plumbing without cost is left out."""
    groups: dict[str, list[Node]] = {}
    for node in module.nodes:
        if node.bytes or node.flops:
            label = CONSTANTS if node.kind == "constant" else node.op
            groups.setdefault(label, []).append(node)
    return groups


def table(
    costed: CostedRecord,
    *,
    color: bool = False,
    width: int = 120,
    depth: int | None = None,
    sort: str | None = None,
    top: int | None = None,
    show_shapes: bool = False,
    fold: bool = True,
    verbose: bool = False,
    memory: bool = False,
    subgraphs: bool = False,
) -> str:
    """The profile as text in three sections, and more where they are asked for.

    `depth` is how many levels below the root are shown (chosen to fit about forty rows by default);
    `sort` orders rows by "flops", "macs", "bytes", "parameters", "intensity" or "name" instead of by
    execution, and `top` keeps that many. `fold` draws equal neighbours once. `width` is in characters.
    `memory` draws the live memory over the run, `subgraphs` says what the partition saves. On a device,
    or over several, what it takes there stands below.
    """
    if sort is not None and sort not in SORT_KEYS:
        raise RenderError(f"cannot sort by {sort!r}", hint=f"one of {', '.join(SORT_KEYS)}")
    if top is not None and top < 1:
        raise RenderError("--top takes a number of at least 1")
    if depth is not None and depth < 0:
        raise RenderError("--depth takes a number of at least 0")
    listed = rows(costed, depth, fold=fold)
    hidden = 0
    if sort is not None:
        listed = sorted(listed, key=SORT_KEYS[sort], reverse=sort != "name")
    if top is not None:
        hidden = max(0, len(listed) - top)
        listed = listed[:top]
    flat = sort is not None
    parts: list[RenderableType] = [
        _hierarchy(costed, listed, show_shapes=show_shapes, flat=flat, width=width),
        *([f"  … and {units.plural(hidden, 'more row')}"] if hidden else []),
        "",
        summary(costed, verbose=verbose),
        "",
        bottleneck_analysis(costed),
    ]
    if costed.device is not None or costed.layout is not None or memory or subgraphs:
        from opgraph.views.text.device import sections

        parts += sections(costed, subgraphs=subgraphs, memory=memory, width=width)
    return draw(parts, width, color)


def _hierarchy(
    costed: CostedRecord, listed: list[Row], *, show_shapes: bool, flat: bool, width: int
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    total = costed.totals
    columns = [c for c in _COLUMNS if width >= c.from_width and (show_shapes or c.key != "output")]
    taken = sum(c.width + 1 for c in columns)
    result = Table(
        box=box.SIMPLE_HEAD, show_edge=False, padding=0, header_style="bold",
        title=safe(costed.profile.model.name), title_justify="left", title_style="bold",
    )  # fmt: skip
    result.add_column("Module", no_wrap=True, max_width=max(20, width - taken - 1))
    for column in columns:
        result.add_column(column.title, justify=column.justify, no_wrap=True,
                          min_width=column.width, max_width=column.width)  # fmt: skip
    for row in listed:
        cells = _cells(row, total.flops, total.bytes, Text)
        result.add_row(_name(row, flat, Text), *(cells[c.key] for c in columns))
    return result


@dataclass(frozen=True, slots=True)
class _Column:
    """A column behind the name; it is left out of terminals narrower than `from_width`."""

    key: str
    title: str
    width: int
    justify: Literal["left", "right"] = "right"
    from_width: int = 0


_COLUMNS = (
    _Column("class", "Class", 18, "left", from_width=110),
    _Column("parameters", "Params", 7),
    _Column("output", "Output", 15, "left"),
    _Column("macs", "MACs", 7, from_width=96),
    _Column("flops", "FLOPs", 7),
    _Column("flops_bar", "", 5, "left"),
    _Column("bytes", "Traffic", 10),
    _Column("bytes_bar", "", 5, "left", from_width=104),
    _Column("intensity", "AI", 6),
    _Column("bound", "Bound", 8, "left"),
)


def _name(row: Row, flat: bool, text: type[Text]) -> Text:
    label = safe(row.path or row.label) if flat else "  " * row.depth + safe(row.label)
    name = text(label, style="" if row.is_module else "italic", no_wrap=True, overflow="ellipsis")
    if row.count > 1:
        name.append(f" × {row.count}", style="magenta")
    return name


def _cells(row: Row, all_flops: int, all_bytes: int, text: type[Text]) -> dict[str, Text | str]:
    none = text("—", style="dim")
    cost = row.cost
    return {
        "class": text(safe(row.cls), style="dim", no_wrap=True, overflow="ellipsis"),
        "parameters": units.count(row.parameters) if row.parameters else none,
        "output": "" if row.output is None else safe(units.shape(row.output)),
        "macs": units.count(cost.macs) if cost.macs else none,
        "flops": units.count(cost.flops) if cost.flops else none,
        "flops_bar": bar(cost.flops / all_flops if all_flops else 0.0, 5),
        "bytes": units.size(cost.bytes) if cost.bytes else none,
        "bytes_bar": bar(cost.bytes / all_bytes if all_bytes else 0.0, 5),
        "intensity": units.intensity(cost.arithmetic_intensity),
        "bound": bound(row.bottleneck),
    }
