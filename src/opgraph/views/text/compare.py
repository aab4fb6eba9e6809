"""What changed between profiles, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from opgraph.analysis.compare.alignment import Change, Status
from opgraph.analysis.compare.comparison import ComparisonRecord, NodeChange, Verdict
from opgraph.analysis.cost.totals import ModuleCost
from opgraph.analysis.nodes import Row
from opgraph.analysis.quantities import Quantity
from opgraph.record import units
from opgraph.views.tables import markdown_cell, markdown_table
from opgraph.views.terminal import columns, draw, fit, fit_tail, fitting, safe

# How the differences between profiles are written: which profile, by how much, by how many percent.

_FIGURE, _CHANGE = 12, 10
"""The widths of columns: the longest figure, 1023.50 MiB, or change, −99.9 %, and a space before it."""

MARKS: dict[Status, tuple[str, str]] = {
    "same": (" ", "dim"),
    "changed": ("~", "yellow"),
    "renamed": ("→", "cyan"),
    "added": ("+", "green"),
    "removed": ("-", "red"),
}


def letter(position: int) -> str:
    """The letter of a profile: A for the first; P27 the 27th."""
    return chr(ord("A") + position) if position < 26 else f"P{position + 1}"


def difference(q: Quantity, before: float | None, after: float | None) -> str:
    """The change of a quantity with its sign; "=" for none."""
    if before is None or after is None:
        return "—"
    if after == before:
        return "="
    if q.kind == "share":
        return _by(after - before)
    return ("+" if after > before else "−") + q.format(abs(after - before))


def _by(share: float) -> str:
    """A change in percent with its sign: +1.2 %, −<0.1 %, +1,377 %."""
    percent = abs(share) * 100
    written = (
        f"{percent:.1f}"
        if percent < 99.95
        else f"{percent:,.0f}"
        if percent < 1e6
        else f"{percent:.0e}"
    )
    return ("+" if share > 0 else "−") + ("<0.1" if written == "0.0" else written) + " %"


def relative(before: float | None, after: float | None) -> str:
    """A change in percent of what was before; "=" where it is equal."""
    if before is None or after is None:
        return "—"
    if after == before:
        return "="
    if not before or not after:
        return "gone" if before else "new"
    return _by(after / before - 1)


def relative_of(values: Sequence[float | None]) -> str:
    before, after = values
    return "" if before is None or after is None else relative(before, after)


FITTING_ROWS = 48
_SAME = "  No operator differs, nor its FLOPs and bytes."
"""What lists of changes say that are empty: times may differ all the same, by how a model is run."""
TOP_OPERATORS = 15
TOP_NODES = 60


def changes(
    comparison: ComparisonRecord, other: int, by: str, depth: int | None, width: int
) -> Iterator[RenderableType]:
    if by == "op":
        yield from _by_op(comparison, other, width)
    elif by == "node":
        yield from _by_node(comparison, other, width)
    else:
        yield from _by_module(comparison.changes[other - 1], other, depth, width)


def _by_module(
    change: Change, other: int, depth: int | None, width: int
) -> Iterator[RenderableType]:
    if not change.differs:
        yield _SAME
        return
    if depth is None:
        depth = fitting_depth(change)
    shown = [c for c in change.walk(depth) if worth_showing(c)]
    figures = 2 * _FIGURE + _CHANGE
    label = min(width - figures, 50)
    told = [c.details for c in shown if c.details]
    once = len(told) > 1 and len(set(told)) == 1  # as where one model is run in two ways
    room = width - figures - label - 2
    b = letter(other)
    metric = _metric(change)
    mixed = metric.head == "FLOPs" and any(_in_bytes(c, metric) for c in shown)
    heads = [f"{'cost' if mixed else metric.head} {side}".rjust(_FIGURE) for side in ("A", b)]
    head = fit("", label) + "".join(heads) + f"{b} vs A".rjust(_CHANGE)
    yield Text(head + ("  what differs" if room >= 24 and told and not once else ""), "bold")
    for c in shown:
        mark, style = MARKS[c.status]
        if c.status == "changed" and not c.details:
            mark, style = " ", "dim"
        line = Text(f"{mark} ", style=style, no_wrap=True)
        line.append(fit(f"{'  ' * c.depth}{name_of(c)}", label - 2), style=style)
        line.append(_figures(c, metric))
        if once:
            yield line
            continue
        if c.details and room >= 24:
            line.append("  " + fit(", ".join(c.details), room).rstrip(), style="dim")
        yield line
        if c.details and room < 24:
            indent = " " * (2 * c.depth + 4)
            yield Text(
                indent + fit(", ".join(c.details), width - len(indent)).rstrip(), style="dim"
            )
    if mixed:
        yield Text("  cost: FLOPs, or bytes where there are none", style="dim")
    deeper = sum(worth_showing(c) for c in change.walk()) - len(shown)
    if deeper > 0:
        yield Text(f"  … and {deeper} more below; --depth N shows them", style="dim")
    if once:
        yield Text(f"  {MARKS['changed'][0]} {', '.join(told[0])}", style="dim")
    same = sum(not c for c in _unfolded(change))
    if same:
        yield Text(f"  {units.plural(same, 'module')} left out: nothing differs there", style="dim")


def worth_showing(change: Change) -> bool:
    """Not what is equal, nor costs nothing in another shape."""
    if change.status != "changed":
        return change.differs
    costly = any(m and (m.parameters or m.cost.bytes) for m in (change.before, change.after))
    return costly or any(not d.startswith("output ") for d in change.details)


def fitting_depth(change: Change) -> int:
    """The deepest level at which the changes still fit a page."""
    deepest = max(c.depth for c in change.walk())
    for depth in range(deepest, 1, -1):
        if sum(worth_showing(c) for c in change.walk(depth)) <= FITTING_ROWS:
            return depth
    return 1


def _unfolded(change: Change, times: int = 1) -> Iterator[bool]:
    """Whether each module differs, of folded ones as often as they occur."""
    times *= change.count
    yield from [change.differs] * times
    for child in change.children:
        yield from _unfolded(child, times)


def name_of(change: Change) -> str:
    a, b = change.before, change.after
    new = change.either
    name = new.name or new.cls
    if change.renamed and a is not None and b is not None and new.path:
        name = f"{a.name} → {b.name}"
    times = f" × {change.count}" if change.count > 1 else ""
    return f"{name}{times}  {new.cls if new.name else ''}".rstrip()


class _Metric(NamedTuple):
    """What modules and operators are compared by, and how it is written."""

    head: str
    of: Callable[[ModuleCost | Row], float | None]
    written: Callable[[float], str]

    def values(self, change: Change) -> list[float | None]:
        """Before and after; None of what is not there."""
        return [None if m is None else self.of(m) for m in (change.before, change.after)]


_BYTES = _Metric("bytes", lambda m: m.bytes, units.size)
_METRICS = (
    _Metric("time", lambda m: m.seconds, units.seconds),
    _Metric("FLOPs", lambda m: m.flops, units.count),
    _BYTES,
)


def _metric(whole: Change) -> _Metric:
    """The first by which the whole differs: the time on a device, FLOPs, else bytes."""
    return next((m for m in _METRICS if len(set(m.values(whole))) > 1), _BYTES)


def _in_bytes(change: Change, metric: _Metric) -> bool:
    """Whether a module has no FLOPs to compare, and bytes instead."""
    return metric.head == "FLOPs" and not any(metric.values(change)) and any(_BYTES.values(change))


def _cells(change: Change, metric: _Metric) -> list[str]:
    """What a module costs before and after, and the change: in bytes where it has no FLOPs to compare."""
    metric = _BYTES if _in_bytes(change, metric) else metric
    values = metric.values(change)
    if not any(values):
        return ["", "", ""]
    written = ["—" if v is None else metric.written(v) for v in values]
    return [*written, relative_of(values)]


def _figures(change: Change, metric: _Metric) -> str:
    cells = zip(_cells(change, metric), (_FIGURE, _FIGURE, _CHANGE), strict=True)
    return "".join(cell.rjust(width) for cell, width in cells)


def _by_op(comparison: ComparisonRecord, other: int, width: int) -> Iterator[RenderableType]:
    changes = [c for c in comparison.operators(other) if not c.same]
    if not changes:
        yield _SAME
        return
    differing = [m for m in _METRICS if any(_of(m, c.before) != _of(m, c.after) for c in changes)]
    metrics = differing[: 2 if width >= 110 else 1] or [_BYTES]
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("", width=1)
    table.add_column("operator", no_wrap=True, overflow="ellipsis", max_width=30)
    b = letter(other)
    for head in ("nodes A", b, *(h for m in metrics for h in (f"{m.head} A", b, f"{b} vs A"))):
        table.add_column(head, justify="right", no_wrap=True)
    for c in changes[:TOP_OPERATORS]:
        status: Status = (
            "added" if c.before is None else "removed" if c.after is None else "changed"
        )
        mark, style = MARKS[status]
        sides = (c.before, c.after)
        cells = [str(s.count) if s else "—" for s in sides]
        for metric in metrics:
            values = [_of(metric, s) for s in sides]
            cells += [metric.written(v) if v else "—" for v in values]
            cells.append(relative(*values) if any(values) else "")
        table.add_row(mark, Text(safe(c.op), style=style), *cells)
    yield table
    if len(changes) > TOP_OPERATORS:
        yield Text(f"  … and {len(changes) - TOP_OPERATORS} more", style="dim")


def _of(metric: _Metric, operator: Row | None) -> float:
    """What an operator takes, nothing where it is not there."""
    return 0.0 if operator is None else metric.of(operator) or 0.0


def _by_node(comparison: ComparisonRecord, other: int, width: int) -> Iterator[RenderableType]:
    changes = comparison.nodes(other)
    seconds = [comparison.models[i].seconds_by_node for i in (0, other)]
    if not changes:
        yield _SAME
        return
    module = None
    yield Text(
        "    " + "".join(f"{h:>5} " for h in (f"# {letter(0)}", f"# {letter(other)}")), "bold"
    )
    for change in changes[:TOP_NODES]:
        if (change.module, change.count) != module:
            module = (change.module, change.count)
            times = f"  × {change.count}" if change.count > 1 else ""
            yield Text(
                fit_tail((change.module or "(root)") + times, width - 1).rstrip(), style="bold"
            )
        yield _node_line(change, seconds)
    if len(changes) > TOP_NODES:
        yield Text(f"… and {units.plural(len(changes) - TOP_NODES, 'more node')}; "
                   "--json has them all", style="dim")  # fmt: skip


def _node_line(change: NodeChange, times: Sequence[Mapping[int, float] | None]) -> Text:
    a, b = change.before, change.after
    status: Status = "added" if a is None else "removed" if b is None else "changed"
    mark, style = MARKS[status]
    node = b or a
    line = Text(f"  {mark} ", style=style)
    if node is None:
        return line
    ids = f"{a.id if a else '—':>5} {b.id if b else '—':>5}  "
    line.append(ids, style="dim")
    line.append(fit(node.op, 29), style=style)
    taken = [
        None if n is None else (t or {}).get(n.id, 0.0) for n, t in zip((a, b), times, strict=True)
    ]
    flops = [None if n is None else n.flops for n in (a, b)]
    traffic = [None if n is None else n.bytes for n in (a, b)]
    ways: list[tuple[Sequence[float | None], Callable[[Any], str]]] = [
        (taken, units.seconds), (flops, units.count), (traffic, units.size)]  # fmt: skip
    ways = [way for way in ways if any(way[0])] or ways[-1:]
    values, form = next((way for way in ways if way[0][0] != way[0][1]), ways[0])
    for value in values:
        line.append(("—" if value is None else form(value) if value else "no work").rjust(_FIGURE))
    line.append(relative_of(values).rjust(_CHANGE))
    return line


# A comparison as text: totals side by side, then what changed, folded where repeats match.

WIDEST = 150

_MAIN = ("parameters", "flops", "bytes", "latency")
"""What is shown of many profiles, where not everything fits."""


def comparison_text(
    comparison: ComparisonRecord,
    *,
    color: bool = False,
    width: int = 120,
    by: str = "module",
    depth: int | None = None,
) -> str:
    """The comparison as text. `by` is "module", "op" or "node"; `depth` is how many levels of modules
    below the root are shown (chosen to fit a page by default); `width` is in characters."""
    width = min(width, WIDEST)
    parts: list[RenderableType] = [*_legend(comparison), "", _totals(comparison, width)]
    for other in range(1, len(comparison.models)):
        title = Text(f"From A to {letter(other)}, by {by}{_whose(comparison, other)}", style="bold")
        parts += ["", title, *changes(comparison, other, by, depth, width)]
        if rows := comparison.measured(other):
            title = Text(f"Measured from A to {letter(other)}, by operator", style="bold")
            parts += ["", title, _measured(rows, letter(other))]
    if comparison.verdicts:
        parts += ["", *_verdicts(comparison)]
    return draw(parts, width, color)


def _whose(comparison: ComparisonRecord, other: int) -> str:
    """Whose times are compared, where the host is the limit of a run."""
    hosted = [letter(i) for i in (0, other) if comparison.models[i].hosted]
    return f"; times are the device's, the host is the limit of {' and '.join(hosted)}" * bool(
        hosted
    )


def _measured(rows: Sequence[tuple[str, float, float]], other: str) -> Table:
    """The operators whose measured time differs most."""
    result = columns("operator", "A", other, f"{other} − A", f"{other} vs A")
    for op, before, after in rows[:_MEASURED]:
        sign = "+" if after >= before else "−"
        result.add_row(safe(op), units.seconds(before), units.seconds(after),
                       f"{sign}{units.seconds(abs(after - before))}", relative(before, after))  # fmt: skip
    return result


_MEASURED = 8
"""Operators of which the measured times are shown."""


def _legend(comparison: ComparisonRecord) -> Iterator[Text]:
    for position, (label, model) in enumerate(
        zip(comparison.labels, comparison.models, strict=True)
    ):
        line = Text(letter(position), style="bold")
        line.append(f"  {safe(label)}", style="not bold")
        line.append(f"  {safe(model.profile.model.cls.rpartition('.')[2])}", style="not bold dim")
        yield line


def _totals(comparison: ComparisonRecord, width: int) -> Table:
    """Quantities down and profiles across; the other way round where there are many profiles. Where there
    is no room, of differences and percent those go that can be had from the others."""
    across = [_across(comparison), _across(comparison, less=True)]
    down = [_down(comparison), _down(comparison, changes=False)]
    number = len(comparison.models)
    return fitting(across if number == 2 else across + down if number == 3 else down, width)


def _table() -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("", no_wrap=True)
    return table


def _across(comparison: ComparisonRecord, *, less: bool = False) -> Table:
    """With differences and percent; with `less`, of two the percent and of three the figures alone."""
    table = _table()
    pair = len(comparison.models) == 2
    relatives = pair or not less
    for position in range(len(comparison.models)):
        table.add_column(letter(position), justify="right", no_wrap=True)
        if position and relatives and not pair:
            table.add_column("vs A", justify="right", no_wrap=True)
    differing = pair and not less
    if differing:
        table.add_column("B − A", justify="right", no_wrap=True)
    if pair:
        table.add_column("B vs A", justify="right", no_wrap=True)
    for q, first, values in known(comparison):
        cells = [q.format(first)]
        for value in values:
            cells += [q.format(value), *([difference(q, first, value)] if differing else []),
                      *([relative(first, value)] if relatives else [])]  # fmt: skip
        table.add_row(q.label, *cells, style="dim" if set(values) == {first} else "")
    return table


def _down(comparison: ComparisonRecord, *, changes: bool = True) -> Table:
    table = _table()
    shown = [k for k in known(comparison) if k[0].name in _MAIN]
    for q, _, _ in shown:
        table.add_column(q.label, justify="right", no_wrap=True)
        if changes:
            table.add_column("vs A", justify="right", no_wrap=True)
    for position in range(len(comparison.models)):
        cells = []
        for q, first, values in shown:
            value = first if position == 0 else values[position - 1]
            compared = [relative(first, value) if position else ""] if changes else []
            cells += [q.format(value), *compared]
        table.add_row(letter(position), *cells)
    return table


def known(
    comparison: ComparisonRecord,
) -> Iterator[tuple[Quantity, float | None, list[float | None]]]:
    """The quantities that some profile has: first, and others."""
    for q in comparison.quantities:
        first, *others = (q.of(m) for m in comparison.models)
        if any(v is not None for v in (first, *others)):
            yield q, first, others


def _verdicts(comparison: ComparisonRecord) -> Iterator[Text]:
    yield Text("Gates", style="bold")
    for v in comparison.verdicts:
        word, style = ("broken", "red") if v.broken else ("holds", "green")
        line = Text(f"  {word:<6}  ", style=style)
        line.append(f"{safe(v.gate.text)}  ({verdict(comparison, v)})", style="default")
        yield line


def verdict(comparison: ComparisonRecord, v: Verdict) -> str:
    """What a gate saw: B: 3.63 GFLOPs → 8.18 GFLOPs, +125 %."""
    q = v.gate.quantity
    place = letter(v.position) if len(comparison.models) > 2 else ""
    seen = f"{q.format(v.before)} → {q.format(v.after)}, {relative(v.before, v.after)}"
    if v.noise:
        seen += f", ± {q.format(v.noise)} of noise"
    return f"{place}: {seen}" if place else seen


# A comparison as Markdown, for a comment on a pull request.


def comparison_markdown(comparison: ComparisonRecord, *, depth: int | None = None) -> str:
    """The comparison as Markdown, for a comment on a pull request: totals, gates, and what changed,
    folded away."""
    letters = [letter(i) for i in range(len(comparison.models))]
    heads = ["", "A", *(head for x in letters[1:] for head in (x, f"{x} vs A"))]
    body = (
        [q.label, q.format(first), *(c for v in values for c in (q.format(v), relative(first, v)))]
        for q, first, values in known(comparison)
    )
    lines = [
        *(
            f"**{x}** {markdown_cell(label)}  "
            for x, label in zip(letters, comparison.labels, strict=True)
        ),
        "",
        *markdown_table(heads, body, numbers=range(1, len(heads))),
    ]
    if comparison.verdicts:
        lines.append("")
        lines += [f"- {'❌' if v.broken else '✅'} `{v.gate.text}`: {verdict(comparison, v)}"
                  for v in comparison.verdicts]  # fmt: skip
    for other, change in enumerate(comparison.changes, start=1):
        by = f"by module{_whose(comparison, other)}"
        lines += ["", *_markdown_changes(change, letter(other), by, depth)]
    return "\n".join(lines) + "\n"


def _markdown_changes(change: Change, name: str, by: str, depth: int | None) -> Iterator[str]:
    if not change.differs:
        yield f"From A to {name}, no module differs."
        return
    depth = fitting_depth(change) if depth is None else depth
    yield from (f"<details><summary>What changed from A to {name}, {by}</summary>", "")
    metric = _metric(change)
    heads = ("", "module", f"{metric.head} before", "after", "change", "what differs")
    rows = (_markdown_row(c, metric) for c in change.walk(depth) if worth_showing(c))
    yield from markdown_table(heads, rows, numbers=(2, 3, 4))
    yield from ("", "</details>")


def _markdown_row(change: Change, metric: _Metric) -> list[str]:
    name = "\u2003" * change.depth + name_of(change)
    return [MARKS[change.status][0], name, *_cells(change, metric), ", ".join(change.details)]
