"""What became of trials, as a person or a spreadsheet reads it."""

from __future__ import annotations

from collections.abc import Sequence

from opgraph.record import units
from opgraph.survey.trial import Trial
from opgraph.views.terminal import draw, safe


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
