"""A table whose rows are records with the same keys, for files and scripts: Markdown, CSV or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from opgraph.record.errors import RenderError, one_of
from opgraph.record.files import dumps
from opgraph.views.files.records import csv_text
from opgraph.views.terminal import safe

if TYPE_CHECKING:
    from opgraph.analysis.compare.comparison import ComparisonRecord
    from opgraph.analysis.scaling.sweep import SweepRecord
    from opgraph.analysis.serving.curve import ServingRecord

__all__ = [
    "FORMS",
    "comparison_csv",
    "markdown_cell",
    "markdown_table",
    "points_markdown",
    "sweep_markdown",
    "written",
]

FORMS = ("markdown", "csv", "json")

Cell = str | int | float | bool | None


def written(rows: Sequence[Mapping[str, Cell]], form: str) -> str:
    """The table in a form. Numbers are in base units, without any: a script reads them.

    Raises `RenderError` for a form that there is not.
    """
    if form == "json":
        return dumps(list(rows), indent=1) + "\n"
    if form == "csv":
        return csv_text(rows)
    if form == "markdown":
        heads = list(rows[0]) if rows else [""]
        numbers = [
            i for i, h in enumerate(heads) if any(isinstance(r[h], (int, float)) for r in rows)
        ]
        body = (["" if v is None else str(v) for v in r.values()] for r in rows)
        return "".join(f"{line}\n" for line in markdown_table(heads, body, numbers=numbers))
    raise RenderError(f"a table has no form {form!r}", hint=one_of(form, FORMS))


def markdown_cell(text: str) -> str:
    """Text that cannot break out of a cell of a Markdown table."""
    plain = safe(text, 300)
    for sign in "\\`*_{}[]<>|":
        plain = plain.replace(sign, "\\" + sign)
    return plain


def markdown_table(
    heads: Sequence[str], body: Iterable[Sequence[str]], *, raw: Sequence[int] = (),
    numbers: Sequence[int] = (),
) -> Iterator[str]:  # fmt: skip
    """The lines of a Markdown table; the columns in `raw` are Markdown already, those in `numbers` stand
    at the right."""
    yield f"| {' | '.join(heads)} |"
    yield "|" + "|".join("---:" if i in numbers else "---" for i in range(len(heads))) + "|"
    for row in body:
        yield f"| {' | '.join(text if i in raw else markdown_cell(text) for i, text in enumerate(row))} |"


def comparison_csv(comparison: ComparisonRecord) -> str:
    """The totals, one row a quantity, one column a model."""
    labels = [f"{label} ({i})" if comparison.labels.count(label) > 1 else label
              for i, label in enumerate(comparison.labels, start=1)]  # fmt: skip
    return csv_text([
        {"quantity": q.name, **dict(zip(labels, map(q.of, comparison.models), strict=True))}
        for q in comparison.quantities
    ])  # fmt: skip


def points_markdown(serving: ServingRecord) -> str:
    """What requests saw, one row a rate."""
    return written(serving.records(), "markdown")


def sweep_markdown(sweep: SweepRecord) -> str:
    """The points, one row each."""
    return written(sweep.records(), "markdown")
