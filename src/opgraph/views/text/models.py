"""What can be named, and what became of trials, as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from opgraph.record import units
from opgraph.views.text.terminal import draw, safe

if TYPE_CHECKING:
    from opgraph.sources.registry import Listing
    from opgraph.survey import Trial

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


def line(trial: Trial, number: int, of: int) -> str:
    """One trial on one line, for progress."""
    outcome = "ok" if trial.ok else f"{trial.stage}: {trial.reason}"
    return safe(f"[{number}/{of}] {trial.name}  {units.seconds(trial.seconds)}  {outcome}", 160)


def trials_table(trials: Sequence[Trial], color: bool, width: int) -> str:
    """The table of trials, and how many of them went well."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("name", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("tracer", no_wrap=True)
    for heading in ("nodes", "parameters", "FLOPs", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for t in trials:
        figures = ["", "", "", ""]
        if t.ok:
            tracer = f"{t.tracer}, {t.tensors}"
            figures = [tracer, f"{t.nodes:,}", units.count(t.parameters), units.count(t.flops)]
        outcome = Text("ok", style="green") if t.ok else Text(t.stage, style="red")
        table.add_row(safe(t.name), outcome, *figures, f"{t.seconds:.2f}")
    failed = [t for t in trials if not t.ok]
    said = [Text(f"{safe(t.name)}: {safe(t.reason or '', 400)}", style="red") for t in failed]
    well = f"{len(trials) - len(failed):,} of {len(trials):,} traced"
    return draw([table, "", *said, *([""] if said else []), Text(well, style="bold")], width, color)


def as_csv(trials: Iterable[Trial]) -> str:
    """The trials with all their figures, one a row."""
    from opgraph.survey.trial import COLUMNS

    target = io.StringIO()
    writer = csv.DictWriter(target, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for trial in trials:
        row = trial.to_dict()
        writer.writerow({k: "; ".join(v) if isinstance(v, list) else v for k, v in row.items()})
    return target.getvalue()


def _grouped(
    found: Iterable[Listing], key: Callable[[Listing], str]
) -> Mapping[str, list[Listing]]:
    groups: dict[str, list[Listing]] = {}
    for f in found:
        groups.setdefault(key(f), []).append(f)
    return groups
