"""`opgraph explain MODEL`: ten facts about what it costs, each with the command that says more."""

from __future__ import annotations

import argparse
import shlex

from opgraph.cli.arguments import add_model, add_options, costed_from, form_of
from opgraph.cli.output import answer, status_of, width
from opgraph.options import PRECISION

EXAMPLES = """examples:
  opgraph explain resnet18
  opgraph explain gpt2 --seq-len 1024 --hardware h100-sxm
  opgraph explain bert-base-uncased --format markdown"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser)
    add_options(parser, "hardware", "run", *PRECISION, "json", "format")


def run(args: argparse.Namespace) -> int:
    from opgraph.views.tables import written
    from opgraph.views.text.explain import explained, facts_of

    form = form_of(args)
    costed = costed_from(args)
    facts = facts_of(costed, _spec(args))
    rows = [f._asdict() for f in facts]
    answer(None, explained(facts, width()) if form is None else written(rows, form[1:]))
    return status_of(costed, shown=True)


def _spec(args: argparse.Namespace) -> str:
    """The model with the options that were typed with it, but for those of the answer."""
    words, skip = [], False
    for word in args.arguments[1:]:
        name = word.partition("=")[0]
        if skip or name in ("--json", "-q", "--quiet", "-v", "--verbose"):
            skip = False
        elif name in ("--format", "--hardware", "--device"):
            skip = "=" not in word
        else:
            words.append(shlex.quote(word))
    return " ".join(words)
