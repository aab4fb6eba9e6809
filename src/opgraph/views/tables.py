"""A table whose rows are records with the same keys, for files and scripts: Markdown, CSV or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opgraph.record.errors import RenderError, one_of
from opgraph.record.files import dumps
from opgraph.views.files.records import csv_text

if TYPE_CHECKING:
    from opgraph.analysis.compare.comparison import ComparisonRecord
    from opgraph.analysis.scaling.sweep import SweepRecord
from opgraph.analysis.serving.curve import ServingRecord

__all__ = ["FORMS", "comparison_csv", "points_markdown", "sweep_markdown", "written"]

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
        from opgraph.views.text.markdown import markdown_cell

        heads = list(rows[0]) if rows else [""]
        numbers = (
            {h for h in heads if any(isinstance(r[h], (int, float)) for r in rows)}
            if rows
            else set()
        )
        lines = [heads, ["---:" if h in numbers else "---" for h in heads]]
        lines += [["" if v is None else markdown_cell(str(v)) for v in r.values()] for r in rows]
        return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    raise RenderError(f"a table has no form {form!r}", hint=one_of(form, FORMS))


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
