"""The explorer's first answer: what a graph consists of and what dominates it, and the commands that show
more. Nobody is flooded by seven thousand nodes by accident."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from opgraph.analysis.cost.totals import Cost, total_seconds
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.fusion.partition import savings
from opgraph.analysis.nodes import Row, by_op
from opgraph.analysis.tree import Metric
from opgraph.record import units
from opgraph.record.graph import Graph, Node
from opgraph.record.kinds import Bound
from opgraph.views.headline import way, whole_of
from opgraph.views.marks import BOUNDS
from opgraph.views.tables import csv_text
from opgraph.views.terminal import Cut, bar, draw, fit_tail, labelled, safe
from opgraph.views.text.summary import inputs_of

WIDEST = 140
"""Columns beyond which figures stand too far from their names."""

_NARROWEST = 20
"""Characters that a name has at least; shares go before names do."""

_BAR, _LONGEST = 5, 16
"""Characters of a bar, at least and at most."""

TOP_OPERATORS = 10
TOP_MODULES = 5
TOP_REPEATS = 6


def _taken(row: Row) -> float:
    """The seconds that a row is ordered by: measured ones where there are any."""
    return (row.seconds if row.measured is None else row.measured) or 0.0


def _order(row: Row) -> tuple[float, ...]:
    """The costliest first: by seconds where there are any, else by FLOPs, then bytes."""
    return (-_taken(row), -row.cost.flops, -row.cost.bytes)


def overview(
    costed: CostedRecord,
    *,
    color: bool = False,
    width: int = 120,
    command: str | None = None,
) -> str:
    """The summary of a graph as text. `command` is how the explorer was called ("opgraph explore
    resnet18"), for the commands at the end. `width` is in characters."""
    width = min(width, WIDEST)
    title = Text(safe(costed.profile.model.name), style="bold")
    title.append(f"  {safe(costed.profile.model.cls.rpartition('.')[2])}", style="not bold dim")
    parts: list[RenderableType] = [
        title,
        "",
        _facts(costed),
        "",
        _costs(costed, width),
    ]
    steps = list(next_steps(costed, command or f"opgraph explore {costed.profile.model.name}"))
    parts += ["", Text("Next", style="bold"), _commands(steps, width)]
    return draw(parts, width, color)


def overview_data(costed: CostedRecord) -> dict[str, Any]:
    """The same as JSON-ready data."""
    low, middle, high = _intensities(costed.graph)
    time = costed.prediction
    return {
        "model": costed.profile.model.name,
        "remarks": [r.to_dict() for r in costed.remarks],
        "totals": costed.totals.to_dict(),
        "ridge": costed.ridge,
        "bounds": [b.to_dict() for b in costed.bounds],
        "waits": {bound.value: share for bound, share in costed.waits.items()},
        **({} if time is None else {"device": time.device, "seconds": time.seconds}),
        "intensity": {"lowest": low, "median": middle, "highest": high},
        **{
            title.lower().replace(" ", "_"): [_entry_data(e) for e in entries]
            for title, entries in _sections(costed)
        },
    }


def overview_csv(costed: CostedRecord) -> str:
    """The same as CSV, one line an entry."""
    records = [
        {"section": title, **_entry_data(entry)}
        for title, entries in _sections(costed)
        for entry in entries
    ]
    return csv_text(records)


def _entry_data(entry: Row) -> dict[str, str | float | None]:
    return {
        "name": entry.name,
        "class": entry.class_name,
        "count": entry.count,
        "flops": entry.cost.flops,
        "other_flops": entry.cost.other_flops,
        "bytes": entry.cost.bytes,
        "intensity": entry.cost.arithmetic_intensity,
        **({} if entry.seconds is None else {"seconds": entry.seconds}),
        **({} if entry.host_seconds is None else {"host_seconds": entry.host_seconds}),
        **({} if entry.measured is None else {"measured": entry.measured}),
    }


def _facts(costed: CostedRecord) -> Table:
    t = costed.totals
    low, middle, high = _intensities(costed.graph)
    rows = [
        ("Graph", f"{units.plural(t.nodes, 'node')}, {units.plural(t.kernels, 'kernel')}, "
                  f"{units.plural(sum(not s.is_loss for s in costed.graph.scopes), 'module')}"
         + (f", {units.plural(len(costed.graph.breaks), 'graph break')}"
            if costed.graph.breaks else "")),
        ("Inputs", ", ".join(inputs_of(costed.graph)) or "none"),
        ("Parameters", f"{units.count(t.parameters)}, {units.size(t.weight_bytes)}"),
        ("FLOPs", f"{units.flops(t.flops)} in matrix products and convolutions, "
                  f"{units.flops(t.other_flops)} in other "
                  f"work; {units.macs(t.macs)}"),
        ("Bytes", f"{units.size(t.bytes)}, {costed.traffic}"),
        ("Intensity", f"{units.intensity(t.arithmetic_intensity)} FLOPs/byte on average; nodes from "
                      f"{units.intensity(low)} to {units.intensity(high)}, "
                      f"median {units.intensity(middle)}"),
    ]  # fmt: skip
    working = sum(1 for p in costed.parts if p.kernels)
    rows.insert(
        1, ("Subgraphs", f"{len(costed.parts):,}, of which {working:,} would run a fused kernel")
    )
    failed = costed.graph.failed
    time = costed.prediction if failed is None else None
    if time is not None and costed.device is not None:
        rows.append(("Predicted", f"{time.written} on {costed.device.name}{way(costed.run)}, "
                                  f"{units.count(time.throughput)} items/s"))  # fmt: skip
        shares = ", ".join(f"{units.percent(b.share)} {b.bound.label}" for b in costed.bounds)
        rows.append(("Bound", f"{shares} of {whole_of(costed, Metric.SECONDS)}"))
        if costed.hosted:
            rows.append(("Limit", time.limiting))
    if (run := costed.profile.measured) is not None:
        rows.append(
            ("Measured", f"{units.seconds(run.seconds)} on {run.device_name or run.device}")
        )
    if t.coverage < 1:
        rows.append(("Coverage", f"{units.percent(t.coverage)} of kernels have a known cost"))
    if failed is not None:
        rows.append(("Failed", f"at node {failed.id}: {failed.failure}"))
    return labelled(rows, 300)


def _intensities(graph: Graph) -> tuple[float | None, float | None, float | None]:
    """The lowest, median and highest intensity of nodes."""
    found = [i for n in graph.nodes if (i := n.arithmetic_intensity) is not None]
    if not found:
        return None, None, None
    return min(found), statistics.median(found), max(found)


def _sections(costed: CostedRecord) -> Iterator[tuple[str, list[Row]]]:
    graph, tree = costed.graph, costed.tree

    def row(name: str, cls: str, count: int, cost: Cost, nodes: Iterable[Node]) -> Row:
        return Row(costed, name, cls, count, None, cost, tuple(nodes))

    bounds = costed.node_bounds
    yield "Bottlenecks", [
        row(s.bound.value, "", s.nodes, s.cost, (n for n in graph.nodes if bounds.get(n.id) is s.bound))
        for s in costed.bounds
    ]  # fmt: skip
    measured = costed.measurement is not None
    yield "Operators", list(by_op(costed, measured=measured))
    fused = []
    for saved in savings(costed.parts):
        if saved.rule not in ("boundary", "view"):
            parts = [p for p in costed.parts if p.rule == saved.rule]
            held = (graph.node(n) for p in parts for n in p.nodes)
            cost = sum((p.cost for p in parts), Cost())
            fused.append(row(saved.rule, "", saved.subgraphs, cost, held))
    yield "Fusion", sorted(fused, key=_order)
    yield "Costliest modules", [
        row(h.label, h.cls, h.nodes, h.cost, (n for i in h.leaves for n in tree.nodes_of(i)))
        for h in tree.hot_spots(TOP_MODULES)
    ]  # fmt: skip
    repeats = [
        row(tree.title(i), i.cls, i.count, tree.cost(i), tree.nodes_of(i)) for i in tree.repeats()
    ]
    yield "Repeated blocks", sorted(repeats, key=_order)


_MOST = {"Operators": TOP_OPERATORS, "Repeated blocks": TOP_REPEATS}
_COUNTED = {"Repeated blocks": "times", "Fusion": "graphs"}


def _costs(costed: CostedRecord, width: int) -> Table:
    """All sections in one grid, figures below each other, columns as wide as what stands in them."""
    measured = costed.measurement
    timed = costed.device is not None or measured is not None
    times = costed.seconds_by_node if measured is None else measured.by_node
    whole = total_seconds(costed.graph.nodes, times) or 0.0
    parts = []
    for title, entries in _sections(costed):
        note = f", ridge {costed.ridge:.4g}" if title == "Bottlenecks" else ""
        listed = entries[: _MOST.get(title)]
        shown = [_cells(entry, costed.totals.cost, whole) for entry in listed]
        if entries:
            parts.append((title, title + note, listed, shown, len(entries) - len(listed)))
    every = [cells for *_, shown, _ in parts for cells in shown]
    columns = [
        c if c.is_bar else c._replace(width=max([c.width, *(len(str(e[c.key])) for e in every)]))
        for c in _columns(timed=timed, measured=measured is not None)
    ]
    labels = [safe(_full(entry, title)) for title, _, listed, *_ in parts for entry in listed]
    longest = max(map(len, [*labels, *(head for _, head, *_ in parts)]), default=0)

    def left() -> int:
        return width - sum(column.width + 1 for column in columns)

    rooms = (0, _NARROWEST, min(longest, 3 * width // 8), min(longest, width // 2))
    for column in sorted(columns, key=lambda c: -c.spared):
        if left() < rooms[min(column.spared, 3)]:
            columns.remove(column)
    bars = [column for column in columns if column.is_bar]
    more = min(_LONGEST - _BAR, max(0, left() - longest) // max(1, len(bars)))
    columns = [c._replace(width=c.width + c.is_bar * more) for c in columns]
    label = max(1, min(left(), longest))
    result = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    result.add_column(no_wrap=True, min_width=label, max_width=label)
    for column in columns:
        justify: Literal["left", "right"] = "left" if column.is_bar else "right"
        result.add_column(
            justify=justify, no_wrap=True, min_width=column.width, max_width=column.width
        )
    for number, (title, head, listed, shown, omitted) in enumerate(parts):
        if number:
            result.add_row()
        heads = [_COUNTED.get(title, "nodes") if c.key == "count" else c.head for c in columns]
        result.add_row(Text(head, style="bold"), *(Text(h, style="dim") for h in heads))
        cut = Cut(entry.name for entry in listed)
        for entry, cells in zip(listed, shown, strict=True):
            result.add_row(_label(entry, title, cut, label), *(c.drawn(cells) for c in columns))
        if omitted:
            result.add_row(Text(f"  … and {omitted} more", style="dim"))
    return result


class _Column(NamedTuple):
    """A column behind the label. Where labels are too long those with the highest `spared` go first; those
    with 1 give way to names that would be cut below the narrowest, those with 0 stay."""

    key: str
    head: str
    spared: int
    width: int

    @property
    def is_bar(self) -> bool:
        return self.key.endswith("bar")

    def drawn(self, cells: Mapping[str, str | float]) -> RenderableType:
        cell = cells[self.key]
        if isinstance(cell, float):
            return bar(cell, self.width)
        return Text(cell, style="dim" if cell == "—" else "")


def _columns(*, timed: bool, measured: bool) -> list[_Column]:
    """The columns behind the label. Shares stand behind what they are of: the time that was measured or is
    predicted, else FLOPs and bytes."""
    if timed:
        found = [
            ("count", "graphs", 0), ("flops", "FLOPs", 0), ("bytes", "bytes", 1),
            ("intensity", "FLOPs/byte", 4), ("seconds", "measured" if measured else "time", 0),
            ("seconds %", "", 1), ("seconds bar", "", 2),
        ]  # fmt: skip
    else:
        found = [
            ("count", "graphs", 0), ("flops", "FLOPs", 0), ("flops %", "", 1), ("flops bar", "", 2),
            ("bytes", "bytes", 0), ("bytes %", "", 3), ("bytes bar", "", 4),
            ("intensity", "FLOPs/byte", 1),
        ]  # fmt: skip
    return [
        _Column(key, head, spared, _BAR if key.endswith("bar") else len(head))
        for key, head, spared in found
    ]


def _cells(entry: Row, total: Cost, whole: float) -> dict[str, str | float]:
    """What an entry shows in each column; of a bar, its share."""
    cost, taken = entry.cost, _taken(entry)
    shares = {
        "flops": cost.flops / total.flops if total.flops else 0.0,
        "bytes": cost.bytes / total.bytes if total.bytes else 0.0,
        "seconds": taken / whole if whole else 0.0,
    }
    return {
        "count": f"{entry.count:,}",
        "flops": units.count(cost.flops) if cost.flops else "—",
        "bytes": units.size(cost.bytes) if cost.bytes else "—",
        "intensity": units.intensity(cost.arithmetic_intensity),
        "seconds": units.seconds(taken) if taken else "—",
        **{f"{key} %": units.percent(share) if share else "" for key, share in shares.items()},
        **{f"{key} bar": share for key, share in shares.items()},
    }


def _sign(title: str, entry: Row) -> tuple[str, str]:
    """The mark of a bound and its colour."""
    if title != "Bottlenecks":
        return "", ""
    mark = BOUNDS[Bound(entry.name)]
    return f"{mark.sign} ", mark.style


def _full(entry: Row, title: str) -> str:
    """The label of an entry where there is room for all of it."""
    name = f"  {_sign(title, entry)[0]}{entry.name}"
    return f"{name}  {entry.class_name}" if entry.class_name else name


def _label(entry: Row, title: str, cut: Cut, width: int) -> Text:
    """The name, and the class behind it, which is left out before a name could be another entry's."""
    sign, style = _sign(title, entry)
    room = width - 2 - len(sign)
    cls = f"  {safe(entry.class_name)}" if entry.class_name else ""
    name = cut(entry.name, room - len(cls))
    if not name:
        cls, name = "", cut(entry.name, room) or fit_tail(entry.name, room).rstrip()
    return Text(f"  {sign}{name}", style=style).append(cls, style="not bold dim")


def next_steps(costed: CostedRecord, command: str) -> Iterator[tuple[str, str]]:
    """Commands that show more of this graph, with what each shows."""
    measured = costed.measurement
    times = (costed.seconds_by_node if measured is None else measured.by_node) or {}
    costly: Node | None = max(
        costed.graph.nodes, key=lambda n: (times.get(n.id, 0.0), n.flops, n.bytes), default=None
    )
    if costly is None:
        return
    if times.get(costly.id) or costly.flops or costly.bytes:
        yield (
            f"{command} --around {costly.id}",
            f"the costliest node, {costly.op}, and its neighbours",
        )
    block = next((item for item in costed.tree.repeats() if item.member.path), None)
    if block is not None:
        several = f"one of the {block.count} equal {block.cls} modules"
        yield f"{command} --module {block.member.path}", several
    bound = [n for n, b in costed.node_bounds.items() if b is Bound.MEMORY]
    if bound:
        waits = "node that waits" if len(bound) == 1 else f"{len(bound):,} nodes that wait"
        yield f"{command} --bottleneck memory", f"the {waits} for memory"
    last = min(20, len(costed.graph.nodes))
    yield (
        f"{command} --start 1 --end {last}",
        f"the first {units.plural(last, 'node')}, from the inputs on",
    )


def _commands(steps: Sequence[tuple[str, str]], width: int) -> Table:
    """Commands with what they show, beside or above them."""
    result = Table.grid(padding=(0, 2))
    result.add_column(overflow="fold")
    if max((len(c) + len(m) for c, m in steps), default=0) + 6 <= width:
        for command, meaning in steps:
            result.add_row("  " + safe(command), Text(meaning, style="dim"))
    else:
        for command, meaning in steps:
            result.add_row(Text(f"  # {meaning}", style="dim"))
            result.add_row("  " + safe(command))
    return result
