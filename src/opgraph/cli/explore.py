"""`opgraph explore [MODEL]`: the graph as text, from an overview to single nodes."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
import sys
from typing import TYPE_CHECKING

from opgraph.cli.arguments import add_model, add_options, costed_from, form_of, refuse_unheeded
from opgraph.cli.output import answer, color, show, status_of, width
from opgraph.options import TRACED, Stage, names
from opgraph.record.errors import MissingDependency, RenderError
from opgraph.record.files import dumps

if TYPE_CHECKING:
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
        from opgraph.cli.welcome import offers, welcome

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

    command = _command(args)
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
    from opgraph.views.files.records import csv_text, records
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


def _command(args: argparse.Namespace) -> str:
    """How the explorer was called, without what says where the answer goes."""
    words: list[str] = []
    skip = False
    for word in args.arguments:
        if skip or word in ("--json", "--debug"):
            skip = False
        elif word in ("-o", "--output", "--format"):
            skip = True
        elif not word.startswith(("--output=", "--format=", "-o")):
            words.append(word)
    return shlex.join(["opgraph", *words])
