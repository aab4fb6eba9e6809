"""`opgraph view MODEL`: the interactive page, as one file that needs no network."""

from __future__ import annotations

import argparse
import re
import webbrowser
from pathlib import Path

from opgraph.cli.arguments import add_model, add_options, costed_from, profile_of, view_from
from opgraph.cli.output import answer, status_of
from opgraph.options import Stage
from opgraph.views import heeded

EXAMPLES = """examples:
  opgraph view resnet18 --open
  opgraph view meta-llama/Llama-3.1-405B -o llama.html
  opgraph view bert.json -o bert.html
  opgraph view gpt2 --hardware h100
  opgraph view resnet34 --against resnet18
  opgraph view gpt2 --against 'gpt2 --dtype bfloat16'"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser)
    own = heeded("costed", Stage.COSTING, kind="page")
    add_options(parser, *own, "against", "open", "output",
                words={"output": "the page; named after the model if not given"})  # fmt: skip


def run(args: argparse.Namespace) -> int:
    view = view_from(args, kind="page", usual="html")
    costed = costed_from(args)
    path = Path(args.output or f"{_file_name(costed.profile.model.name)}.html")
    against = None
    if args.against is not None:
        against = costed_from(args, profile_of(args.against, args))
    answer(str(path), view.load()(costed, against=against))
    if args.open:
        webbrowser.open(path.resolve().as_uri())
    return status_of(costed)


def _file_name(model: str) -> str:
    """The last part of a model's name, in letters that every file system takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model.rpartition("/")[2]).strip("-.")[:80] or "graph"
