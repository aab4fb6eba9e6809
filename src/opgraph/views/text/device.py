"""Sections below the table for what is asked beside it: the time on a device, what ranks exchange beside
the kernels, memory over time, and the partition into fused subgraphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.timing.streams import KERNELS, ON_HOST, PACKING, WAITING, Slot
from opgraph.record import units
from opgraph.record.errors import RenderError
from opgraph.views.headline import way
from opgraph.views.terminal import bar, columns, hanging, safe
from opgraph.views.text.summary import serving

if TYPE_CHECKING:
    from opgraph.analysis.compiled import SpeedUp
    from opgraph.analysis.fusion.partition import Subgraph
    from opgraph.analysis.memory import Fit
    from opgraph.analysis.parallel.paper import Plan, Share
    from opgraph.analysis.timing.energy import Energy, Price
    from opgraph.analysis.timing.prediction import Prediction

_STEPS = "▁▂▃▄▅▆▇█"


def time_on(costed: CostedRecord, top: int = 8) -> Group:
    """Predicted latency and throughput, whether it fits, and the costliest operators."""
    target, found, need = costed.device, costed.prediction, costed.fit
    if target is None or found is None or need is None:
        raise RenderError("time is predicted for a device")
    room = (
        f"fits: {units.size(need.needed)} of {units.size(need.capacity)}"
        if need.fits
        else f"does not fit: {units.size(need.needed)} needed, {units.size(need.capacity)} there"
    )
    beside = {"rounding": need.rounding, "workspace": need.workspace, "context": need.context}
    more = "".join(f", {what} {units.size(size)}" for what, size in beside.items() if size)
    if need.reserved is not None:
        more += (
            "" if need.context else ", context unknown"
        ) + f"; {units.size(need.reserved)} reserved"
    lines = [
        f"Latency      {found.written} predicted{way(costed.run)} for a batch of {found.batch}",
        *([f"Limit        {found.limiting} (--sort host)"] if costed.hosted else []),
        *([] if costed.speed_up is None else _compiled(costed.speed_up)),
        *([f"Throughput   {units.count(found.throughput)} a second"] if found.seconds else []),
        *([] if costed.energy is None else [_energy(costed.energy)]),
        *([] if costed.price is None else [_price(costed.price)]),
        f"Memory       {room} (weights {units.size(need.weights)}, peak {units.size(need.peak)}{more})",
        *([] if need.fits else [f"Devices      {held_by(need, costed.profile.mode)}"]),
    ]
    works = found.device_seconds
    table: list[RenderableType] = ["", _costliest(costed, works, top)] if works else []
    return Group(_title(f"On {target.name}"), hanging(lines), *table)


def _energy(found: Energy) -> str:
    return f"Energy       {found.written}, {found.watts:,.0f} W on average"


def _compiled(found: SpeedUp, top: int = 3) -> list[str]:
    """How fast beside an eager run, and why."""
    share = {r.text: -r.seconds / found.eager for r in found.reasons[:top] if found.eager}
    reasons = [f"{s * 100:+.1f} %  {safe(text)}" for text, s in share.items()]
    before, now = found.launches
    head = (
        f"Compiled     {found.factor:.2f} times as fast as an eager run ({units.seconds(found.eager)}), "
        f"{now:,} launches instead of {before:,}"
    )
    lines = [head, *(f"             {reason}" for reason in reasons)]
    if found.kept is None:
        return lines
    again = [op if n == 1 else f"{op} × {n:,}" for op, n in list(found.kept.again.items())[:top]]
    more = len(found.kept.again) - len(again)
    what = ", ".join(map(safe, again)) + (
        f" and {units.plural(more, 'other operator')}" if more else ""
    )
    lines.append(
        f"Kept         {units.size(found.kept.bytes)} for the backward "
        f"(alive after an eager forward: {units.size(found.kept.eager_bytes)})"
        + (f"; computed again: {what}" if what else "")
    )
    return lines


def _price(found: Price) -> str:
    each = f"; {found.per_item * 1000:.3g} for 1,000 items" if found.per_item != found.run else ""
    return f"Price        {found.written} a run at {found.per_hour:g} an hour{each}"


def _costliest(costed: CostedRecord, whole: float, top: int) -> Table:
    time = "device" if costed.hosted else "time"
    result = columns("operator", "nodes", time, f"% {time}", "")
    timed = [o for o in costed.operators if o.seconds]
    for o in timed[:top]:
        share = (o.seconds or 0.0) / whole
        result.add_row(safe(o.name), f"{o.count:,}", units.seconds(o.seconds or 0.0),
                       units.percent(share), bar(share))  # fmt: skip
    if len(timed) > top:
        result.add_row(f"… and {len(timed) - top} more")
    return result


_WAITS = {False: "red", True: "magenta"}
"""The colours of what is exposed, and of bubbles; the lines say so in words, too."""


def queues_over_time(costed: CostedRecord, width: int) -> Group:
    """The queues of a rank over the time of the run, and a table of what each adds to it."""
    from rich.console import Group
    from rich.text import Text

    found = costed.prediction
    if found is None or not found.slots:
        raise RenderError("a timeline of queues needs a device, and ranks that exchange something")
    end = max(slot.end for slot in found.slots)
    waits = [s for s in found.slots if s.queue == WAITING]
    lines = {KERNELS: [s for s in found.slots if s.queue == KERNELS]}
    for slot in found.slots:
        if slot.queue not in (KERNELS, PACKING, WAITING):
            lines.setdefault(slot.queue, []).append(slot)
    for name, bubble in (("exposed", False), ("bubbles", True)):
        if some := [s for s in waits if s.bubble == bubble]:
            lines[name] = some
    room = max(map(len, lines)) + 2
    across = max(10, min(96, width - room))
    style = {"exposed": _WAITS[False], "bubbles": _WAITS[True], KERNELS: "green", ON_HOST: "yellow"}
    drawn = [
        Text.assemble(f"{safe(name):<{room}}", (_line(slots, end, across), style.get(name, "cyan")))
        for name, slots in lines.items()
    ]
    hosted = found.limit == "host"
    whole = "the device's work" if hosted else "the run"
    table = columns("beside the kernels", "collectives", "time", "exposed", f"% of {whole}")
    for name, slots in lines.items():
        if name in style:
            continue
        nodes = {s.node for s in slots}
        exposed = sum(s.end - s.begin for s in waits if s.node in nodes and not s.bubble)
        table.add_row(safe(name), f"{len(slots):,}", units.seconds(sum(s.end - s.begin for s in slots)),
                      units.seconds(exposed), units.percent(exposed / end if end else 0.0))  # fmt: skip
    ruler = f"{'':<{room}}0{units.seconds(end):>{across - 1}}"
    parts: list[RenderableType] = [
        _title(f"Queues over the time of {whole}"),
        *drawn,
        ruler,
        *(
            [f"The host takes {units.seconds(found.seconds)}, and the device waits for it."]
            if hosted
            else []
        ),
        "",
        table,
        *_course(found, width),
    ]
    return Group(*parts)


_DONE = {"F": "▒", "B": "█", "I": "█", "W": "▓"}
"""What a rank of a pipeline does, in the picture of a step."""

_RANKS = 16


def _course(found: Prediction, width: int) -> Iterator[str]:
    """A line for each rank of a pipeline over the step: forwards, backwards, and waits."""
    if not found.stages:
        return
    end = max(found.seconds, *(row[-1].end for row in found.stages))
    room = len(f"rank {len(found.stages) - 1}") + 2
    across = max(10, min(96, width - room))
    yield ""
    halves = any(done.action[0] == "W" for row in found.stages for done in row)
    said = "▒ forward, █ backward" + (" to the inputs, ▓ to the weights" if halves else "")
    yield f"Ranks of the pipeline over the step: {said}; blank waits"
    shown = found.stages[:_RANKS]
    for rank, row in enumerate(shown):
        cells = [" "] * across
        for done in row:
            first, last = done.begin / end * across, done.end / end * across
            for at in range(round(first), max(round(first) + 1, round(last))):
                if at < across:
                    cells[at] = _DONE[done.action[0]]
        yield f"{f'rank {rank}':<{room}}" + "".join(cells).rstrip()
    if len(found.stages) > _RANKS:
        yield f"… and {len(found.stages) - _RANKS} more"


def _line(slots: Iterable[Slot], end: float, across: int) -> str:
    """How busy a queue is, by the height of a block for each stretch of time."""
    busy = [0.0] * across
    for slot in slots:
        first, last = slot.begin / end * across, slot.end / end * across
        for at in range(int(first), min(across, int(last) + 1)):
            busy[at] += max(0.0, min(last, at + 1) - max(first, at))
    top = len(_STEPS) - 1
    return "".join(" " if b <= 0 else _STEPS[min(top, int(b * top + 0.5))] for b in busy)


def memory_over_time(costed: CostedRecord, width: int, top: int = 8) -> Group:
    """Live memory over the run, and what is alive at the peak."""
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
        f"peak {units.size(found.peak)}{at}{name}, {units.size(costed.peak_memory)} with the weights",
        "",
        result,
    ]
    return Group(*parts, *([f"… and {units.plural(rest, 'more row')}"] if rest > 0 else []))


def sparkline(values: Sequence[int], width: int) -> str:
    """A line of blocks by the largest value of each interval."""
    highest = max(values, default=0)
    if not highest:
        return ""
    columns = min(width, len(values))
    edges = [round(i * len(values) / columns) for i in range(columns + 1)]
    tops = (max(values[a:b]) for a, b in pairwise(edges))
    return "".join(_STEPS[round(t / highest * (len(_STEPS) - 1))] for t in tops)


def fused(parts: Sequence[Subgraph]) -> Group:
    """What fusion saves, by rule."""
    from opgraph.analysis.fusion.partition import savings

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
    if costed.ran is not None:
        from opgraph.views.text.measured import measured

        found += ["", measured(costed.ran)]
    if costed.device is not None and costed.graph.failed is None:
        found += ["", time_on(costed)]
        if costed.prediction is not None and costed.prediction.slots:
            found += ["", queues_over_time(costed, width)]
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
    return Text(text, style="bold")


# A graph over several devices, as text: what a device of each stage holds, what is sent, and the time.


def over_devices(plan: Plan, name: str | None) -> Group:
    """The section of a plan; `name` is the device's."""
    layout = plan.layout
    on = f" on {units.plural(layout.devices, 'device')}" + (f", each {name}" if name else "")
    title = f"Tensor {layout.tensor} × pipeline {layout.pipeline} × data {layout.data}{on}"
    traffic: list[RenderableType] = ["", _traffic(plan)] if plan.traffic else []
    return Group(
        Text(title, style="bold"), hanging(_time(plan)), "", _stages(plan),
        *traffic, *_notes(plan),
    )  # fmt: skip


def _time(plan: Plan) -> list[str]:
    layout, lines = plan.layout, []
    if plan.seconds is not None and plan.throughput is not None:
        each = units.plural(layout.micro_batches, "micro-batch")
        lines += [
            f"Step         {units.seconds(plan.seconds)} predicted for {each} of {plan.batch}",
            f"Throughput   {units.count(plan.throughput)} a second",
        ]
    if layout.pipeline > 1:
        lines.append(
            f"Bubble       {units.percent(layout.bubble)} of a step is waiting, "
            f"with {units.plural(layout.micro_batches, 'micro-batch')} in {layout.pipeline} stages"
        )
    if plan.capacity is not None:
        verdict = "fits" if plan.memory <= plan.capacity else "does not fit"
        lines.append(
            f"Memory       {verdict}: {units.size(plan.memory)} of {units.size(plan.capacity)} "
            "on the fullest device"
        )
    return lines


def _stages(plan: Plan) -> Table:
    """A row a stage; neighbours that are equal are one."""
    kinds = ["weights", "activations", "KV cache"]
    groups = [list(g) for _, g in groupby(enumerate(plan.shares), key=lambda p: _figures(p[1]))]
    shown = [k for i, k in enumerate(kinds) if any(_figures(s)[i] for s in plan.shares)]
    timed = plan.seconds is not None
    head = ["stage", "blocks", *shown, "memory", "FLOPs", *(["time"] if timed else [])]
    result = columns(*head)
    for group in groups:
        first, share = group[0]
        label = f"{first + 1}" if len(group) == 1 else f"{first + 1}-{group[-1][0] + 1}"
        figures = dict(zip(kinds, _figures(share), strict=False))
        result.add_row(
            label,
            f"{share.stage.blocks:,}",
            *(units.size(figures[k]) for k in shown),
            units.size(share.memory),
            units.count(share.flops),
            *([units.seconds(share.seconds or 0.0)] if timed else []),
        )
    return result


def _figures(share: Share) -> tuple[int, ...]:
    return (
        share.weights, share.activations, share.cache, share.stage.blocks, share.flops,
    )  # fmt: skip


def _traffic(plan: Plan) -> Table:
    timed = any(t.seconds is not None for t in plan.traffic)
    head = ("sent by a device in a step, at most", "times", "bytes")
    result = columns(*head, *(["time"] if timed else []))
    for t in plan.traffic:
        what = "to the next stage" if t.what == "pipeline" else t.kind
        time = [units.seconds(t.seconds or 0.0)] if timed else []
        result.add_row(f"{t.what}: {what}", f"{t.times:,}", units.size(t.bytes), *time)
    return result


def _notes(plan: Plan) -> list[str]:
    """What was padded or is uneven."""
    layout, found = plan.layout, []
    sizes = {s.stage.blocks for s in plan.shares}
    if len(sizes) > 1:
        found.append(
            f"The blocks do not divide into {layout.pipeline} stages: the first ones have one more."
        )
    if layout.tensor > 1 and plan.whole > 0.0005:
        found.append(
            f"{units.percent(plan.whole)} of the FLOPs cannot be split, and are done by every device."
        )
    if layout.tensor > 1 and plan.padded:
        found.append(
            f"Rows of {', '.join(map(safe, plan.padded))} are padded to a multiple of {layout.tensor}."
        )
    return ["", *found] if found else []


def held_by(need: Fit, mode: str) -> str:
    """How many devices hold a model, by memory alone, and what says more."""
    if need.devices < 2:
        return f"{units.size(need.peak)} of activations alone are more than one device has"
    power = 1 << (need.devices - 1).bit_length()
    text = f"{need.devices} by memory (weights split evenly, the whole peak on each)"
    if power != need.devices:
        text += f", {power} as a power of two"
    return f"{text}; opgraph {'plan' if mode == 'train' else 'fit'} says which layout holds it"
