"""The check as text: tracers side by side, and other counters."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from opgraph.analysis.check.agreement import Agreement, Disagreement, Reading, Trial
from opgraph.analysis.cost.fragments import fragments, outside
from opgraph.analysis.cost.totals import totals
from opgraph.record import units
from opgraph.views.terminal import draw, ruled, safe
from opgraph.views.text.summary import remarks

_SHOWN, _SEAMS, _NAMED = 12, 3, 8
"""Disagreements, breaks and operators that are listed; all of them with `verbose`."""

WIDE = 120
"""Columns from which figures have all their digits and reasons a column of their own."""

_WHOLE = 76
"""Columns from which the tracers' table has all its columns."""
_LESS = frozenset({"Tensors", "Frag.", "Breaks"})
"""What it does without below that, so that no figure is cut."""


def check_text(
    agreement: Agreement, *, color: bool = False, width: int = 120, verbose: bool = False
) -> str:
    """The check as text. With `verbose` every disagreement and break is listed, not the first few."""
    wide = width >= WIDE
    parts: list[RenderableType] = [_tracers(agreement, width)]
    if width < _WHOLE:
        left = f"Left out: tensors, fragments, breaks (COLUMNS={_WHOLE} has all)"
        parts.append(Text(left, style="dim"))
    reference = agreement.reference
    for trial in agreement.trials:
        if trial.error is not None:
            parts += ["", Text(_failure(trial, trial.error))]
        elif reference is not None and trial is not reference:
            parts += ["", *_differences(agreement, trial, reference, verbose, wide)]
    if agreement.readings:
        parts += ["", *_readings(agreement, wide)]
    parts += remarks(agreement)
    return draw(parts, width, color)


def _failure(trial: Trial, error: str) -> str:
    """Why a tracer cannot; the attempts of a trial begin with its name."""
    named = error.startswith(f"{trial.tracer} ")
    return safe(error if named else f"{trial.tracer}: {error}", 400)


def _tracers(agreement: Agreement, width: int) -> Table:
    wide = width >= WIDE
    counts = ("Nodes", "Fragments", "Breaks") if wide else ("Nodes", "Frag.", "Breaks")
    sums = (
        "FLOPs",
        "Other FLOPs" if wide else "Other",
        "Parameters" if wide else "Params",
        "Bytes",
    )
    every = ("Tracer", "Tensors", "Time", *counts, *sums)
    heads = [h for h in every if width >= _WHOLE or h not in _LESS]
    table = ruled(
        heads, [h for h in heads if h in ("Tracer", "Tensors")],
        padding=(0, 1 if wide else 0, 0, 0 if not wide else 1),
        title=safe(agreement.model), title_justify="left", title_style="bold",
    )  # fmt: skip
    for trial in agreement.trials:
        row = dict(zip(every, _row(trial, units.integer if wide else units.count), strict=True))
        table.add_row(*(row[h] for h in heads))
    return table


def _row(trial: Trial, figure: Callable[[int], str]) -> list[str]:
    profile = trial.profile
    if profile is None or trial.error is not None:
        return [trial.tracer, "failed", units.seconds(trial.seconds), *["—"] * 7]
    found = totals(profile.graph)
    graph = profile.graph
    pieces = len(fragments(graph))
    return [
        trial.tracer,
        profile.tracing.tensors,
        units.seconds(trial.seconds),
        units.integer(found.nodes),
        units.integer(pieces) if pieces else "—",
        units.integer(len(graph.breaks)),
        *map(figure, (found.flops, found.other_flops, found.parameters, found.bytes)),
    ]


def _differences(
    agreement: Agreement, trial: Trial, reference: Trial, verbose: bool, wide: bool
) -> list[RenderableType]:
    """Where a trial differs from the reference, and why; its breaks."""
    title = f"{trial.tracer} and {reference.tracer}"
    found = agreement.disagreements(trial)
    parts: list[RenderableType] = []
    if agreement.told(trial):
        asked = "exported" if trial.tracer == "export" else "compiled"
        why = f"the model asks whether it is being {asked}, and then runs other code"
        same = "the same FLOPs, parameters and bytes, to the digit"
        parts.append(
            Text(f"{title}: {why}. When {reference.tracer} tells it so, too, there are {same}.")
        )
    elif not found:
        parts.append(Text(f"{title}: the same operators, at the same cost, in the same modules"))
    if found:
        parts += [Text(f"{title} differ in", style="bold"), *_listed(found, verbose, wide)]
    return [*parts, *_breaks(trial, verbose)]


def _listed(found: tuple[Disagreement, ...], verbose: bool, wide: bool) -> list[RenderableType]:
    """What differs, by operator and module, and mere spelling."""
    real = [d for d in found if not d.spelling]
    spelled = [d for d in found if d.spelling]
    shown = [*real, *spelled] if verbose else real[:_SHOWN]
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for _ in range(3 if wide else 1):
        table.add_column(overflow="fold")
    for op, where, changes in map(_disagreement, shown):
        table.add_row(*((op, where, changes) if wide else (f"{op} in {where}\n  {changes}",)))
    left = 0 if verbose else len(real) - len(shown)
    if left > 0:
        table.add_row(f"… and {units.plural(left, 'more place')}, with -v")
    parts: list[RenderableType] = [Padding(table, (0, 0, 0, 2))] if shown else []
    if spelled and not verbose:
        places = units.plural(len({d.scope for d in spelled}), "module")
        ops = ", ".join(list(dict.fromkeys(safe(d.op) for d in spelled))[:_NAMED])
        parts.append(Text(f"  the spelling alone, at equal cost, in {places} ({ops})"))
    return parts


def _breaks(trial: Trial, verbose: bool) -> list[RenderableType]:
    if trial.profile is None or not trial.profile.graph.breaks:
        return []
    graph = trial.profile.graph
    shown = graph.breaks if verbose else graph.breaks[:_SEAMS]
    lines: list[str] = []
    for seam in shown:
        where = f" at {safe(seam.file)}:{seam.line}" if seam.file else ""
        lines.append(f"break after fragment {seam.fragment}{where}: {safe(seam.reason, 300)}")
    left = len(graph.breaks) - len(shown)
    if left:
        lines.append(f"… and {units.plural(left, 'more break')}, with -v")
    between = outside(graph).nodes
    if between:
        lines.append(f"{units.plural(between, 'node')} ran in Python between fragments")
    return [Padding(Text(line), (0, 0, 0, 2)) for line in lines]


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


def _readings(agreement: Agreement, wide: bool) -> list[RenderableType]:
    """What other counters say, and why it differs: in a column, or below where there is no room."""
    padding = (0, 1) if wide else (0, 1, 0, 0)
    heads = ("Counter", "Time", "Reported", "Parameters", "/ opgraph")
    table = ruled(heads, ("Counter",), padding=padding)
    if wide:
        table.add_column("Why it differs", overflow="fold")
    below: list[RenderableType] = []
    for reading in agreement.readings:
        *figures, why = _reading(agreement, reading)
        table.add_row(*figures, *([why] if wide else []))
        if why and not wide:
            below.append(Text(f"{safe(reading.tool)}: {why}"))
    return [table, *([""] if below else []), *below]


def _reading(agreement: Agreement, reading: Reading) -> list[str]:
    name = f"{reading.tool} {reading.version}"
    spent = units.seconds(reading.seconds) if reading.seconds else "—"
    if reading.error is not None or reading.value is None or reading.flops is None:
        return [name, spent, "—", "—", "—", safe(reading.error or "no figure", 200)]
    reference = agreement.reference
    ours = totals(reference.profile.graph).flops if reference and reference.profile else 0
    return [
        name,
        spent,
        f"{units.integer(reading.value)} {reading.unit}",
        "—" if reading.parameters is None else units.integer(reading.parameters),
        units.percent(reading.flops / ours) if ours else "—",
        "; ".join(agreement.reasons(reading)) or "it does not",
    ]
