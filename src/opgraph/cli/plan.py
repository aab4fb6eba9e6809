"""`opgraph plan MODEL --devices 1024xh100-sxm`: the quickest layouts of a step of training."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import add_model, add_options, form_of, options_from
from opgraph.cli.output import color, progress, tell, width
from opgraph.options import Stage
from opgraph.record.errors import InputError

EXAMPLES = """examples:
  opgraph plan meta-llama/Llama-3.1-8B --devices 64xh100-sxm --global-batch 256 --seq-len 8192 --dtype bf16
  opgraph plan meta-llama/Llama-3.1-405B --devices 1024xh100-sxm --global-batch 2048 --seq-len 8192 \\
      --dtype bf16 --explain --tensor-parallel 8 --pipeline-parallel 16 --fsdp 8 --zero 1"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser, saved=False, stages=(Stage.BUILD, Stage.INPUTS, Stage.MODE, Stage.PARALLEL))
    parser.set_defaults(mode="train")
    add_options(parser, "devices", "network", "explained", "top", "json", "format")


def run(args: argparse.Namespace) -> int:
    form = form_of(args)
    if args.devices is None:
        raise InputError("over which devices?", hint="--devices 1024xh100-sxm")
    from opgraph.api.planning import plan
    from opgraph.views.text.plan import plan_text, rows

    if "mode" not in args.given:
        args.mode = "train"
        args.given = {*args.given, "mode"}
    with progress() as said:
        found = plan(
            args.model, devices=args.devices, explain=args.explained, network=args.network,
            top=args.top or 10, progress=said, **options_from(args),
        )  # fmt: skip
    tell(
        form,
        lambda: plan_text(found, color=color(), width=width()),
        lambda: rows(found),
        found.to_dict,
    )
    return 0 if found.best else 1
