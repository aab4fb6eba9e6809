"""What can be named, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from opgraph.record import units
from opgraph.views.terminal import draw, safe

if TYPE_CHECKING:
    from opgraph.sources.registry import Listing

WIDE = 110
"""Columns of a terminal from which on all is shown."""
_TASK = 20
"""Columns for a task where there is little room."""
_WIDE_ALONE = ("family", "at", "licence")
SAMPLES = 4
"""Names of a family that are shown where only families are asked for."""


def families(found: Sequence[Listing], color: bool, width: int) -> str:
    """One line a family: how many names, and the first."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, expand=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="ellipsis", no_wrap=True, ratio=1)
    for source, rows in _grouped(found, lambda f: f.source).items():
        table.add_row(Text(safe(source), style="bold cyan"), f"{len(rows):,}", "parameters", "")
        for family, members in sorted(_grouped(rows, lambda f: f.family).items()):
            names = ", ".join(safe(m.spec) for m in members[:SAMPLES])
            more = ", …" if len(members) > SAMPLES else ""
            table.add_row(f"  {safe(family)}", f"{len(members):,}", _span(members), names + more)
    notes = Text(
        "\nAlso: model.py:build, package.module:Class, model.pt, model.pt2, a folder with config.json, and "
        "owner/name on a hub.\n`opgraph models PATTERN` lists the names that fit, `opgraph survey` traces "
        "them.",
        style="dim",
    )
    return draw([table, notes], width, color)


def names(
    found: Sequence[Listing], color: bool, width: int, latencies: Mapping[str, float] | None = None
) -> str:
    """One line a name, with its family and what is known; `latencies` are seconds on a device by what is
    typed."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    wide = width >= WIDE
    timed = () if latencies is None else ("latency",)
    every = ("name", "family", "task", "parameters", "FLOPs", *timed, "at", "licence")
    heads = [h for h in every if wide or h not in _WIDE_ALONE]
    figures = ("parameters", "FLOPs", "latency")
    room = {} if wide else {"task": _TASK, "name": width - _TASK - 2 * len("parameters") - 6}
    for head in heads:
        table.add_column(head, no_wrap=True, justify="right" if head in figures else "left",
                         max_width=room.get(head))  # fmt: skip
    for f in found:
        known = f.facts
        cells = {
            "name": safe(f.spec, 60),
            "family": safe(f.family, 24),
            "task": known.task or "—",
            "parameters": _count(known.parameters),
            "FLOPs": _count(known.flops),
            "latency": _seconds((latencies or {}).get(f.spec)),
            "at": _first(known.inputs),
            "licence": known.licence or "—",
        }
        table.add_row(*(cells[head] for head in heads))
    note = "" if wide else "families, inputs and licences: --format csv, or a wider terminal"
    return draw([table, *([Text(f"\n{note}", style="dim")] if note else [])], width, color)


def _span(members: Sequence[Listing]) -> str:
    """From how many parameters to how many, of those that are known."""
    sizes = sorted(p for m in members if (p := m.facts.parameters) is not None)
    if not sizes:
        return "—"
    return " – ".join(dict.fromkeys(units.count(n) for n in (sizes[0], sizes[-1])))


def _count(number: int | None) -> str:
    return "—" if number is None else units.count(number)


def _seconds(latency: float | None) -> str:
    return "—" if latency is None else units.seconds(latency)


def _first(inputs: str) -> str:
    """The shape of the first input."""
    return inputs.partition(" ")[0].rpartition("=")[2] or "—"


def _grouped(
    found: Iterable[Listing], key: Callable[[Listing], str]
) -> Mapping[str, list[Listing]]:
    groups: dict[str, list[Listing]] = {}
    for f in found:
        groups.setdefault(key(f), []).append(f)
    return groups
