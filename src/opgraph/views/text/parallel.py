"""A graph over several devices, as text: what a device of each stage holds, what is sent, and the time."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from opgraph.analysis.memory import Fit
from opgraph.analysis.parallel.plan import Plan, Share, smallest
from opgraph.hardware import Device
from opgraph.record import units
from opgraph.record.graph import Graph
from opgraph.views.terminal import columns, safe

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table


def over_devices(plan: Plan, name: str | None) -> Group:
    """The section of a plan; `name` is the device's."""
    from rich.console import Group
    from rich.text import Text

    layout = plan.layout
    on = f" on {units.plural(layout.devices, 'device')}" + (f", each {name}" if name else "")
    title = f"Tensor {layout.tensor} × pipeline {layout.pipeline} × data {layout.data}{on}"
    traffic: list[RenderableType] = ["", _traffic(plan)] if plan.traffic else []
    return Group(
        Text(title, style="bold"), *_time(plan), "", _stages(plan),
        *traffic, *_notes(plan),
    )  # fmt: skip


def _time(plan: Plan) -> list[str]:
    layout, lines = plan.layout, []
    if plan.seconds is not None and plan.throughput is not None:
        each = _batches(layout.micro_batches)
        lines += [
            f"Step         {units.seconds(plan.seconds)} predicted for {each} of {plan.batch}",
            f"Throughput   {units.count(plan.throughput)} a second",
        ]
    if layout.pipeline > 1:
        lines.append(
            f"Bubble       {units.percent(layout.bubble)} of a step is waiting, "
            f"with {_batches(layout.micro_batches)} in {layout.pipeline} stages"
        )
    if plan.capacity is not None:
        verdict = "fits" if plan.memory <= plan.capacity else "does not fit"
        lines.append(
            f"Memory       {verdict}: {units.size(plan.memory)} of {units.size(plan.capacity)} "
            "on the fullest device"
        )
    return lines


def _batches(number: int) -> str:
    return "1 micro-batch" if number == 1 else f"{number:,} micro-batches"


def _stages(plan: Plan) -> Table:
    """A row a stage; neighbours that are equal are one."""
    kinds = ["weights", "gradients", "optimizer", "activations", "KV cache"]
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
        share.weights, share.gradients, share.optimizer_state, share.activations, share.cache,
        share.stage.blocks, share.flops,
    )  # fmt: skip


def _traffic(plan: Plan) -> Table:
    timed = any(t.seconds is not None for t in plan.traffic)
    result = columns(
        "sent by a device in a step, at most",
        "phase",
        "times",
        "bytes",
        *(["time"] if timed else []),
    )
    for t in plan.traffic:
        what = {
            "tensor": t.kind,
            "pipeline": "to the next stage" if t.kind == "send" else "all-reduce of tied gradients",
            "data": "all-reduce of gradients",
        }
        result.add_row(
            f"{t.what}: {what[t.what]}",
            t.phase,
            f"{t.times:,}",
            units.size(t.bytes),
            *([units.seconds(t.seconds or 0.0)] if timed else []),
        )
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
    if any(s.gradients for s in plan.shares) and layout.pipeline > 1:
        found.append("Activations: of all micro-batches in flight (one forward, one backward).")
    return ["", *found] if found else []


def held_by(graph: Graph, target: Device, need: Fit) -> str:
    """How many devices hold a model that one does not: by memory alone, and as layers and heads divide."""
    if need.devices < 2:
        return f"{units.size(need.peak)} of activations alone are more than one device has"
    power = 1 << (need.devices - 1).bit_length()
    text = f"{need.devices} by memory (weights split evenly, the whole peak on each)"
    if power != need.devices:
        text += f", {power} as a power of two"
    plan = smallest(graph, target)
    if plan is not None:
        layout = plan.layout
        text += (
            f"; {layout.devices} as --tensor-parallel {layout.tensor} "
            f"--pipeline-parallel {layout.pipeline}"
        )
    return text
