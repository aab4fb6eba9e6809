"""Sections below the table for what is asked beside it: the time on a device, memory over time, and the
partition into fused subgraphs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.fusion.partition import Subgraph, savings
from opgraph.analysis.timing.prediction import Prediction
from opgraph.record import units
from opgraph.record.errors import RenderError
from opgraph.views.terminal import bar, columns, safe
from opgraph.views.text.parallel import held_by, over_devices
from opgraph.views.text.summary import serving

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

_STEPS = "▁▂▃▄▅▆▇█"


def time_on(costed: CostedRecord, top: int = 8) -> Group:
    """Predicted latency and throughput, whether it fits, and the costliest operators."""
    from rich.console import Group

    target, found, need = costed.device, costed.prediction, costed.fit
    if target is None or found is None or need is None:
        raise RenderError("time is predicted for a device")
    room = (
        f"fits: {units.size(need.needed)} of {units.size(need.capacity)}"
        if need.fits
        else f"does not fit: {units.size(need.needed)} needed, {units.size(need.capacity)} there"
    )
    beside = need.rounding + need.workspace
    more = f", blocks and workspace {units.size(beside)}" if beside else ""
    if need.reserved is not None:
        more += f"; {units.size(need.reserved)} reserved"
    lines = [
        f"Latency      {units.seconds(found.seconds)} predicted for a batch of {found.batch}",
        *([f"Limit        {found.limiting}"] if found.limit == "host" else []),
        f"Throughput   {units.count(found.throughput)} a second",
        f"Memory       {room} (weights {units.size(need.weights)}, peak {units.size(need.peak)}{more})",
        *([] if need.fits else [f"Devices      {held_by(costed.graph, target, need)}"]),
    ]
    return Group(_title(f"On {target.name}"), *lines, "", _costliest(costed, found, top))


def _costliest(costed: CostedRecord, found: Prediction, top: int) -> Table:
    total = found.seconds or 1.0
    result = columns("operator", "nodes", "time", "% time", "")
    timed = [o for o in costed.operators if o.seconds]
    for o in timed[:top]:
        share = (o.seconds or 0.0) / total
        result.add_row(safe(o.op), f"{o.count:,}", units.seconds(o.seconds or 0.0),
                       units.percent(share), bar(share))  # fmt: skip
    if len(timed) > top:
        result.add_row(f"… and {len(timed) - top} more")
    return result


def memory_over_time(costed: CostedRecord, width: int, top: int = 8) -> Group:
    """Live memory as a line over the run, and what is alive at the peak."""
    from rich.console import Group

    graph, found = costed.graph, costed.memory
    at = "" if found.peak_node is None else f" at node {found.peak_node} "
    name = "" if found.peak_node is None else f"({safe(graph.node(found.peak_node).name)})"
    result = columns("alive at the peak", "operator", "tensors", "bytes", "share", "")
    for a in found.alive[:top]:
        share = a.bytes / found.peak if found.peak else 0.0
        result.add_row(safe(a.scope) or "(root)", safe(a.op), f"{a.count:,}", units.size(a.bytes),
                       units.percent(share), bar(share))  # fmt: skip
    rest = len(found.alive) - top
    parts: list[RenderableType] = [
        _title("Memory over time, without weights"),
        sparkline(found.live, min(72, width - 2)),
        f"peak {units.size(found.peak)}{at}{name}",
        "",
        result,
    ]
    return Group(*parts, *([f"… and {units.plural(rest, 'more row')}"] if rest > 0 else []))


def sparkline(values: Sequence[int], width: int) -> str:
    """A line of blocks: the largest value of each stretch, against the largest of all."""
    highest = max(values, default=0)
    if not highest:
        return ""
    columns = min(width, len(values))
    edges = [round(i * len(values) / columns) for i in range(columns + 1)]
    tops = (max(values[a:b]) for a, b in pairwise(edges))
    return "".join(_STEPS[round(t / highest * (len(_STEPS) - 1))] for t in tops)


def fused(parts: Sequence[Subgraph]) -> Group:
    """What fusion saves, by rule."""
    from rich.console import Group

    result = columns("rule", "subgraphs", "nodes", "kernels", "fused", "bytes", "fused")
    rows = savings(tuple(parts))
    for s in rows:
        result.add_row(s.rule, f"{s.subgraphs:,}", f"{s.nodes:,}", f"{s.kernels:,}",
                       f"{s.fused_kernels:,}", units.size(s.bytes), units.size(s.fused_bytes))  # fmt: skip
    before, after = sum(s.bytes for s in rows), sum(s.fused_bytes for s in rows)
    spared = units.percent(1 - after / before) if before else "nothing"
    nodes = sum(s.nodes for s in rows)
    head = f"{units.plural(nodes, 'node')} in {units.plural(len(parts), 'subgraph')}"
    return Group(_title(f"Fused subgraphs: {head}, {spared} of the bytes saved"), result)


def sections(costed: CostedRecord, *, memory: bool, width: int) -> list[RenderableType]:
    """The sections that were asked for, each after an empty line."""
    found: list[RenderableType] = []
    if costed.device is not None:
        found += ["", time_on(costed)]
    if costed.plan is not None:
        name = None if costed.device is None else costed.device.name
        found += ["", over_devices(costed.plan, name)]
    if memory:
        found += ["", memory_over_time(costed, width)]
    if "partition" in costed.asked:
        found += ["", fused(costed.parts)]
    if costed.steps:
        found += ["", serving(costed)]
    return found


def _title(text: str) -> RenderableType:
    from rich.text import Text

    return Text(text, style="bold")
