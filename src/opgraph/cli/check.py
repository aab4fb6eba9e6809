"""`opgraph check MODEL`: every tracer side by side, and every disagreement between them."""

from __future__ import annotations

import argparse
from functools import partial

from opgraph.cli.arguments import add_model, add_options, form_of
from opgraph.cli.output import color, progress, say_remarks, tell, width
from opgraph.options import CAPTURED, names
from opgraph.record.errors import InputError

EXAMPLES = """examples:
  opgraph check resnet18
  opgraph check bert-base-uncased --seq-len 128 -v
  opgraph check yolov8n.pt --warm-up --no-counters
  opgraph check gpt2 --tracer export"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser, saved=False, stages=CAPTURED)
    add_options(parser, "counters", "json", "format")


def run(args: argparse.Namespace) -> int:
    from opgraph.checking import ALL, check
    from opgraph.record.loading import is_saved_profile
    from opgraph.views.text.check import check_text

    if is_saved_profile(args.model):
        raise InputError(
            "a saved profile has been traced already",
            hint="check the model itself, or compare profiles",
        )
    form = form_of(args)
    tracers = ALL if args.tracer == "auto" else tuple(dict.fromkeys(("auto", args.tracer)))
    options = {n: getattr(args, n) for n in names(*CAPTURED) if n in args.given and n != "tracer"}
    with progress():
        found = check(args.model, tracers=tracers, counters=args.counters, **options)
    text = partial(check_text, found, color=color(), width=width(), verbose=args.verbose)
    tell(form, text, found.rows, found.to_dict)
    say_remarks(() if form is None else found.remarks)
    return 0 if found.agree else 1
