"""`opgraph explore [MODEL]`: the graph as text, from an overview to single nodes."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from typing import TYPE_CHECKING, Any

from opgraph.cli.arguments import add_model, add_options, profile_from
from opgraph.cli.output import color, say, show, status_of, width
from opgraph.options import Stage, names
from opgraph.record.errors import MissingDependency, RenderError
from opgraph.record.files import dumps, ensure_writable, suffix_of, write_atomically

if TYPE_CHECKING:
    from opgraph.analysis.selection import Filter, Range
    from opgraph.hardware import Device
    from opgraph.record.profile import Profile

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

SUFFIXES = (".txt", ".md", ".csv", ".json")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser, optional=True)
    add_options(parser, "hardware", *names(Stage.NODES), "interactive", "json", "output",
                words={"output": ", ".join(SUFFIXES)})  # fmt: skip


def run(args: argparse.Namespace) -> int:
    where, which = _asked(args)
    suffix = None if args.output is None else suffix_of(args.output, SUFFIXES, "explore")
    if args.output is not None:
        ensure_writable(args.output)
    if args.model is None:
        if args.output is not None or args.json or args.interactive:
            raise RenderError("MODEL is required", hint="without one, what can be named is shown")
        from opgraph.cli.welcome import offers, welcome

        show(welcome(offers(), color=color(), width=width()))
        return 0
    device = _device(args.hardware)
    if args.interactive:
        return _interactive(args, device)
    profile = profile_from(args)
    form = suffix or (".json" if args.json else None)
    if where is None and not which:
        text = _overview(profile, args, form, device)
    else:
        text = _nodes(profile, where, which, form, device)
    if args.output is not None:
        write_atomically(args.output, text)
        say(f"wrote {args.output}")
    else:
        show(text)
    return status_of(profile)


def _device(name: str | None) -> Device | None:
    from opgraph.hardware import device

    return None if name is None else device(name)


def _interactive(args: argparse.Namespace, device: Device | None) -> int:
    """The full-screen explorer. Raises `MissingDependency` without Textual."""
    if importlib.util.find_spec("textual") is None:
        raise MissingDependency("textual", "tui")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise RenderError("-i needs a terminal", hint="without it the answer is text")
    profile = profile_from(args)
    from opgraph.tui.app import explore

    explore(profile, device)
    return status_of(profile)


def _asked(args: argparse.Namespace) -> tuple[Range | None, Filter]:
    """The range (None where no number was given) and the filter. Raises `RenderError`."""
    from opgraph.analysis.selection import Filter, Range

    where = Range(args.start, args.end, args.around, args.context, args.max_nodes)
    which = Filter(args.op, args.module, args.bottleneck, args.min_flops, args.text)
    return (None if where == Range() else where), which


def _overview(
    profile: Profile, args: argparse.Namespace, form: str | None, device: Device | None
) -> str:
    from opgraph.analysis.quantities import ridge_on
    from opgraph.views.text.overview import overview, overview_csv, overview_data

    command = _command(args)
    ridge = ridge_on(device, profile)
    if form == ".json":
        return dumps(overview_data(profile, ridge, device), indent=1) + "\n"
    if form == ".csv":
        return overview_csv(profile, ridge)
    if form == ".md":
        text = overview(profile, width=100, command=command, ridge=ridge, device=device)
        return f"```\n{text}```\n"
    plain = form == ".txt"
    return overview(
        profile,
        color=color() and not plain,
        width=width(),
        command=command,
        ridge=ridge,
        device=device,
    )


def _nodes(
    profile: Profile, where: Range | None, which: Filter, form: str | None, device: Device | None
) -> str:
    from opgraph.analysis.fusion.partition import partition
    from opgraph.analysis.quantities import ridge_on
    from opgraph.analysis.selection import select
    from opgraph.views.files.records import csv_text, records
    from opgraph.views.text.explore import node_list
    from opgraph.views.text.markdown import as_json, as_markdown

    ridge = ridge_on(device, profile)
    selection = select(profile.graph, where, which, ridge=ridge, limit=None if form else LIMIT)
    if form is None or form == ".txt":
        return node_list(
            profile,
            selection,
            color=color() and form is None,
            width=width(),
            ridge=ridge,
            device=device,
            parts=partition(profile.graph),
        )
    more: Any = {"ridge": ridge, "parts": partition(profile.graph), "device": device}
    if form == ".md":
        return as_markdown(profile, selection.nodes, selection.notes, **more)
    found = records(profile, selection.nodes, **more)
    return csv_text(found) if form == ".csv" else as_json(profile, found, selection.notes)


def _command(args: argparse.Namespace) -> str:
    """How the explorer was called, without what says where the answer goes."""
    words: list[str] = []
    skip = False
    for word in args.arguments:
        if skip or word in ("--json", "--debug"):
            skip = False
        elif word in ("-o", "--output"):
            skip = True
        elif not word.startswith(("--output=", "-o")):
            words.append(word)
    return shlex.join(["opgraph", *words])
