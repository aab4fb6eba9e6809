"""The CSV view: one row a node. Text from a model that a spreadsheet would run as a formula is quoted
with an apostrophe, as OWASP advises (https://owasp.org/www-community/attacks/CSV_Injection)."""

from __future__ import annotations

import csv
import io

from opgraph.analysis import GENERIC_RIDGE
from opgraph.document import Profile
from opgraph.views.records import records

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def to_csv(profile: Profile, *, ridge: float = GENERIC_RIDGE) -> str:
    """The nodes as comma-separated values with a header, in UTF-8."""
    text = io.StringIO()
    rows = records(profile, ridge=ridge)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0] if rows else ())
    for row in rows:
        writer.writerow([_cell(v) for v in row.values()])
    return text.getvalue()


def _cell(value: str | float | None) -> str | float | None:
    """A cell that means the same to a spreadsheet as to a person."""
    if not isinstance(value, str):
        return value
    plain = value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return f"'{plain}" if plain.startswith(_FORMULA) else plain
