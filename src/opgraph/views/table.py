"""The table view: the hierarchy with its costs, the summary, and the bottleneck analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from opgraph import units
from opgraph.analysis import GENERIC_RIDGE
from opgraph.document import Profile
from opgraph.errors import RenderError
from opgraph.options import GENERATING
from opgraph.views.rows import SORT_KEYS, Row, rows
from opgraph.views.summary import bottleneck_analysis, summary
from opgraph.views.terminal import bar, bound, draw, safe

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from opgraph.analysis.parallel import Layout


def table(
    profile: Profile,
    *,
    color: bool = False,
    width: int = 120,
    depth: int | None = None,
    sort: str | None = None,
    top: int | None = None,
    show_shapes: bool = False,
    fold: bool = True,
    ridge: float = GENERIC_RIDGE,
    verbose: bool = False,
    hardware: str | None = None,
    memory: bool = False,
    partition: str | None = None,
    layout: Layout | None = None,
) -> str:
    """The profile as text in three sections, and more where they are asked for.

    `depth` is how many levels below the root are shown (chosen to fit about forty rows by default);
    `sort` orders rows by "flops", "macs", "bytes", "parameters", "intensity" or "name" instead of by
    execution, and `top` keeps that many. `fold` draws equal neighbours once. `width` is in characters.
    `hardware` names a device to predict the time on, `memory` draws the live memory over the run, and
    `partition` ("fuse", "inductor" or "none") says what the subgraphs are. With `layout`, what the model
    is over several devices.
    """
    if sort is not None and sort not in SORT_KEYS:
        raise RenderError(f"cannot sort by {sort!r}", hint=f"one of {', '.join(SORT_KEYS)}")
    if top is not None and top < 1:
        raise RenderError("--top takes a number of at least 1")
    if depth is not None and depth < 0:
        raise RenderError("--depth takes a number of at least 0")
    listed = rows(profile.graph, depth, fold=fold, ridge=ridge)
    hidden = 0
    if sort is not None:
        listed = sorted(listed, key=SORT_KEYS[sort], reverse=sort != "name")
    if top is not None:
        hidden = max(0, len(listed) - top)
        listed = listed[:top]
    flat = sort is not None
    parts: list[RenderableType] = [
        _hierarchy(profile, listed, show_shapes=show_shapes, flat=flat, width=width),
        *([f"  … and {units.plural(hidden, 'more row')}"] if hidden else []),
        "",
        summary(profile, verbose=verbose),
        "",
        bottleneck_analysis(profile, ridge),
    ]
    if hardware is not None or memory or partition is not None or layout is not None:
        from opgraph.views.costing import sections

        parts += sections(profile, hardware, partition, layout, memory=memory, width=width)
    if hardware is not None and profile.mode in GENERATING and profile.cache is not None:
        from opgraph.hardware import device
        from opgraph.views.generation import serving

        parts += ["", serving(profile, device(hardware))]
    return draw(parts, width, color)


def _hierarchy(
    profile: Profile, listed: list[Row], *, show_shapes: bool, flat: bool, width: int
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    total = profile.totals
    columns = [c for c in _COLUMNS if width >= c.from_width and (show_shapes or c.key != "output")]
    taken = sum(c.width + 1 for c in columns)
    result = Table(
        box=box.SIMPLE_HEAD, show_edge=False, padding=0, header_style="bold",
        title=safe(profile.model.name), title_justify="left", title_style="bold",
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
