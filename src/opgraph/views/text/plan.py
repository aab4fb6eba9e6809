"""The best layouts over many devices as text."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from opgraph.analysis.parallel.composing import Candidate, Planned
from opgraph.record import units
from opgraph.views.terminal import draw, fitting, ruled, safe


def plan_text(found: Planned, *, color: bool = False, width: int = 120) -> str:
    """The ten best layouts, what they keep, and why each but the first is slower."""
    title = (
        f"{safe(found.model)} on {found.devices:,} x {found.device}, {found.global_batch:,} a step"
    )
    parts: list[RenderableType] = [Text(title, style="bold"), ""]
    shown = list(found.best) + ([] if found.asked is None else [found.asked])
    names = [str(i) for i in range(1, len(found.best) + 1)] + ["asked"]
    steps = [_steps(names, shown, interval=interval) for interval in (True, False)]
    memory = [_memory(names, shown, found.capacity, apart) for apart in (1, 0)]
    parts += [chosen := fitting(steps, width), "", fitting(memory, width)]
    whys = [w for w in zip(names[1:], found.whys[1:], strict=False) if w[1]]
    if found.asked is not None:
        whys = [("asked", found.explained or "is the best")]
    if whys:
        parts += ["", Text("Slower than the first by", style="bold")]
        lost = Table.grid(padding=(0, 2, 0, 0))
        lost.add_column(justify="right", min_width=5)
        for each in whys:
            lost.add_row(*each)
        parts.append(lost)
    counted = (
        f"{found.fitting:,} of {found.tried:,} layouts fit, put together of {found.traces:,} traces"
    )
    between = ", with the interval of the kernels' prediction" if chosen is steps[0] else ""
    parts += ["", f"{counted}. Times are predicted{between}."]
    parts += [f"Assumed: {'; '.join(found.assumed)}."] if found.assumed else []
    parts += [f"Not tried: {safe(reason)}" for reason in found.refused[:3]]
    if len(found.refused) > 3:
        parts.append(f"… and {len(found.refused) - 3:,} more that were not tried (--json has them)")
    return draw(parts, width, color)


def _steps(names: list[str], shown: list[Candidate], *, interval: bool) -> Table:
    """A row for each layout; what is wider than there is room is broken between words."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for head, align in (("", "right"), ("layout", "left"), ("batches", "right"), ("how", "left"),
                        ("step", "right"), ("MFU", "right"), ("exposed", "right"),
                        ("bubble", "right")):  # fmt: skip
        words = {"layout": _layout, "how": _how}.get(head)
        longest = (
            max((len(w) for c in shown for w in words(c).split()), default=0) if words else None
        )
        whole = words is None
        table.add_column(head, justify=align, overflow="fold", no_wrap=whole, min_width=longest)  # type: ignore[arg-type]
    for name, c in zip(names, shown, strict=False):
        seconds = units.between(c.seconds, *c.interval) if interval else units.seconds(c.seconds)
        table.add_row(
            name, _layout(c), f"{c.layout.micro_batches:,} of {c.batch}", _how(c), seconds,
            units.percent(c.mfu),
            units.percent(c.exposed / c.seconds), units.percent(c.bubble / c.seconds),
        )  # fmt: skip
    return table


def _layout(c: Candidate) -> str:
    return str(c.layout)


def _how(c: Candidate) -> str:
    said = [f"zero {c.layout.zero}"] if c.layout.fsdp > 1 else []
    said += [c.layout.schedule] if c.layout.pipeline > 1 else []
    said += ["sequence"] if c.layout.sequence else []
    said += ["checkpointing"] if c.checkpointing else []
    return ", ".join(said)


def _memory(names: list[str], shown: list[Candidate], capacity: int, apart: int) -> Table:
    fullest = max((c.memory.total for c in shown), default=0)
    unit, size, digits = ("GiB", 2**30, 1) if fullest >= 10 * 2**30 else ("MiB", 2**20, 0)
    parts = ("weights", "gathered", "gradients", "optimizer", "activations", "working", "all")
    of = f"of {capacity / size:,.{digits}f}"
    table = ruled((unit, *parts, of), apart=apart, header_style=None)
    for name, c in zip(names, shown, strict=False):
        m = c.memory
        held = (m.weights, m.gathered, m.gradients, m.optimizer, m.activations, m.working, m.total)
        table.add_row(name, *(f"{b / size:,.{digits}f}" for b in held),
                      "fits" if c.fits else "does not fit")  # fmt: skip
    return table


def rows(found: Planned) -> list[dict[str, Any]]:
    """A row for each layout."""
    return [
        {
            "layout": str(c.layout), "micro_batches": c.layout.micro_batches, "batch": c.batch,
            "zero": c.layout.zero, "schedule": c.layout.schedule, "checkpointing": c.checkpointing,
            "seconds": c.seconds, "low": c.interval[0], "high": c.interval[1], "mfu": c.mfu,
            "exposed": c.exposed, "bubble": c.bubble, "memory": c.memory.total, "why": why,
        }
        for c, why in zip(found.best, found.whys, strict=True)
    ]  # fmt: skip
