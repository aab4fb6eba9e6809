"""`opgraph survey`: many models at once, on this machine or a cluster, into a dataset."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from opgraph.cli.arguments import add_options, form_of, refuse_unheeded
from opgraph.cli.output import color, progress, say, tell, width
from opgraph.options import NAMES, QUANTIZED, TRACED, names
from opgraph.record.errors import InputError
from opgraph.surveying.cases import AXES

if TYPE_CHECKING:
    from opgraph.surveying.engine import Progress

EXAMPLES = """examples:
  opgraph survey --models resnet18,gpt2
  opgraph survey --models 'timm:vit_*' --batch-size 1,32 --hardware h100-sxm,l4 -o vits
  opgraph survey --models names.txt --mode infer,train --keep graphs -o zoo --address 10.0.0.1:6379
  opgraph survey --recost -o zoo

The same command goes on with a folder that is not finished. The status is 1 where a case has no result."""

_EVERY = 30.0
"""Seconds between two lines of progress where there is no terminal."""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_options(parser, "models", *names(*TRACED), "hardware", *QUANTIZED, several=(*AXES, "hardware"),
                words={"hardware": "devices to cost them on (opgraph hardware lists them)"})  # fmt: skip
    add_options(parser, "keep", "derive", "recost", "jobs", "timeout", "address", "json", "format",
                "output", words={"output": "the folder of the dataset"})  # fmt: skip


def run(args: argparse.Namespace) -> int:
    folder, args.output = args.output, None  # it is no file, whose suffix would say the form
    form = form_of(args)
    if args.recost:
        refuse_unheeded(args, {"recost", "hardware", "jobs", "timeout", "address"}, "times made anew",
                        "the models and options are those of the folder")  # fmt: skip
        if folder is None:
            raise InputError("which survey's times?", hint="-o FOLDER")
    elif not args.models:
        raise InputError("a survey of which models?", hint="--models 'timm:resnet*'")
    if folder is not None:
        return _survey(args, Path(folder), form)
    with tempfile.TemporaryDirectory(prefix="opgraph-survey-") as place:
        return _survey(args, Path(place), form)


def _survey(args: argparse.Namespace, folder: Path, form: str | None) -> int:
    from opgraph.surveying.job import survey
    from opgraph.surveying.table import cases, survey_text

    options = {n: getattr(args, n) for n in (*NAMES, *QUANTIZED) if n in args.given}
    last = time.monotonic()

    with progress() as said:

        def report(at: Progress) -> None:
            nonlocal last
            said(str(at))
            if not sys.stderr.isatty() and time.monotonic() - last > _EVERY:
                last = time.monotonic()
                say(str(at))

        found = survey(
            args.models, folder, recost=args.recost, derive=args.derive, hardware=args.hardware or (),
            keep=args.keep, jobs=args.jobs, timeout=args.timeout, address=args.address,
            progress=report, **options,
        )  # fmt: skip
    tell(form, lambda: survey_text(found, color(), width()), lambda: cases(found))
    return 1 if found.sql("select 1 from cases where not ok limit 1").rows else 0
