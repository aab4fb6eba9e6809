"""A model served, as text: what the engine has, and what requests saw at each rate."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from opgraph.analysis.serving.curve import ServingPoint, ServingRecord, Spread
from opgraph.record import units
from opgraph.views.terminal import draw, fitting, ruled, safe

if TYPE_CHECKING:
    from rich.console import RenderableType

_WIDE = 120
"""Characters from which on all percentiles have a column."""


def serving_text(serving: ServingRecord, *, color: bool = False, width: int = 120) -> str:
    """What requests saw, as text; `width` is in characters."""
    parts: list[RenderableType] = [
        Text(safe(serving.model), style="bold"),
        *map(Text, _facts(serving)),
        "",
        fitting([_table(serving, width, apart) for apart in (1, 0)], width),
        "",
        Text(
            "first: to the first token; token: each after it, by request"
            + ("; between: two tokens, each gap" if width >= _WIDE else ""),
            style="dim",
        ),
        *(Text(safe(r.text, 300), style="dim") for r in serving.remarks),
    ]
    return draw(parts, width, color)


def _facts(serving: ServingRecord) -> Iterator[str]:
    times = f"{serving.devices} x " if serving.devices > 1 else ""
    engines = "" if serving.engines == 1 else f", {serving.engines} engines"
    yield f"on {times}{safe(serving.device)}{engines}"
    one, many, prompt = (units.seconds(s) for s in serving.steps.values())
    yield (
        f"{units.size(serving.weights)} of weights a device, and a cache of {serving.room:,} tokens; a "
        f"step takes {one} for one sequence, {many} for 32, and a prompt {prompt}"
    )
    refused = max((p.refused for p in serving.points), default=0)
    if refused:
        yield f"{units.plural(refused, 'request')} could never fit and were refused"


def _table(serving: ServingRecord, width: int, apart: int) -> Table:
    wide = width >= _WIDE
    heads = ("rate\n/s", "done\n/s", "tokens\n/s", *_heads("first", wide=wide),
                 *_heads("token", wide=wide), *(("between\np99", "cache\nmean") if wide else ()),
             "cache\nmost", "running", "pre-\nempt.")  # fmt: skip
    table = ruled(heads, apart=apart)
    for p in serving.points:
        table.add_row(*_row(p, wide=wide))
    return table


def _heads(what: str, *, wide: bool) -> tuple[str, ...]:
    return tuple(f"{what}\n{p}" for p in (("p50", "p90", "p99") if wide else ("p50", "p99")))


def _row(p: ServingPoint, *, wide: bool) -> Iterator[str]:
    yield "all" if p.rate == inf else f"{p.rate:.3g}"
    yield f"{p.requests_per_second:.3g}"
    yield f"{p.output_tokens_per_second:,.0f}"
    yield from _spread(p.first_token, wide=wide)
    yield from _spread(p.per_token, wide=wide)
    if wide:
        yield "—" if p.between is None else units.seconds(p.between.p99)
        yield units.percent(p.occupancy)
    yield units.percent(p.fullest)
    yield f"{p.running:.1f}"
    yield f"{p.preemptions:,}"


def _spread(found: Spread | None, *, wide: bool) -> Iterator[str]:
    if found is None:
        yield from ["—"] * (3 if wide else 2)
        return
    for value in (found.p50, found.p90, found.p99) if wide else (found.p50, found.p99):
        yield units.seconds(value)
