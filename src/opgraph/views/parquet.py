"""The Parquet view: one row a node, the columns of the CSV view with their types."""

from __future__ import annotations

import io
from typing import Any

from opgraph.analysis import GENERIC_RIDGE
from opgraph.document import Profile
from opgraph.errors import MissingDependency
from opgraph.views.records import records

LARGEST = 2**63 - 1


def to_parquet(profile: Profile, *, ridge: float = GENERIC_RIDGE) -> bytes:
    """The nodes as a Parquet table; its metadata name the model. Raises `MissingDependency` without
    pyarrow."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingDependency("pyarrow", "data") from None
    rows = records(profile, ridge=ridge)
    names = list(rows[0]) if rows else []
    columns = {name: _column(pa, [row[name] for row in rows]) for name in names}
    about = {"opgraph.model": profile.model.name, "opgraph.class": profile.model.cls}
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
