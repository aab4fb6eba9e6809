"""`opgraph measure MODEL`: run it here, and say where the time goes, beside the prediction."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import (
    add_model,
    add_options,
    costed_from,
    options_from,
    show_view,
    view_from,
)
from opgraph.cli.output import progress
from opgraph.options import Options, Stage
from opgraph.record.errors import InputError
from opgraph.record.loading import is_saved_profile
from opgraph.views import heeded

EXAMPLES = """examples:
  opgraph measure resnet50 --batch-size 32 --hardware this.toml
  opgraph measure train.py:build --mode train --steps 20 -o monday.json
  opgraph measure gpt2 --mode decode --context-len 512 --on cuda --hardware h100-sxm
  opgraph compare monday.json today.json --fail-if 'measured > +5%'
  opgraph draw monday.json --color-by measured -o monday.svg"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser, saved=False)
    add_options(parser, "on", "steps", "hardware", *heeded("costed", Stage.VIEW, kind="text"),
                "json", "format", "output")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    if is_saved_profile(args.model):
        raise InputError("a saved profile has no weights to run", hint="name the model instead")
    view = view_from(args, usual="table")
    if args.hardware is not None:
        from opgraph.hardware import device

        device(args.hardware)  # one that there is none of should not wait for the run
    from opgraph.api.measuring import measured_profile

    given = {k: v for k, v in options_from(args).items() if not k.startswith("inductor")}
    with progress() as tell:
        profile = measured_profile(
            args.model, None, None, Options(**given), args.on, args.steps,
            lambda text: tell(f"{args.model}: {text}"),
        )  # fmt: skip
    show_view(args, view, costed_from(args, profile))
    return 0
