"""What the explorer says when no model is named: what can be, by family, and three commands to try."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from opgraph.sources.registry import sources
from opgraph.views.terminal import draw, safe

if TYPE_CHECKING:
    from rich.console import RenderableType

TRY = (
    ("opgraph explore resnet18", "a small network, whole"),
    ("opgraph explore bert-base-uncased --around 24", "the attention of the first layer"),
    ("opgraph explore meta-llama/Llama-3.1-405B", "the largest, without its weights"),
)
FAMILIES = 14


def offers() -> dict[str, list[str]]:
    """What each source can build, by how the source is written."""
    found = {source: sorted(source.names()) for source in sources().values()}
    return {
        source.name + ("" if source.claims(names[0]) else ":NAME"): names
        for source, names in found.items()
        if names
    }


def welcome(offered: Mapping[str, Iterable[str]], *, color: bool, width: int) -> str:
    """The answer to `opgraph explore` as text, with the names that each source offers."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for source, names in offered.items():
        table.add_row(safe(source), f"{len(list(names)):,}", Text(_families(names)))
    commands = Table.grid(padding=(0, 2))
    commands.add_column(no_wrap=True)
    for command, meaning in TRY:
        commands.add_row("  " + command, Text(meaning, style="dim"))
    parts: list[RenderableType] = [
        Text("opgraph explore MODEL shows the operator graph of a model.", style="bold"),
        "", "What can be named (how many, and their families):", "", table,
        "", "Also a saved profile (.json). To try:", "", commands,
    ]  # fmt: skip
    return draw(parts, min(width, 120), color)


def _families(names: Iterable[str]) -> str:
    """The largest families of names, by the letters they begin with, with an example of each."""
    groups: dict[str, list[str]] = {}
    for name in names:
        head = re.match(r"[A-Za-z]+", name.rpartition("/")[2])
        groups.setdefault(head[0].lower() if head else name, []).append(name)
    largest = sorted(groups.values(), key=len, reverse=True)
    shown = ", ".join(safe(min(group, key=len)) for group in largest[:FAMILIES])
    more = len(largest) - FAMILIES
    return shown + (f" and {more} more families" if more > 0 else "")
