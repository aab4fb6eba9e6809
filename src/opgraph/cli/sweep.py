"""`opgraph sweep MODEL`: the costs over batch sizes, lengths and image sizes, and their formulas."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from opgraph.cli.arguments import add_model, add_options, options_from
from opgraph.cli.output import color, progress, say, show, width
from opgraph.options import AXES
from opgraph.record.errors import RenderError
from opgraph.record.files import dumps, ensure_writable, suffix_of, write_atomically

if TYPE_CHECKING:
    from opgraph.analysis.scaling.sweep import Sweep

EXAMPLES = """examples:
  opgraph sweep bert-base-uncased --batch-size 1,4,16,64 --seq-len 128,512
  opgraph sweep resnet50 --image-size 224,384 --dtype float32,bfloat16
  opgraph sweep bert-base-uncased --symbolic
  opgraph sweep gpt2 --symbolic --batch-size 1 -o gpt2.json"""

SUFFIXES = (".txt", ".csv", ".json", ".parquet", ".svg", ".png", ".html")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser, several=True, saved=False)
    add_options(parser, "hardware", "symbolic", "json", "output", words={
        "output": ", ".join(SUFFIXES) + "; with --symbolic, .json is the profile with its formulas"
    })  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from opgraph.api.sweeping import sweep

    suffix = None if args.output is None else suffix_of(args.output, SUFFIXES, "sweep")
    if args.output is not None:
        ensure_writable(args.output)
    options = options_from(args)
    if not args.symbolic and not any(options[axis] for axis in AXES):
        raise RenderError("a sweep over what?", hint="--batch-size 1,4,16, or --symbolic")
    with progress() as tell, redirect_stdout(sys.stderr):
        found = sweep(
            args.model,
            symbolic=args.symbolic,
            hardware=args.hardware,
            progress=tell,
            **options,
        )
    if args.output is not None and suffix is not None:
        write_atomically(args.output, _file(found, suffix))
        say(f"wrote {args.output}")
    elif args.json:
        show(_json(found.to_dict()))
    else:
        show(_text(found))
    return 1 if any(p.error for p in found.points) else 0


def _text(found: Sweep) -> str:
    from opgraph.views.text.sweep import sweep_text

    return sweep_text(found, color=color(), width=width())


def _json(data: Any) -> str:
    return dumps(data, indent=1) + "\n"


def _file(found: Sweep, suffix: str) -> str | bytes:
    from opgraph.views.files.records import csv_text
    from opgraph.views.text.sweep import sweep_text

    if suffix == ".json":
        return found.profile.to_json() if found.profile else _json(found.to_dict())
    if suffix == ".txt":
        return sweep_text(found, width=width())
    if suffix == ".csv":
        return csv_text(found.records())
    from opgraph.views.picture.sweep import sweep_html, sweep_image, sweep_parquet

    if suffix == ".parquet":
        return sweep_parquet(found)
    return sweep_html(found) if suffix == ".html" else sweep_image(found, suffix[1:])
