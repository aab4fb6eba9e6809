"""Subgraphs beside a list of nodes: which nodes would run as one kernel, and why, in a column of its own or
on lines below."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opgraph import units
from opgraph.analysis.fusion import Subgraph
from opgraph.views.terminal import safe

if TYPE_CHECKING:
    from rich.text import Text

WIDTH = 32
"""Characters of the column, its bracket included."""

_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


@dataclass(frozen=True, slots=True)
class Beside:
    """The lines of one node's cell, and what is said of its subgraph on lines below it where the node is
    the first that is listed of it."""

    lines: tuple[Text, ...]
    below: tuple[str, ...]


def beside(
    nodes: Iterable[int], parts: Iterable[Subgraph], ends: Mapping[int, str], height: int
) -> dict[int, Beside]:
    """The cells of listed nodes, by id, of so many lines; `ends` says why each subgraph ends. Nodes that
    do nothing by themselves have none."""
    wanted = set(nodes)
    found: dict[int, Beside] = {}
    for part in parts:
        listed = [i for i in part.nodes if i in wanted]
        if listed and part.rule not in ("boundary", "view"):
            found |= _cells(part, ends.get(part.id, ""), listed, height)
    return found


def _cells(part: Subgraph, end: str, listed: Sequence[int], height: int) -> dict[int, Beside]:
    from rich.text import Text

    style = _COLOURS[part.id % len(_COLOURS)]
    reason, end = safe(part.reason), safe(f"ends: {end}") if end else ""
    head = f"{part.id} {safe(part.rule)}, {units.plural(len(part.nodes), 'node')}"
    said = [head, *textwrap.wrap(end, WIDTH - 2), *textwrap.wrap(reason, WIDTH - 2)]
    room = height * len(listed)
    if len(said) > room:
        said = [*said[: room - 1], said[room - 1][: WIDTH - 3] + "…"]
    said += [""] * (room - len(said))
    cells = {}
    for position, node in enumerate(listed):
        lines = []
        for line in range(height * position, height * (position + 1)):
            bracket = "┏" if line == 0 else "┗" if line == room - 1 else "┃"
            text = Text(bracket, style=style)
            text.append(f" {said[line]}", style="not bold" if line == 0 else "not bold dim")
            lines.append(text)
        below = tuple(t for t in (f"{head}: {reason}", end) if t) if position == 0 else ()
        cells[node] = Beside(tuple(lines), below)
    return cells
