"""`opgraph card MODEL`: the costs section of a model card, Markdown under YAML metadata."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import add_model, add_options, costed_from, ensure_nothing_is_lost
from opgraph.cli.output import answer, status_of
from opgraph.options import PRECISION

EXAMPLES = """examples:
  opgraph card resnet18 >> README.md
  opgraph card bert-base-uncased --seq-len 128 --hardware l4 -o costs.md"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser)
    add_options(parser, "hardware", "run", *PRECISION, "output")


def run(args: argparse.Namespace) -> int:
    from opgraph.record.files import suffix_of
    from opgraph.views.text.card import card

    if args.output is not None:
        suffix_of(args.output, (".md",), "card")
        ensure_nothing_is_lost(args, "opgraph_version:")
    costed = costed_from(args)
    answer(args.output, card(costed))
    return status_of(costed, shown=True)
