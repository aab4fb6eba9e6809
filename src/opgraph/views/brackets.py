"""Subgraphs beside a list of nodes: which nodes would run as one kernel, and why, in a column of its own or
on lines below."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
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
    """The lines of one node's cell, and what is said of its subgraph in one line where the node is the
    first that is listed of it."""

    lines: tuple[Text, ...]
    below: str | None


def beside(nodes: Iterable[int], parts: Iterable[Subgraph], height: int) -> dict[int, Beside]:
    """The cells of listed nodes, by id, of so many lines. Nodes that do nothing by themselves have none."""
    wanted = set(nodes)
    found: dict[int, Beside] = {}
    for part in parts:
        listed = [i for i in part.nodes if i in wanted]
        if listed and part.rule not in ("boundary", "view"):
            found |= _cells(part, listed, height)
    return found


def _cells(part: Subgraph, listed: Sequence[int], height: int) -> dict[int, Beside]:
    from rich.text import Text

    style = _COLOURS[part.id % len(_COLOURS)]
    reason = safe(part.reason)
    head = f"{part.id} {safe(part.rule)}, {units.plural(len(part.nodes), 'node')}"
    said = [head, *textwrap.wrap(reason, WIDTH - 2)]
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
        below = f"{head}: {reason}" if position == 0 else None
        cells[node] = Beside(tuple(lines), below)
    return cells
