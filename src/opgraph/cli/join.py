"""`opgraph join MODEL TRACE`: give what somebody's profiler wrote to the operators of a model."""

from __future__ import annotations

import argparse
from dataclasses import replace

from opgraph.cli.arguments import (
    add_model,
    add_options,
    costed_from,
    profile_from,
    show_view,
    view_from,
)
from opgraph.cli.output import status_of
from opgraph.options import Stage
from opgraph.views import heeded

EXAMPLES = """examples:
  opgraph join bert.json trace.json.gz --hardware h100-sxm
  opgraph join gpt2 trace.json --seq-len 512 --dtype float16 -o run.json
  opgraph join llama.json ranks/ -o run.json
  opgraph join model.json report.sqlite
  opgraph join train.json snapshot.pickle"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser)
    parser.add_argument(
        "trace", metavar="TRACE",
        help="of torch.profiler (.json, .json.gz), a folder of them (one a rank), what Nsight "
        "Systems exports (.sqlite), or a snapshot of torch.cuda.memory (.pickle)",
    )  # fmt: skip
    add_options(
        parser, "hardware", *heeded("costed", Stage.VIEW, kind="text"), "json", "format", "output"
    )


def run(args: argparse.Namespace) -> int:
    from opgraph.traces import joined

    view = view_from(args, usual="table")
    profile = profile_from(args)
    costed = costed_from(args, replace(profile, measured=joined(profile, args.trace)))
    show_view(args, view, costed)
    return status_of(costed)
