"""`opgraph sweep MODEL`: the costs over batch sizes, lengths and image sizes, and their formulas."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import (
    add_model,
    add_options,
    options_from,
    show_view,
    suffixes,
    view_from,
)
from opgraph.cli.output import answer, progress, say_remarks
from opgraph.options import AXES, QUANTIZED
from opgraph.record.errors import RenderError

EXAMPLES = """examples:
  opgraph sweep bert-base-uncased --batch-size 1,4,16,64 --seq-len 128,512
  opgraph sweep resnet50 --image-size 224,384 --dtype float32,bfloat16
  opgraph sweep bert-base-uncased --symbolic
  opgraph sweep gpt2 --symbolic --batch-size 1 -o gpt2.json"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser, several=AXES, saved=False)
    add_options(parser, "hardware", "run", *QUANTIZED, "symbolic", "json", "format", "output", words={
        "output": suffixes("sweep") + "; with --symbolic, .json is the profile with its formulas"
    })  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from opgraph.api.sweeping import sweep
    from opgraph.views.files.json import plain

    view = view_from(args, result="sweep", usual="sweep")
    options = options_from(args)
    if not args.symbolic and not any(options[axis] for axis in AXES):
        raise RenderError("a sweep over what?", hint="--batch-size 1,4,16, or --symbolic")
    with progress() as tell:
        found = sweep(
            args.model,
            symbolic=args.symbolic,
            hardware=args.hardware,
            progress=tell,
            run=args.run,
            **{name: getattr(args, name) for name in QUANTIZED},
            **options,
        )
    if args.json:
        answer(None, plain(found))
    else:
        show_view(args, view, found)
    say_remarks(found.remarks)
    return 1 if any(p.error for p in found.points) else 0
