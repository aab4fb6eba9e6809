"""Sections below the table for what is asked beside it: the time on a device, memory over time, and the
partition into fused subgraphs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from opgraph.analysis.fusion.partition import Subgraph, compiled, partition, savings, singletons
from opgraph.analysis.memory import fit
from opgraph.analysis.memory import memory as memory_of
from opgraph.analysis.parallel.plan import Layout, Plan, parallel
from opgraph.analysis.timing.prediction import Prediction, predict
from opgraph.analysis.timing.roofline import roofline, shares
from opgraph.hardware import Device, device
from opgraph.record import units
from opgraph.record.errors import RenderError
from opgraph.record.graph import Graph
from opgraph.record.profile import Profile
from opgraph.views.text.parallel import held_by, over_devices
from opgraph.views.text.terminal import bar, bound, columns, safe

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

_STEPS = "▁▂▃▄▅▆▇█"


def time_on(graph: Graph, target: Device, parts: Sequence[Subgraph], top: int = 8) -> Group:
    """Predicted latency and throughput, the dearest operators, the roofline's bottlenecks, and whether
    it fits."""
    from rich.console import Group

    found = predict(graph, target)
    need = fit(graph, target)
    room = (
        f"fits: {units.size(need.needed)} of {units.size(need.capacity)}"
        if need.fits
        else f"does not fit: {units.size(need.needed)} needed, {units.size(need.capacity)} there"
    )
    lines = [
        f"Latency      {units.seconds(found.seconds)} predicted for a batch of {found.batch}",
        f"Throughput   {units.count(found.throughput)} a second",
        f"Bound        {units.percent(found.share('compute'))} of the time by arithmetic, "
        f"{units.percent(found.share('memory'))} by memory, "
        f"{units.percent(found.share('overhead'))} by launches",
        f"Memory       {room} (weights {units.size(need.weights)}, peak {units.size(need.peak)})",
        *([] if need.fits else [f"Devices      {held_by(graph, target, need)}"]),
    ]
    return Group(
        _title(f"On {target.name}"), *lines, "", _dearest(graph, found, top), "",
        _title("Roofline of the subgraphs, at their least time"), _bottlenecks(graph, target, parts),
    )  # fmt: skip


def _dearest(graph: Graph, found: Prediction, top: int) -> Table:
    by_op: dict[str, list[float]] = {}
    for node, seconds in found.by_node.items():
        by_op.setdefault(graph.node(node).op, []).append(seconds)
    total = found.seconds or 1.0
    result = columns("operator", "nodes", "time", "share", "")
    for op, times in sorted(by_op.items(), key=lambda i: -sum(i[1]))[:top]:
        share = sum(times) / total
        result.add_row(safe(op), f"{len(times):,}", units.seconds(sum(times)),
                       units.percent(share), bar(share))  # fmt: skip
    return result


def _bottlenecks(graph: Graph, target: Device, parts: Sequence[Subgraph]) -> Table:
    result = columns("", "subgraphs", "time", "share", "")
    for s in shares(roofline(graph, parts, target)):
        result.add_row(bound(s.bottleneck), f"{s.count:,}", units.seconds(s.seconds),
                       units.percent(s.share), bar(s.share))  # fmt: skip
    return result


def memory_over_time(graph: Graph, width: int, top: int = 8) -> Group:
    """Live memory as a line over the run, and what is alive at the peak."""
    from rich.console import Group

    found = memory_of(graph)
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
    return Group(_title(f"Fused subgraphs: {head}, {spared} of the traffic saved"), result)


def sections(
    profile: Profile,
    hardware: str | None,
    how: str | None,
    layout: Layout | None,
    *,
    memory: bool,
    width: int,
) -> list[RenderableType]:
    """The sections that were asked for, each after an empty line."""
    graph = profile.graph
    parts = parts_of(profile, how or "fuse")
    target = None if hardware is None else device(hardware)
    found: list[RenderableType] = []
    if target is not None:
        found += ["", time_on(graph, target, parts)]
    if layout is not None:
        found += [
            "",
            over_devices(
                _laid_out(profile, layout, target), None if target is None else target.name
            ),
        ]
    if memory:
        found += ["", memory_over_time(graph, width)]
    if how is not None:
        found += ["", fused(parts)]
    return found


def _laid_out(profile: Profile, layout: Layout, target: Device | None) -> Plan:
    cache = 0 if profile.cache is None else profile.cache.bytes
    return parallel(profile.graph, layout, target, cache=cache)


def parts_of(profile: Profile, how: str) -> tuple[Subgraph, ...]:
    """The subgraphs of a profile by the name of the partition: "none", "fuse" or "inductor".

    Raises `RenderError` where TorchInductor was not asked when the profile was made.
    """
    if how == "inductor":
        if not profile.compiled:
            raise RenderError(
                "this profile does not have TorchInductor's groups",
                hint="name the model: opgraph profile MODEL --partition inductor -o FILE.json keeps them",
            )
        return compiled(profile.graph, profile.compiled)
    return singletons(profile.graph) if how == "none" else partition(profile.graph)


def _title(text: str) -> RenderableType:
    from rich.text import Text

    return Text(text, style="bold")
