"""`opgraph explore [MODEL]`: the graph as text, from an overview to single nodes."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from opgraph.cli.arguments import (
    add_model,
    add_options,
    costed_from,
    form_of,
    refuse_unheeded,
    typed_without,
)
from opgraph.cli.output import answer, color, show, status_of, width
from opgraph.options import TRACED, Stage, names
from opgraph.record.errors import MissingDependency, RenderError
from opgraph.record.files import dumps
from opgraph.views.terminal import draw, safe

if TYPE_CHECKING:
    from rich.console import RenderableType

    from opgraph.analysis.costed import CostedRecord
    from opgraph.analysis.selection import Filter, Range

EXAMPLES = """examples:
  opgraph explore                                     what can be named
  opgraph explore bert-base-uncased                   an overview, and what to ask next
  opgraph explore bert-base-uncased --around 24       a node among its neighbours
  opgraph explore resnet18 --start 1 --end 20
  opgraph explore yolov8n.pt --op conv2d --min-flops 1e8
  opgraph explore gpt2 --module 'h.[0-1]' -o two-blocks.md
  opgraph explore bert-base-uncased -i                full screen; q leaves"""

LIMIT = 100
"""Nodes that a filter lists on a terminal before it says how many more there are."""

COSTED = tuple(n for n in names(Stage.COSTING) if n not in ("memory", "price_per_hour"))
"""The options of costing that change what is said of nodes."""

SUFFIXES = (".txt", ".md", ".csv", ".json")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser, optional=True)
    add_options(parser, *COSTED, *names(Stage.NODES), "long", "interactive", "json",
                "format", "output", words={"output": ", ".join(SUFFIXES)})  # fmt: skip


def run(args: argparse.Namespace) -> int:
    where, which = _asked(args)
    form = form_of(args, SUFFIXES, "explore")
    form = ".md" if form == ".markdown" else form
    if args.model is None:
        if args.given - {*names(Stage.SAYING)}:
            raise RenderError("MODEL is required", hint="without one, what can be named is shown")
        show(welcome(offers(), color=color(), width=width()))
        return 0
    if args.interactive:
        if form is not None:
            raise RenderError("-i is for a terminal", hint="leave out -o and --json")
        refuse_unheeded(args, {*names(*TRACED), *COSTED}, "the full-screen program")
        return _interactive(args)
    nodes = where is not None or bool(which)
    if args.long and not (nodes and form in (None, ".txt")):
        raise RenderError(
            "--long is of a list of nodes as text", hint="with --start 1, or --op conv2d"
        )
    costed = costed_from(args)
    text = _nodes(costed, where, which, args.long, form) if nodes else _overview(costed, args, form)
    answer(args.output, text)
    return status_of(costed)


def _interactive(args: argparse.Namespace) -> int:
    """The full-screen explorer. Raises `MissingDependency` without Textual."""
    if importlib.util.find_spec("textual") is None:
        raise MissingDependency("textual", "tui")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise RenderError("-i needs a terminal", hint="without it the answer is text")
    costed = costed_from(args)
    from opgraph.tui.app import explore

    explore(costed)
    return status_of(costed)


def _asked(args: argparse.Namespace) -> tuple[Range | None, Filter]:
    """The range (None where no number was given) and the filter. Raises `RenderError`."""
    from opgraph.analysis.selection import Filter, Range

    where = Range(args.start, args.end, args.around, args.context, args.max_nodes)
    which = Filter(args.op, args.module, args.bottleneck, args.min_flops, args.text)
    return (None if where == Range() else where), which


def _overview(costed: CostedRecord, args: argparse.Namespace, form: str | None) -> str:
    from opgraph.views.text.overview import overview, overview_csv, overview_data

    command = shlex.join(["opgraph", *typed_without(args, "json", "debug", "output", "format")])
    if form == ".json":
        return dumps(overview_data(costed), indent=1) + "\n"
    if form == ".csv":
        return overview_csv(costed)
    if form == ".md":
        text = overview(costed, width=100, command=command)
        longest = max(map(len, re.findall("`+", text)), default=0)  # names can hold any
        fence = "`" * max(3, longest + 1)
        return f"{fence}\n{text}{fence}\n"
    return overview(costed, color=color() and form is None, width=width(), command=command)


def _nodes(
    costed: CostedRecord, where: Range | None, which: Filter, long: bool, form: str | None
) -> str:
    from opgraph.analysis.selection import select
    from opgraph.views.files.records import records
    from opgraph.views.tables import csv_text
    from opgraph.views.text.explore import node_list
    from opgraph.views.text.markdown import as_json, as_markdown

    selection = select(costed, where, which, limit=None if form else LIMIT)
    if form is None or form == ".txt":
        colored = color() and form is None
        return node_list(costed, selection, color=colored, width=width(), long=long)
    if form == ".md":
        return as_markdown(costed, selection.nodes, selection.notes, subgraphs=True)
    found = records(costed, selection.nodes, subgraphs=True)
    return csv_text(found) if form == ".csv" else as_json(costed, found, selection.notes)


# What is said where no model is named: what can be, by family, and three commands to try.

TRY = (
    ("opgraph explore resnet18", "a small network, whole"),
    ("opgraph explore bert-base-uncased --around 24", "the attention of the first layer"),
    ("opgraph explore meta-llama/Llama-3.1-405B", "the largest, without its weights"),
)
FAMILIES = 14


def offers() -> dict[str, list[str]]:
    """What each source can build, by how the source is written."""
    from opgraph.sources.registry import sources

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
    for source, every in offered.items():
        table.add_row(safe(source), f"{len(list(every)):,}", Text(_families(every)))
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
