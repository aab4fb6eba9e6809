"""What a survey found and what an atlas answers, as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opgraph.analysis.quantities import FORMATS, QUANTITIES
from opgraph.record import units
from opgraph.surveying.sql import SHORT, Answer, Atlas, Cell
from opgraph.views.terminal import draw, safe

MANY = 60
"""Cases from which on they are counted rather than listed."""
_GAP, _WORD = 2, 24
"""Columns between two, and of the shortest line into which a text is broken."""
_SECONDS = ("latency", "low", "high", "seconds", "cpu")
_KINDS = {q.name: FORMATS[q.kind] for q in QUANTITIES}
CASES = ("spec", "source", "mode", "batch_size", "seq_len", "image_size", "ok", "stage", "reason", "tracer",
         "nodes", "parameters", "flops", "seconds")  # fmt: skip


def cases(atlas: Atlas) -> list[dict[str, Cell]]:
    """The cases of a survey in the order of their names, with what a table of them shows."""
    found = atlas.sql(
        f"select {', '.join(CASES)} from cases "
        "order by source, spec, mode, batch_size, seq_len, image_size, id"
    )
    return found.records()


def survey_text(atlas: Atlas, color: bool, width: int) -> str:
    """The cases one by one, or of many how many of each source there are; and why some have no result."""
    from rich.table import Table
    from rich.text import Text

    groups = atlas.sql(
        "select source, count(*) as cases, count(*) filter (where ok) as good, "
        "count(*) filter (where not ok) as without from cases group by source order by source"
    ).records()
    count, good = (sum(int(str(row[n])) for row in groups) for n in ("cases", "good"))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    if count <= MANY:
        found = cases(atlas)
        sizes = [n for n in ("batch_size", "seq_len", "image_size") if any(row[n] for row in found)]
        table.add_column("name", overflow="fold", min_width=16)
        for heading in ("mode", *(n.replace("_", " ") for n in sizes), "outcome"):
            table.add_column(heading, no_wrap=True)
        for heading in ("nodes", "parameters", "FLOPs", "seconds"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in found:
            outcome = (
                Text("ok", style="green") if row["ok"] else Text(str(row["stage"]), style="red")
            )
            counted = [int(str(row[n] or 0)) for n in ("nodes", "parameters", "flops")]
            figures = [units.count(n) if row["ok"] else "" for n in counted]
            asked = [str(row[n] or "") for n in sizes]
            table.add_row(safe(str(row["spec"])), str(row["mode"]), *asked, outcome, *figures,
                          shown("seconds", row["seconds"]))  # fmt: skip
    else:
        table.add_column("source", no_wrap=True)
        for heading in ("cases", "with a result", "without"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in groups:
            table.add_row(*(shown(n, row[n]) for n in ("source", "cases", "good", "without")))
    failed = atlas.sql(
        "select spec, reason from cases where not ok "
        f"order by source, spec, mode, batch_size, seq_len, image_size, id limit {MANY}"
    ).rows
    said = [Text(safe(f"{spec}: {reason}", 400), style="red") for spec, reason in failed]
    if count - good > MANY:
        said.append(Text(f"and {count - good - MANY:,} more: opgraph atlas --dataset FOLDER "
                         "'select spec, reason from cases where not ok'", style="dim"))  # fmt: skip
    well = f"{good:,} of {units.plural(count, 'case')} with a result"
    return draw([table, "", *said, *([""] if said else []), Text(well, style="bold")], width, color)


def answer_text(answer: Answer, color: bool, width: int) -> str:
    """The rows of an answer, with units where a column's name says what it is. Columns for which there is
    no room are left out, which is said."""
    table, left_out = _table(answer, width)
    said = f"\nnot shown: {', '.join(left_out)} (--format csv, or a wider terminal)"
    return draw([table, *([said] if left_out else [])], width, color)


def shown(name: str, value: Cell) -> str:
    """A cell for a person."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return safe(value, 200)
    if (quantity := SHORT.get(name, name)) in _KINDS:
        return _KINDS[quantity](value)
    if name.startswith("latency_") or name in _SECONDS:
        return units.seconds(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def about_text(atlas: Atlas, color: bool, width: int) -> str:
    """What is in an atlas: the cases of each source and mode, the devices, the tables with their
    columns."""
    from rich.table import Table

    groups = atlas.sql(
        "select source, mode, count(distinct spec) as models, count(*) as cases, "
        "count(*) filter (where not ok) as without_result from cases group by all order by all"
    )
    versions = atlas.sql(
        "select distinct regexp_extract(versions, 'torch [^,]*') as v from cases where ok order by v"
    )
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name in atlas.tables:
        columns: Sequence[Any] = atlas.sql(f"select * from {name} limit 0").columns
        table.add_row(name, safe(", ".join(columns), 2000))
    made = ", ".join(safe(str(v)) for (v,) in versions.rows)
    devices = safe(", ".join(atlas.devices), 2000)
    return draw([_table(groups, width)[0], "", f"devices: {devices}", f"traced with {made}", "", table],
                width, color)  # fmt: skip


def _table(answer: Answer, width: int) -> tuple[Any, list[str]]:
    """A table of the first columns, as many as fit (text may be broken into lines), and the others."""
    from rich.table import Table

    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="bold")
    cells = [
        [shown(name, v) for v in values]
        for name, *values in zip(answer.columns, *answer.rows, strict=True)
    ]
    kept: list[list[str]] = []
    for name, column in zip(answer.columns, cells, strict=True):
        number = any(isinstance(row[len(kept)], (int, float)) for row in answer.rows)
        needed = max(map(len, (name, *column)))
        width -= (needed if number else min(needed, _WORD)) + _GAP
        if width < 0 and kept:
            break
        table.add_column(
            safe(name), justify="right" if number else "left", overflow="fold", no_wrap=number
        )
        kept.append(column)
    for row in zip(*kept, strict=True):
        table.add_row(*row)
    return table, [safe(n) for n in answer.columns[len(kept) :]]
