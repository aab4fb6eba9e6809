"""The best layouts over many devices as text."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from textwrap import fill

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from opgraph.analysis.parallel.composing import Candidate, Planned
from opgraph.analysis.serving.curve import ServingPlan, ServingRecord
from opgraph.record import units
from opgraph.record.layout import WAYS
from opgraph.views.terminal import draw, fitting, ruled, safe


def plan_text(found: Planned | ServingPlan, *, color: bool = False, width: int = 120) -> str:
    """The ten best layouts, what they keep, and why each but the first is slower; or the best engines."""
    if isinstance(found, ServingPlan):
        return _served(found, color, width)
    title = (
        f"{safe(found.model)} on {found.devices:,} x {found.device}, {found.global_batch:,} a step"
    )
    parts: list[RenderableType] = [Text(title, style="bold"), ""]
    shown = list(found.best) + ([] if found.asked is None else [found.asked])
    names = [str(i) for i in range(1, len(found.best) + 1)] + ["asked"]
    steps = [_steps(names, shown, spared) for spared in range(5)]
    memory = [_memory(names, shown, found.capacity, apart) for apart in (1, 0)]
    parts += [fitting(steps, width), "", fitting(memory, width)]
    whys = [w for w in zip(names[1:], found.whys[1:], strict=False) if w[1]]
    if found.asked is not None:
        whys = [("asked", found.explained or "is the best")]
    parts += _lost(whys, "Slower than the first by")
    counted = (
        f"{found.fitting:,} of {found.tried:,} layouts fit, put together of {found.traces:,} traces"
    )
    parts += ["", f"{counted}. Times are predicted, with the interval of the kernels' prediction."]
    parts += [f"Assumed: {'; '.join(found.assumed)}."] if found.assumed else []
    parts += [f"Not tried: {safe(reason)}" for reason in found.refused[:3]]
    if len(found.refused) > 3:
        parts.append(f"… and {len(found.refused) - 3:,} more that were not tried (--json has them)")
    return draw(parts, width, color)


def _lost(whys: Sequence[tuple[str, str]], head: str) -> list[RenderableType]:
    """What each loses to the first."""
    lost = Table.grid(padding=(0, 2, 0, 0))
    lost.add_column(justify="right", min_width=5)
    for each in whys:
        lost.add_row(*each)
    return ["", Text(head, style="bold"), lost] if whys else []


_SAID_BELOW = ("exposed", "bubble")
"""Columns of which "Slower than the first by" says as much."""


def _steps(names: list[str], shown: list[Candidate], spared: int) -> Table:
    """A row for each layout. What is spared first where there is little room is the space between columns,
    then a single line (of how it runs, then of the time, whose interval stands below it), then the words of
    the layout (its parts are columns) and what is said below, too; what is wider still is broken between
    words."""
    apart = spared > 3
    split = [
        dict(p.split() for p in str(c.layout).split(" x ")) if c.layout.devices > 1 else {}
        for c in shown
    ]
    parts = [p for p in WAYS if any(p in row for row in split)] if apart else ["layout"]
    rows = []
    for name, c, of in zip(names, shown, split, strict=False):
        how, step = _how(c), units.spread(c.seconds, "s", c.interval)
        row = {
            "": name,
            **({p: of.get(p, "") for p in parts} if apart else {"layout": str(c.layout)}),
            "batches": f"{c.layout.micro_batches:,} of {c.batch}",
            "how": fill(how, _FOLDED) if spared > 1 else how,
            "step": step.replace(" (", "\n(") if spared > 2 else step,
            "MFU": units.percent(c.mfu),
            "exposed": units.percent(c.exposed / c.seconds),
            "bubble": units.percent(c.bubble / c.seconds),
        }
        rows.append(
            {head: said for head, said in row.items() if not (apart and head in _SAID_BELOW)}
        )
    heads = [*next(iter(rows), ())]
    table = ruled(heads, ("layout", "how"), apart=int(spared == 0), header_style=None)
    for head, column in zip(heads, table.columns, strict=True):
        if head in ("layout", "how"):
            column.no_wrap, column.overflow = False, "fold"
            column.min_width = max(len(word) for row in rows for word in row[head].split() or [""])
    for row in rows:
        table.add_row(*row.values())
    return table


_FOLDED = 31
"""Characters of a line of how a layout runs, where it may have several: three of its words."""


def _how(c: Candidate) -> str:
    said = [f"zero {c.layout.zero}"] if c.layout.shards > 1 else []
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


def _served(found: ServingPlan, color: bool, width: int) -> str:
    """Engines side by side, and what requests see of them."""
    title = f"{safe(found.model)} served on {found.devices:,} x {safe(found.device)}"
    limits = " and ".join(
        f"{value:,g} ms {'to the first token' if 'first' in name else 'a token'}"
        for name, value in found.limits.items()
    )
    first = found.best[0].points[0]
    how = "all requests at once" if first.rate == inf else f"{first.rate:.3g} requests a second"
    rated = found.wanted == "latency"
    if not rated:
        how = f"the highest rate that keeps {limits}" if limits else how
    shown = list(found.best) + ([] if found.asked is None else [found.asked])
    names = [str(i) for i in range(1, len(found.best) + 1)] + ["asked"]
    tables = [_engines(names, shown, rated, spared) for spared in range(3)]
    memory = [_engine_memory(names, shown, apart) for apart in (1, 0)]
    parts: list[RenderableType] = [
        Text(title, style="bold"),
        f"The {'quickest' if rated else 'most tokens'} first, at {how}.",
        "", fitting(tables, width), "", fitting(memory, width), "",
        Text("first: to the first token; token: each after it, by request", style="dim"),
    ]  # fmt: skip
    whys = [w for w in zip(names[1:], found.whys[1:], strict=False) if w[1]]
    if found.asked is not None:
        whys = [("asked", found.explained or "is the best")]
    of = "A request takes" if rated else "All devices take for a thousand tokens"
    parts += _lost(whys, f"{of} longer than the first by")
    told = f"{len(found.best):,} of {found.tried:,} ways to serve it are shown"
    parts += ["", f"{told}. Times are predicted, with the interval of a step's kernels."]
    parts += [f"Not among them: {safe(reason)}" for reason in found.refused[:3]]
    if len(found.refused) > 3:
        parts.append(f"… and {len(found.refused) - 3:,} more (--json has them)")
    parts += [Text(safe(r.text, 300), style="dim") for r in found.best[0].remarks]
    return draw(parts, width, color)


def _engines(names: list[str], shown: list[ServingRecord], rated: bool, spared: int) -> Table:
    """A row for each way to serve it, with the interval of what is wanted: tokens a second, or how long a
    request takes. Where there is little room the space between columns goes, then a row has two lines."""
    staged, low = any(s.stages > 1 for s in shown), spared > 1
    rows = []
    for name, s in zip(names, shown, strict=False):
        (p,) = s.points
        tokens, taken = f"{p.output_tokens_per_second:,.0f}", ""
        between = s.interval or (0.0, 0.0)
        if rated:
            taken = units.between(0.0 if p.latency is None else p.latency.mean, *between)
        else:
            tokens += " ({:,.0f}–{:,.0f})".format(*between)
        waits: dict[str, str] = {}
        for head, each in (("first", p.first_token), ("token", p.per_token)):
            at = ["—" if each is None else units.seconds(each.p50),
                  "—" if each is None else units.seconds(each.p99)]  # fmt: skip
            waits |= (
                {f"{head}\np50, p99": "\n".join(at)}
                if low
                else dict(zip((f"{head}\np50", f"{head}\np99"), at, strict=True))
            )
        row = {
            "": name, "engines": f"{s.engines:,}", "devices\neach": f"{s.devices:,}",
            **({"stages": f"{s.stages:,}"} if staged else {}),
            "rate\n/s": "all" if p.rate == inf else f"{p.rate:.3g}", "tokens\n/s": tokens,
            **({"latency\nmean": taken} if rated else {}), **waits,
            "exposed": units.percent(p.exchanged),
            **({} if low else {"running": f"{p.running:.1f}"}),
        }  # fmt: skip
        rows.append({h: said.replace(" (", "\n(") if low else said for h, said in row.items()})
    table = ruled([*rows[0]], apart=int(not spared))
    for row in rows:
        table.add_row(*row.values())
    return table


def _engine_memory(names: list[str], shown: list[ServingRecord], apart: int) -> Table:
    """What a device of each engine keeps, and how much of its cache is held at most."""
    parts = dict.fromkeys(part for s in shown for part in s.held)
    table = ruled(("GiB", *parts, "of it held at most"), apart=apart, header_style=None)
    for name, s in zip(names, shown, strict=False):
        held = (f"{s.held[part] / 2**30:,.1f}" for part in parts)
        table.add_row(name, *held, units.percent(s.points[0].fullest))
    return table
