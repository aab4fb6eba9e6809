"""A comparison as text: totals side by side, then what changed, folded where repeats match."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from opgraph.analysis.compare import Comparison
from opgraph.analysis.gates import Verdict
from opgraph.analysis.quantities import Quantity
from opgraph.errors import RenderError
from opgraph.views.changes import WAYS, changes
from opgraph.views.differences import difference, letter, ratio
from opgraph.views.terminal import draw, fitting, safe

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

WIDEST = 150

_MAIN = ("parameters", "flops", "bytes")
"""What is shown of many profiles, where not everything fits."""


def comparison_text(
    comparison: Comparison,
    *,
    color: bool = False,
    width: int = 120,
    by: str = "module",
    depth: int | None = None,
) -> str:
    """The comparison as text. `by` is "module", "op" or "node"; `depth` is how many levels of modules
    below the root are shown (chosen to fit a page by default); `width` is in characters."""
    from rich.text import Text

    if by not in WAYS:
        raise RenderError(f"cannot compare by {by!r}", hint=f"one of {', '.join(WAYS)}")
    if depth is not None and depth < 0:
        raise RenderError("--depth takes a number of at least 0")
    width = min(width, WIDEST)
    parts: list[RenderableType] = [*_legend(comparison), "", _totals(comparison, width)]
    for other in range(1, len(comparison.profiles)):
        title = Text(f"From A to {letter(other)}, by {by}", style="bold")
        parts += ["", title, *changes(comparison, other, by, depth, width)]
    if comparison.verdicts:
        parts += ["", *_verdicts(comparison)]
    return draw(parts, width, color)


def _legend(comparison: Comparison) -> Iterator[Text]:
    from rich.text import Text

    for position, (label, profile) in enumerate(
        zip(comparison.labels, comparison.profiles, strict=True)
    ):
        line = Text(letter(position), style="bold")
        line.append(f"  {safe(label)}", style="not bold")
        line.append(f"  {safe(profile.model.cls.rpartition('.')[2])}", style="not bold dim")
        yield line


def _totals(comparison: Comparison, width: int) -> Table:
    """Quantities down and profiles across; the other way round where there are many profiles. Where there
    is no room, of differences and ratios those go that can be had from the others."""
    across = [_across(comparison), _across(comparison, differences=False)]
    down = [_down(comparison), _down(comparison, ratios=False)]
    number = len(comparison.profiles)
    return fitting(across if number == 2 else across[:1] + down if number == 3 else down, width)


def _table() -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("", no_wrap=True)
    return table


def _across(comparison: Comparison, *, differences: bool = True) -> Table:
    table = _table()
    pair = len(comparison.profiles) == 2
    for position in range(len(comparison.profiles)):
        table.add_column(letter(position), justify="right", no_wrap=True)
        if position and not pair:
            table.add_column(f"/ {letter(0)}", justify="right", no_wrap=True)
    differing = pair and differences
    if differing:
        table.add_column("B − A", justify="right", no_wrap=True)
    if pair:
        table.add_column("B / A", justify="right", no_wrap=True)
    for q, first, values in known(comparison):
        cells = [q.format(first)]
        for value in values:
            cells += [q.format(value), *([difference(q, first, value)] if differing else []),
                      ratio(first, value)]  # fmt: skip
        table.add_row(q.label, *cells, style="dim" if set(values) == {first} else "")
    return table


def _down(comparison: Comparison, *, ratios: bool = True) -> Table:
    table = _table()
    shown = [k for k in known(comparison) if k[0].name in _MAIN]
    for q, _, _ in shown:
        table.add_column(q.label, justify="right", no_wrap=True)
        if ratios:
            table.add_column("/ A", justify="right", no_wrap=True)
    for position in range(len(comparison.profiles)):
        cells = []
        for q, first, values in shown:
            value = first if position == 0 else values[position - 1]
            compared = [ratio(first, value) if position else ""] if ratios else []
            cells += [q.format(value), *compared]
        table.add_row(letter(position), *cells)
    return table


def known(
    comparison: Comparison,
) -> Iterator[tuple[Quantity, float | None, list[float | None]]]:
    """The quantities that some profile has: of the first, and of the others."""
    for q in comparison.quantities:
        first, *others = (q.of(p) for p in comparison.profiles)
        if any(v is not None for v in (first, *others)):
            yield q, first, others


def _verdicts(comparison: Comparison) -> Iterator[Text]:
    from rich.text import Text

    yield Text("Gates", style="bold")
    for v in comparison.verdicts:
        word, style = ("broken", "red") if v.broken else ("holds", "green")
        line = Text(f"  {word:<6}  ", style=style)
        line.append(f"{safe(v.gate.text)}  ({verdict(comparison, v)})", style="default")
        yield line


def verdict(comparison: Comparison, v: Verdict) -> str:
    """What a gate saw: B: 3.63 GFLOPs → 8.18 GFLOPs, 2.25×."""
    q = v.gate.quantity
    place = letter(v.position) if len(comparison.profiles) > 2 else ""
    seen = f"{q.format(v.before)} → {q.format(v.after)}, {ratio(v.before, v.after)}"
    return f"{place}: {seen}" if place else seen
