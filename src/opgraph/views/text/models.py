"""What can be named, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from opgraph.views.terminal import draw, safe

if TYPE_CHECKING:
    from opgraph.sources.registry import Listing

SAMPLES = 4
"""Names of a family that are shown where only families are asked for."""


def families(found: Sequence[Listing], color: bool, width: int) -> str:
    """One line a family: how many names it has, and the first of them."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, expand=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="ellipsis", no_wrap=True, ratio=1)
    for source, rows in _grouped(found, lambda f: f.source).items():
        table.add_row(Text(safe(source), style="bold cyan"), f"{len(rows):,}", "")
        for family, members in sorted(_grouped(rows, lambda f: f.family).items()):
            names = ", ".join(safe(m.spec) for m in members[:SAMPLES])
            more = ", …" if len(members) > SAMPLES else ""
            table.add_row(f"  {safe(family)}", f"{len(members):,}", names + more)
    notes = Text(
        "\nAlso: model.py:build, package.module:Class, model.pt, model.pt2, a folder with config.json, and "
        "owner/name on a hub.\n`opgraph models PATTERN` lists the names that fit, --try traces them.",
        style="dim",
    )
    return draw([table, notes], width, color)


def names(found: Sequence[Listing], color: bool, width: int) -> str:
    """One line a name, as it is typed, with its source and family."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("name", "source", "family"):
        table.add_column(heading, no_wrap=True)
    for f in found:
        table.add_row(safe(f.spec), safe(f.source), safe(f.family))
    return draw([table], width, color)


def _grouped(
    found: Iterable[Listing], key: Callable[[Listing], str]
) -> Mapping[str, list[Listing]]:
    groups: dict[str, list[Listing]] = {}
    for f in found:
        groups.setdefault(key(f), []).append(f)
    return groups
