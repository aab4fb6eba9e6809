"""`opgraph plan MODEL --devices 1024xh100-sxm`: the quickest layouts of a step of training, or the best
engines that serve a model."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import (
    OptionParser,
    add_model,
    add_options,
    options_from,
    show_view,
    suffixes,
    view_from,
)
from opgraph.cli.output import progress
from opgraph.options import QUANTIZED, Stage, names
from opgraph.options.fields import SERVING
from opgraph.record.errors import InputError

EXAMPLES = """examples:
  opgraph plan meta-llama/Llama-3.1-8B --devices 64xh100-sxm --global-batch 256 --seq-len 8192 --dtype bf16
  opgraph plan meta-llama/Llama-3.1-405B --devices 1024xh100-sxm --global-batch 2048 --seq-len 8192 \\
      --dtype bf16 --explain --tensor-parallel 8 --pipeline-parallel 16 --fsdp 8 --zero 1
  opgraph plan meta-llama/Llama-3.1-70B --devices 8xh100-sxm --mode decode --max-first-token 500"""

_SERVED = (*QUANTIZED, *SERVING, "max_first_token", "max_per_token")


def prepare_parser(parser: OptionParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser, saved=False, stages=(Stage.BUILD, Stage.INPUTS, Stage.MODE, Stage.PARALLEL))
    parser.own = names(Stage.PARALLEL)
    parser.set_defaults(mode="train")
    add_options(parser, "devices", "network", "explained", "top", *_SERVED, "json", "markdown", "format",
                "output", words={"output": suffixes("plan")})  # fmt: skip


def run(args: argparse.Namespace) -> int:
    view = view_from(args, result="plan", usual="plan")
    if args.devices is None:
        raise InputError("over which devices?", hint="--devices 1024xh100-sxm")
    from opgraph.sources.registry import required

    required(args.model)
    from opgraph.api.planning import plan

    served = {n: getattr(args, n) for n in _SERVED if n in args.given}
    if "mode" not in args.given:
        args.mode = "train"
        args.given = {*args.given, "mode"}
    asked = {n: v for n, v in options_from(args).items() if n in args.given}
    with progress() as said:
        found = plan(
            args.model, devices=args.devices, explain=args.explained, network=args.network,
            top=args.top or 10, progress=said, **asked, **served,
        )  # fmt: skip
    show_view(args, view, found)
    return 0 if found.best else 1
