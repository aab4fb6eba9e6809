"""`opgraph explain MODEL`: ten facts about what it costs, each with the command that says more."""

from __future__ import annotations

import argparse
import shlex

from opgraph.cli.arguments import add_model, add_options, costed_from, form_of, typed_without
from opgraph.cli.output import status_of, tell, width
from opgraph.options import PRECISION

_ANSWER = ("json", "format", "hardware", "quiet", "verbose")
"""The options of the answer, which commands that say more do not repeat."""

EXAMPLES = """examples:
  opgraph explain resnet18
  opgraph explain gpt2 --seq-len 1024 --hardware h100-sxm
  opgraph explain bert-base-uncased --format markdown"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser)
    add_options(parser, "hardware", "run", *PRECISION, "json", "format")


def run(args: argparse.Namespace) -> int:
    from opgraph.views.text.explain import explained, facts_of

    form = form_of(args)
    costed = costed_from(args)
    facts = facts_of(costed, shlex.join(typed_without(args, *_ANSWER)[1:]))
    tell(form, lambda: explained(facts, width()), lambda: [f._asdict() for f in facts])
    return status_of(costed, shown=True)
