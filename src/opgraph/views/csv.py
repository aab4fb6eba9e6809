"""The CSV view: one row a node. Text from a model that a spreadsheet would run as a formula is quoted
with an apostrophe, as OWASP advises (https://owasp.org/www-community/attacks/CSV_Injection)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from opgraph.analysis import GENERIC_RIDGE
from opgraph.analysis.fusion import Subgraph
from opgraph.document import Profile
from opgraph.graph import Node
from opgraph.hardware import Device
from opgraph.views.records import records
from opgraph.views.terminal import readable

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def to_csv(
    profile: Profile,
    nodes: Iterable[Node] | None = None,
    *,
    ridge: float = GENERIC_RIDGE,
    parts: Sequence[Subgraph] = (),
    device: Device | None = None,
) -> str:
    """The nodes (those given, or all) as comma-separated values with a header, in UTF-8; `parts` and
    `device` as in `records`."""
    return csv_text(records(profile, nodes, ridge=ridge, parts=parts, device=device))


def csv_text(rows: Sequence[Mapping[str, str | float | None]]) -> str:
    """Records with the same keys as comma-separated values with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0] if rows else ())
    for row in rows:
        writer.writerow([_cell(v) for v in row.values()])
    return text.getvalue()


def _cell(value: str | float | None) -> str | float | None:
    """A cell that means the same to a spreadsheet as to a person."""
    if not isinstance(value, str):
        return value
    plain = readable(value)
    return f"'{plain}" if value.startswith(_FORMULA) else plain
