"""`opgraph serve MODEL --hardware 4xh100-sxm`: throughput and latency as an engine runs it."""

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
from opgraph.cli.output import progress
from opgraph.options.fields import QUANTIZED, SERVING
from opgraph.record.errors import InputError

EXAMPLES = """examples:
  opgraph serve meta-llama/Llama-3.1-8B --hardware h100-sxm --input-len 2048 --output-len 512
  opgraph serve meta-llama/Llama-3.1-70B --hardware 4xh100-sxm --weights fp8 --request-rate 8
  opgraph serve gpt2 --hardware a10 --request-rate 1,8,64 --input-len 16-512 -o curve.svg"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser, saved=False)
    add_options(parser, "hardware", *QUANTIZED, *SERVING, "theme", "json", "markdown", "format", "output",
                words={"output": suffixes("serving"), "hardware": "the device, and how many share each "
                       "operator: h100-sxm, 4xh100-sxm"})  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from opgraph.sources.registry import required

    if args.hardware is None:
        raise InputError(
            "served on what?", hint="--hardware 4xh100-sxm (opgraph hardware lists them)"
        )
    required(args.model)
    from opgraph.api.serving import serve

    view = view_from(args, result="serving", usual="serving")
    given = {n: getattr(args, n) for n in (*SERVING, *QUANTIZED) if n in args.given}
    traced = {n: v for n, v in options_from(args).items() if n in args.given}
    with progress() as tell:
        found = serve(args.model, hardware=args.hardware, progress=tell, **traced, **given)
    show_view(args, view, found)
    return 0
