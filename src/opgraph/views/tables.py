"""A table whose rows are records with the same keys, for files, scripts and other libraries: Markdown, CSV,
JSON, Parquet, pandas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from opgraph.record.errors import MissingDependency, RenderError, one_of
from opgraph.record.files import dumps
from opgraph.views.terminal import readable, safe

__all__ = [
    "FORMS",
    "csv_text",
    "frame",
    "markdown_cell",
    "markdown_table",
    "parquet_bytes",
    "rows_csv",
    "rows_markdown",
    "rows_parquet",
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


# Comma-separated values. Text from a model that a spreadsheet would run as a formula is quoted
# with an apostrophe, as OWASP advises (https://owasp.org/www-community/attacks/CSV_Injection).

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(rows: Sequence[Mapping[str, str | float | None]]) -> str:
    """Records with the same keys as comma-separated values with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0] if rows else ())
    for row in rows:
        writer.writerow([_cell(v) for v in row.values()])
    return text.getvalue()


def _cell(value: str | float | None) -> str | float | None:
    """A cell that a spreadsheet reads as a person does."""
    if not isinstance(value, str):
        return value
    plain = readable(value)
    return f"'{plain}" if value.startswith(_FORMULA) else plain


# Parquet, and pandas.

LARGEST = 2**63 - 1


def parquet_bytes(rows: Sequence[Mapping[str, Any]], about: Mapping[str, str]) -> bytes:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingDependency("pyarrow", "data") from None
    names = list(rows[0]) if rows else []
    columns = {name: _column(pa, [row[name] for row in rows]) for name in names}
    table = pa.table(columns).replace_schema_metadata(
        {k: v.encode("utf-8", "replace") for k, v in about.items()}
    )
    out = io.BytesIO()
    parquet.write_table(table, out)
    return out.getvalue()


def _column(pyarrow: Any, values: list[str | int | float | None]) -> Any:
    """A column of the type of its values; whole numbers that 64 bits cannot hold become floats."""
    known = [v for v in values if v is not None]
    if any(isinstance(v, str) for v in known):
        texts = (None if v is None else str(v).encode("utf-8", "replace").decode() for v in values)
        return pyarrow.array(list(texts), pyarrow.string())
    if any(isinstance(v, float) for v in known) or any(abs(v) > LARGEST for v in known):  # type: ignore[arg-type]
        return pyarrow.array([None if v is None else float(v) for v in values], pyarrow.float64())
    return pyarrow.array(values, pyarrow.int64() if known else pyarrow.string())


def frame(rows: Sequence[Mapping[str, Any]], index: str | None = None) -> Any:
    """Records as a `pandas.DataFrame`, by the column `index`. Raises `MissingDependency` without pandas."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingDependency("pandas", "data") from None
    found = pd.DataFrame(list(rows))
    return found.set_index(index) if index in found.columns else found


# Results that have records: the points of a sweep, the rates of a model served, the totals of a comparison.


class _Listed(Protocol):
    model: str

    def records(self) -> list[dict[str, Any]]: ...


def rows_csv(result: _Listed) -> str:
    """The records of a result as comma-separated values."""
    return csv_text(result.records())


def rows_markdown(result: _Listed) -> str:
    """The records of a result as a Markdown table."""
    return written(result.records(), "markdown")


def rows_parquet(result: _Listed) -> bytes:
    """The records of a result as a Parquet table, whose metadata name the model. Raises `MissingDependency`
    without pyarrow."""
    return parquet_bytes(result.records(), {"opgraph.model": result.model})
