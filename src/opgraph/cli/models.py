"""`opgraph models`: what can be named, and `--try`, which traces each model in a process of its own."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from opgraph.cli.arguments import add_options, form_of, options_from, refuse_unheeded
from opgraph.cli.output import color, say, show, width
from opgraph.options import SIZES, Stage, names
from opgraph.record.errors import SourceError, UnknownModel
from opgraph.record.files import dumps, ensure_writable
from opgraph.sources.registry import find, is_pattern, listed

if TYPE_CHECKING:
    from opgraph.survey import Trial

EPILOG = """examples:
  opgraph models                          families, with a few names of each
  opgraph models 'llama*'                 the names that fit a pattern
  opgraph models --source timm
  opgraph models --try resnet18 yolov8n gpt2
  opgraph models --try 'timm:vit_*' --jobs 2 --resume vits.jsonl --csv"""


WITHOUT_TRYING = ("source", "examples", "json")
TRYING = ("attempt", "tracer", "jobs", "timeout", "memory_limit", "resume", "csv")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "patterns", nargs="*", metavar="NAME|PATTERN", help="a part of a name, or a pattern with *"
    )
    add_options(parser, *WITHOUT_TRYING, *TRYING, *(n for n in SIZES if n not in names(Stage.MODE)))


def run(args: argparse.Namespace) -> int:
    form_of(args)
    if args.examples:
        refuse_unheeded(args, {"examples"}, "the examples")
        show("".join(f"{command}\n" for command in COMMANDS))
        return 0
    if args.attempt:
        return _try(args)
    refuse_unheeded(args, {"source"}, "a list of names", "it goes with --try")
    found = listed(tuple(args.patterns), args.source)
    if not found:
        raise UnknownModel(
            f"no name fits {' '.join(args.patterns)}", hint="`opgraph models` lists all"
        )
    if args.json:
        rows = [{"name": f.name, "source": f.source, "family": f.family} for f in found]
        show(dumps(rows, indent=1) + "\n")
        return 0
    from opgraph.views.text.models import families, names

    chosen = bool(args.patterns or args.source)
    show(names(found, color(), width()) if chosen else families(found, color(), width()))
    return 0


def _try(args: argparse.Namespace) -> int:
    """Trace them, with progress on stderr. The status is 1 when one of them failed."""
    from opgraph.options import Options
    from opgraph.survey import Limits, load_trials, run, save_trial
    from opgraph.survey.table import as_csv, line, trials_table

    specs = _specs(args)
    resume = Path(args.resume) if args.resume else None
    if resume is not None:
        ensure_writable(resume)
    done: dict[str, Trial] = {} if resume is None else load_trials(resume)
    waiting = [s for s in specs if s not in done]
    if len(waiting) < len(specs):
        say(f"{len(specs) - len(waiting)} of {len(specs)} are in {resume} already")
    memory = int(args.memory_limit * 2**30) if args.memory_limit else None
    limits = Limits(args.jobs, args.timeout, memory)
    for trial in run(waiting, limits, Options(**options_from(args)), _sources(waiting)):
        done[trial.name] = trial
        if resume is not None:
            save_trial(resume, trial)
        say(line(trial, sum(s in done for s in specs), len(specs)))
    trials = [done[s] for s in specs]
    if args.json:
        show(dumps([t.to_dict() for t in trials], indent=1) + "\n")
    elif args.csv:
        show(as_csv(trials))
    else:
        show(trials_table(trials, color(), width()))
    return 0 if all(t.ok for t in trials) else 1


def _specs(args: argparse.Namespace) -> list[str]:
    """What to try: plain names as they are, patterns as the names that fit them."""
    specs: list[str] = []
    for text in args.patterns:
        alone = text if args.source is None else f"{args.source}:{text}"
        fit = [f.spec for f in listed((text,), args.source)] if is_pattern(text) else [alone]
        if not fit:
            raise UnknownModel(f"no name fits {text}", hint="`opgraph models` lists all")
        specs += fit
    if not args.patterns and args.source:
        specs = [f.spec for f in listed((), args.source)]
    if not specs:
        raise UnknownModel("nothing to try", hint="give names, or a pattern such as 'resnet*'")
    return list(dict.fromkeys(specs))


def _sources(specs: list[str]) -> frozenset[str]:
    found = set()
    for spec in specs:
        with suppress(SourceError):
            found.add(find(spec)[0].name)
    return frozenset(found)


COMMANDS = (
    "opgraph profile resnet18",
    "opgraph profile bert-base-uncased --seq-len 128",
    "opgraph profile gpt2 --seq-len 128 --show-shapes --depth 3",
    "opgraph profile meta-llama/Llama-3.1-405B --seq-len 4096",
    "opgraph profile yolov8n.pt --input-shape 1x3x640x640",
    "opgraph profile facebook/detr-resnet-50 --image-size 800",
    "opgraph profile timm:eva02_tiny_patch14_224",
    "opgraph profile t5-small --seq-len 128 --decoder-seq-len 32",
    "opgraph profile openai/whisper-base",
    "opgraph profile hf-type:modernbert --head masked-lm",
    "opgraph profile diffusers:unet/sdxl --dtype float16",
    "opgraph profile model.py:build --model-arg width=64 --input x=8x64",
)
