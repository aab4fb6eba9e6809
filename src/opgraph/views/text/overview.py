"""The explorer's first answer: what a graph consists of and what dominates it, and the commands that show
more. Nobody is flooded by seven thousand nodes by accident."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from opgraph.analysis.cost.totals import Cost, total_seconds
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.fusion.partition import savings
from opgraph.analysis.nodes import Row, by_op
from opgraph.record import units
from opgraph.record.graph import Graph, Node
from opgraph.record.kinds import Bound
from opgraph.views.headline import way
from opgraph.views.marks import BOUNDS, Mark
from opgraph.views.tables import csv_text
from opgraph.views.terminal import bar, draw, fit_tail, labelled, safe
from opgraph.views.text.summary import inputs_of

WIDEST = 140
"""Columns beyond which figures stand too far from their names."""

_NARROWEST = 20
"""Characters that a name has at least; shares go before names do."""

TOP_OPERATORS = 10
TOP_MODULES = 5
TOP_REPEATS = 6


def _taken(row: Row) -> float:
    """The seconds that a row is ordered by: measured ones where there are any."""
    return (row.seconds if row.measured is None else row.measured) or 0.0


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
        "totals": costed.totals.to_dict(),
        "ridge": costed.ridge,
        "bounds": [b.to_dict() for b in costed.bounds],
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
        rows.append(("Bound", f"{shares} of the time"))
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


def _sections(
    costed: CostedRecord, *, constants_apart: bool = True
) -> Iterator[tuple[str, list[Row]]]:
    graph, tree = costed.graph, costed.tree

    def row(name: str, cls: str, count: int, cost: Cost, nodes: Iterable[Node]) -> Row:
        return Row(costed, name, cls, count, None, cost, tuple(nodes))

    bounds = costed.node_bounds
    yield "Bottlenecks", [
        row(s.bound.value, "", s.nodes, s.cost, (n for n in graph.nodes if bounds.get(n.id) is s.bound))
        for s in costed.bounds
    ]  # fmt: skip
    measured = costed.measurement is not None
    yield "Operators", list(by_op(costed, constants_apart=constants_apart, measured=measured))
    fused = []
    for saved in savings(costed.parts):
        if saved.rule not in ("boundary", "view"):
            parts = [p for p in costed.parts if p.rule == saved.rule]
            held = (graph.node(n) for p in parts for n in p.nodes)
            cost = sum((p.cost for p in parts), Cost())
            fused.append(row(saved.rule, "", saved.subgraphs, cost, held))
    yield "Fusion", fused
    yield "Costliest modules", [
        row(h.path or h.cls, h.cls, h.nodes, h.cost, (n for i in h.leaves for n in tree.nodes_of(i)))
        for h in tree.hot_spots(TOP_MODULES)
    ]  # fmt: skip
    repeats = [
        row(tree.title(i), i.cls, i.count, tree.cost(i), tree.nodes_of(i)) for i in tree.repeats()
    ]
    yield "Repeated blocks", sorted(repeats, key=lambda r: -_taken(r))


_MOST = {"Operators": TOP_OPERATORS, "Repeated blocks": TOP_REPEATS}
_COUNTED = {"Repeated blocks": "times", "Fusion": "graphs"}


def _costs(costed: CostedRecord, width: int) -> Table:
    """All sections in one grid, figures below each other."""
    roomy = width >= 100
    bars = min(16, width // 5 - 15) if roomy else 6
    measured = costed.measurement
    timed = costed.device is not None or measured is not None
    columns = [c for c in _columns(bars, timed=timed) if roomy or not c[2]]
    for share in ("seconds %", "seconds bar") if timed else ("bytes %", "flops %", "flops bar"):
        if width - sum(size + 1 for _, size, _ in columns) <= _NARROWEST:
            columns = [c for c in columns if c[0] != share]
    label = width - sum(size + 1 for _, size, _ in columns)
    total = costed.totals.cost
    times = costed.seconds_by_node if measured is None else measured.by_node
    whole = total_seconds(costed.graph.nodes, times) or 0.0
    result = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    result.add_column(no_wrap=True, min_width=label - 1, max_width=label - 1)
    for name, size, _ in columns:
        justify: Literal["left", "right"] = "left" if name.endswith("bar") else "right"
        result.add_column(justify=justify, no_wrap=True, min_width=size, max_width=size)
    sections = _sections(costed, constants_apart=False)
    for number, (title, entries) in enumerate(sections):
        if not entries:
            continue
        if number:
            result.add_row()
        note = f", ridge {costed.ridge:.4g}" if title == "Bottlenecks" else ""
        heads = {"count": _COUNTED.get(title, "nodes"), "flops": "FLOPs", "bytes": "bytes",
                 "intensity": "FLOPs/byte", "seconds": "measured" if measured else "time"}  # fmt: skip
        result.add_row(Text(title + note, style="bold"),
                       *(Text(heads.get(name, ""), style="dim") for name, _, _ in columns))  # fmt: skip
        most = _MOST.get(title, len(entries))
        for entry in entries[:most]:
            cells = _cells(entry, total, whole, bars)
            mark = BOUNDS[Bound(entry.name)] if title == "Bottlenecks" else None
            result.add_row(_label(entry, mark, label - 1), *(cells[name] for name, _, _ in columns))
        if len(entries) > most:
            result.add_row(Text(f"  … and {len(entries) - most} more", style="dim"))
    return result


def _columns(bars: int, *, timed: bool) -> tuple[tuple[str, int, bool], ...]:
    """The columns behind the label: name, width, and whether only wide terminals have them. Shares stand
    behind what they are of: the time that was measured or is predicted, else FLOPs and bytes."""
    if timed:
        return (
            ("count", 6, False), ("flops", 7, False), ("bytes", 10, False), ("intensity", 10, True),
            ("seconds", 8, False), ("seconds %", 6, False), ("seconds bar", bars, False),
        )  # fmt: skip
    return (
        ("count", 6, False), ("flops", 7, False), ("flops %", 6, False), ("flops bar", bars, False),
        ("bytes", 10, False), ("bytes %", 6, False), ("bytes bar", bars, True),
        ("intensity", 10, False),
    )  # fmt: skip


def _cells(entry: Row, total: Cost, whole: float, bars: int) -> dict[str, RenderableType]:
    cost = entry.cost
    none = Text("—", style="dim")
    time = _taken(entry) / whole if whole else 0.0
    flops = cost.flops / total.flops if total.flops else 0.0
    traffic = cost.bytes / total.bytes if total.bytes else 0.0
    return {
        "count": f"{entry.count:,}",
        "flops": units.count(cost.flops) if cost.flops else none,
        "flops %": units.percent(flops) if cost.flops else "",
        "flops bar": bar(flops, bars),
        "bytes": units.size(cost.bytes) if cost.bytes else none,
        "bytes %": units.percent(traffic) if cost.bytes else "",
        "bytes bar": bar(traffic, bars),
        "intensity": units.intensity(cost.arithmetic_intensity),
        "seconds": units.seconds(_taken(entry)) if _taken(entry) else none,
        "seconds %": units.percent(time) if time else "",
        "seconds bar": bar(time, bars),
    }


def _label(entry: Row, mark: Mark | None, width: int) -> Text:
    """The name, its end kept where it is too long, and the class behind it where there is room."""
    sign, style = (f"{mark.sign} ", mark.style) if mark else ("", "")
    label = Text(f"  {sign}{fit_tail(entry.name, width - 2 - len(sign)).rstrip()}", style=style)
    if entry.class_name and label.cell_len + 2 + len(entry.class_name) <= width:
        label.append(f"  {safe(entry.class_name)}", style="dim")
    return label


def next_steps(costed: CostedRecord, command: str) -> Iterator[tuple[str, str]]:
    """Commands that show more of this graph, with what each shows."""
    measured = costed.measurement
    times = (costed.seconds_by_node if measured is None else measured.by_node) or {}
    costly: Node | None = max(
        costed.graph.nodes, key=lambda n: (times.get(n.id, 0.0), n.flops, n.bytes), default=None
    )
    if costly is None:
        return
    yield f"{command} --around {costly.id}", f"the costliest node, {costly.op}, and its neighbours"
    block = next((item for item in costed.tree.repeats() if item.member.path), None)
    if block is not None:
        several = f"one of the {block.count} equal {block.cls} modules"
        yield f"{command} --module {block.member.path}", several
    bound = [n for n, b in costed.node_bounds.items() if b is Bound.MEMORY]
    if bound:
        yield (f"{command} --bottleneck memory", f"the {len(bound):,} nodes that wait for memory")
    last = min(20, len(costed.graph.nodes))
    yield f"{command} --start 1 --end {last}", f"the first {last} nodes, from the inputs on"


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
