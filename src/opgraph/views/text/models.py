"""What can be named, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from opgraph.record import units
from opgraph.views.terminal import draw, fit, safe

if TYPE_CHECKING:
    from opgraph.sources.registry import Listing

_LEAST = ("at", "family", "licence", "task")
"""What is left out first where there is no room for all; figures never are."""
_TASK = 16
"""Columns to which a task is shortened at most."""
_GAP = 2
SAMPLES = 4
"""Names of a family that are shown where only families are asked for."""


def families(found: Sequence[Listing], color: bool, width: int) -> str:
    """One line a family: how many names, and the first."""
    rows: list[tuple[str, str, str, Sequence[Listing]]] = []
    for source, group in _grouped(found, lambda f: f.source).items():
        rows.append((safe(source), f"{len(group):,}", "parameters", ()))
        for family, members in sorted(_grouped(group, lambda f: f.family).items()):
            rows.append((f"  {safe(family)}", f"{len(members):,}", _span(members), members))
    # Hundreds of rows of known widths: rich would take most of the time to lay them out.
    first, second, third = (max(map(len, column)) for column in list(zip(*rows, strict=True))[:3])
    room = width - first - second - third - _GAP * 4
    gap = " " * _GAP
    body = ""
    for head, count, span, some in rows:
        line = f"{fit(head, first)}{gap}{count:>{second}}{gap}{span:>{third}}"
        if some:
            body += f"{line}{gap}{fit(_sample(some, room), room).rstrip()}\n"
        else:
            body += draw([Text.assemble((line[:first], "bold cyan"), line[first:])], width, color)
    notes = Text(
        "\nAlso: model.py:build, package.module:Class, model.pt, model.pt2, a folder with config.json, and "
        "owner/name on a hub.\n`opgraph models PATTERN` lists the names that fit, `opgraph survey` traces "
        "them.",
        style="dim",
    )
    return body + draw([notes], width, color)


def _sample(members: Sequence[Listing], room: int) -> str:
    """The first names of a family, each whole, or else the shortest; that is cut where it is too long."""
    names = [safe(m.spec) for m in members[:SAMPLES]]
    for most in range(len(names), 0, -1):
        said = ", ".join(names[:most]) + (", …" if most < len(members) else "")
        if len(said) <= room:
            return said
    shortest = min((safe(m.spec) for m in members), key=len)
    said = f"{shortest}, …"
    return said if len(said) <= room else shortest


def names(
    found: Sequence[Listing], color: bool, width: int, latencies: Mapping[str, float] | None = None
) -> str:
    """One line a name, with its family and what is known; `latencies` are seconds on a device by what is
    typed."""
    known = {head: [cell(f) for f in found] for head, cell in _CELLS.items()}
    if latencies is not None:
        known["time"] = [_seconds(latencies.get(f.spec)) for f in found]
    heads = [h for h in _ORDER if any(cell != "—" for cell in known.get(h, ()))]
    room = {head: max(map(len, (head, *known[head]))) for head in heads}
    left_out = []
    for head in (h for h in _LEAST if h in heads):
        over = sum(room.values()) + _GAP * len(room) - width
        if over <= 0:
            break
        kept = room[head] - over
        cut = {task[: kept - 1] for task in known[head]} if kept >= _TASK else set()
        if head == "task" and len(cut) == len(set(known[head])):  # rows are told apart by it
            room[head] -= over
            break
        left_out.append(head)
        del room[head]
    others = sum(room.values()) - room["name"] + _GAP * len(room)
    room["name"] = max(1, min(room["name"], width - others))
    # Thousands of rows of known widths: rich would take most of a second to lay them out.
    rows = [tuple(room), *zip(*(known[head] for head in room), strict=True)]
    head, *lines = (
        (" " * _GAP)
        .join(
            text.rjust(n) if name in _FIGURES else fit(text, n)
            for (name, n), text in zip(room.items(), row, strict=True)
        )
        .rstrip()
        for row in rows
    )
    note = (
        f"\nnot shown: {', '.join(left_out)} (--format csv, or a wider terminal)"
        if left_out
        else ""
    )
    body = "".join(f"{line}\n" for line in lines)
    below = draw([Text(note, style="dim")], width, color) if note else ""
    return draw([Text(head, style="bold", no_wrap=True)], width, color) + body + below


_FIGURES = ("parameters", "FLOPs", "time")
_ORDER = ("name", "family", "task", *_FIGURES, "at", "licence")
_CELLS: Mapping[str, Callable[[Listing], str]] = {
    "name": lambda f: safe(f.spec, 60),
    "family": lambda f: safe(f.family, 24),
    "task": lambda f: f.facts.task or "—",
    "parameters": lambda f: _count(f.facts.parameters),
    "FLOPs": lambda f: _count(f.facts.flops),
    "at": lambda f: _first(f.facts.inputs),
    "licence": lambda f: f.facts.licence or "—",
}


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
