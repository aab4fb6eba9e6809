"""The page of an atlas: a table to search and sort, and a plot of any two figures with its Pareto
front, in one file that asks nothing of any network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from opgraph.views.page.html import closed, packed

COLUMNS = ("name", "source", "family", "task", "parameters", "flops", "bytes", "peak_memory",
           "intensity", "inputs", "licence", "spec")  # fmt: skip
"""The columns of an atlas that its page has, beside the latency on each device."""


def html(rows: Sequence[Mapping[str, Any]], latencies: Mapping[str, str]) -> str:
    """The page for models (rows with `COLUMNS`); `latencies` has the column of seconds of each device."""
    names = [*COLUMNS, *latencies.values()]
    data = {
        "columns": names,
        "devices": list(latencies),
        "rows": [[_short(row.get(name)) for name in names] for row in rows],
    }
    assets = files("opgraph.views.page").joinpath("assets")
    script = assets.joinpath("atlas.js").read_text(encoding="utf-8")
    style = assets.joinpath("atlas.css").read_text(encoding="utf-8")
    return closed("opgraph atlas", packed(data), script, style)


def _short(value: Any) -> Any:
    """A figure with the digits that a page shows."""
    return float(f"{value:.4g}") if isinstance(value, float) else value
