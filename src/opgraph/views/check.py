"""The check as text: all tracers side by side, every disagreement, and what other counters say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opgraph import units
from opgraph.analysis.agreement import Agreement, Disagreement, Trial
from opgraph.analysis.differences import Reading
from opgraph.analysis.fragments import fragments, outside
from opgraph.views.terminal import draw, safe

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_SHOWN = 12


def check_text(
    agreement: Agreement, *, color: bool = False, width: int = 120, verbose: bool = False
) -> str:
    """The check as text. With `verbose` every disagreement and break is listed, not the first few."""
    from rich.text import Text

    parts: list[RenderableType] = [_tracers(agreement)]
    reference = agreement.reference
    for trial in agreement.trials:
        if trial.error is not None:
            parts += ["", Text(f"{trial.tracer}: {safe(trial.error, 400)}")]
        elif reference is not None and trial is not reference:
            found = agreement.disagreements(trial)
            parts += ["", *_differences(trial, reference, found, verbose)]
    if agreement.readings:
        parts += ["", _readings(agreement)]
    return draw(parts, width, color)


def _tracers(agreement: Agreement) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold",
        title=safe(agreement.model), title_justify="left", title_style="bold",
    )  # fmt: skip
    table.add_column("Tracer", no_wrap=True)
    table.add_column("Result", no_wrap=True)
    for title in (
        "Time",
        "Nodes",
        "Fragments",
        "Breaks",
        "FLOPs",
        "Other FLOPs",
        "Parameters",
        "Bytes",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for trial in agreement.trials:
        table.add_row(*_row(trial))
    return table


def _row(trial: Trial) -> list[str]:
    profile = trial.profile
    if profile is None or trial.error is not None:
        return [trial.tracer, "failed", units.seconds(trial.seconds), *["—"] * 7]
    totals = profile.totals
    graph = profile.graph
    pieces = len(fragments(graph))
    return [
        trial.tracer,
        f"{profile.tracing.tensors} tensors",
        units.seconds(trial.seconds),
        units.integer(totals.nodes),
        units.integer(pieces) if pieces else "—",
        units.integer(len(graph.breaks)),
        units.integer(totals.flops),
        units.integer(totals.other_flops),
        units.integer(totals.parameters),
        units.integer(totals.bytes),
    ]


def _differences(
    trial: Trial, reference: Trial, found: tuple[Disagreement, ...], verbose: bool
) -> list[RenderableType]:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    title = f"{trial.tracer} and {reference.tracer}"
    if not found:
        parts.append(Text(f"{title}: the same operators, at the same cost, in the same modules"))
    else:
        parts.append(Text(f"{title} differ in", style="bold"))
        real = [d for d in found if not d.spelling]
        spelled = [d for d in found if d.spelling]
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        for _ in range(3):
            table.add_column(overflow="fold")
        for d in real if verbose else real[:_SHOWN]:
            table.add_row(*_disagreement(d))
        if len(real) > _SHOWN and not verbose:
            table.add_row(f"… and {units.plural(len(real) - _SHOWN, 'more place')}, with -v")
        if spelled and verbose:
            for d in spelled:
                table.add_row(*_disagreement(d))
        if real or verbose:
            parts.append(Padding(table, (0, 0, 0, 2)))
        if spelled and not verbose:
            places = len({d.scope for d in spelled})
            ops = ", ".join(dict.fromkeys(d.op for d in spelled[:8]))
            parts.append(
                Text(
                    f"  the spelling alone, at equal cost, in {units.plural(places, 'module')} ({ops})"
                )
            )
    if trial.profile is not None and trial.profile.graph.breaks:
        graph = trial.profile.graph
        shown = graph.breaks if verbose else graph.breaks[:3]
        for seam in shown:
            where = f" at {seam.file}:{seam.line}" if seam.file else ""
            parts.append(
                Text(f"  break after fragment {seam.fragment}{where}: {safe(seam.reason, 300)}")
            )
        if len(shown) < len(graph.breaks):
            parts.append(
                Text(f"  … and {units.plural(len(graph.breaks) - len(shown), 'more break')}")
            )
        between = outside(graph).nodes
        if between:
            parts.append(Text(f"  {units.plural(between, 'node')} ran in Python between fragments"))
    return parts


def _disagreement(d: Disagreement) -> tuple[str, str, str]:
    times = f" × {d.places}" if d.places > 1 else ""
    changes = [
        f"{name} {units.integer(a)} → {units.integer(b)}"
        for name, (a, b) in (
            ("nodes", d.nodes), ("FLOPs", d.flops), ("other FLOPs", d.other_flops), ("bytes", d.bytes),
        )
        if a != b
    ]  # fmt: skip
    return safe(d.op), safe(d.scope or "(the model itself)") + times, ", ".join(changes)


def _readings(agreement: Agreement) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    table.add_column("Counter", no_wrap=True)
    table.add_column("Time", justify="right", no_wrap=True)
    table.add_column("Its figure", justify="right", no_wrap=True)
    table.add_column("Parameters", justify="right", no_wrap=True)
    table.add_column("Of ours", justify="right", no_wrap=True)
    table.add_column("Why it differs", overflow="fold")
    for reading in agreement.readings:
        table.add_row(*_reading(agreement, reading))
    return table


def _reading(agreement: Agreement, reading: Reading) -> list[str]:
    name = f"{reading.tool} {reading.version}"
    spent = units.seconds(reading.seconds) if reading.seconds else "—"
    if reading.error is not None or reading.value is None or reading.flops is None:
        return [name, spent, "—", "—", "—", safe(reading.error or "no figure", 200)]
    reference = agreement.reference
    ours = reference.profile.totals.flops if reference and reference.profile else 0
    return [
        name,
        spent,
        f"{units.integer(reading.value)} {reading.unit}",
        "—" if reading.parameters is None else units.integer(reading.parameters),
        units.percent(reading.flops / ours) if ours else "—",
        "; ".join(agreement.reasons(reading)) or "it does not",
    ]
