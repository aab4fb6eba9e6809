"""`opgraph models`: what can be named, with its size, task and licence, and `--try`, which traces each
model in a process of its own."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from opgraph.cli.arguments import add_options, form_of, options_from, refuse_unheeded
from opgraph.cli.output import color, say, show, width
from opgraph.options import SIZES, Stage, names
from opgraph.record.errors import RenderError, SourceError, UnknownModel, one_of
from opgraph.record.files import dumps, ensure_writable
from opgraph.sources.registry import find, is_pattern, listed, suggestion
from opgraph.views.tables import written

if TYPE_CHECKING:
    from opgraph.sources.registry import Listing
    from opgraph.survey import Trial

EPILOG = """examples:
  opgraph models                          families, with a few names of each
  opgraph models 'llama*'                 the names that fit a pattern
  opgraph models --task detection --max-params 30M --sort flops
  opgraph models --source timm --page 2
  opgraph models --try resnet18 yolov8n gpt2
  opgraph models --try 'timm:vit_*' --jobs 2 --resume vits.jsonl --format csv"""


CHOOSING = ("source", "task", "max_params", "max_flops", "sort", "top", "page")
SORTS = ("name", "parameters", "flops")
PAGE = 50
TRYING = ("attempt", "tracer", "jobs", "timeout", "memory_limit", "resume")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "patterns", nargs="*", metavar="NAME|PATTERN", help="a part of a name, or a pattern with *"
    )
    words = {"sort": ", ".join(SORTS), "top": "the first N names"}
    add_options(parser, *CHOOSING, "examples", "json", "csv", "format", *TRYING, words=words)
    add_options(parser, *(n for n in SIZES if n not in names(Stage.MODE)))


def run(args: argparse.Namespace) -> int:
    form = form_of(args)
    if args.examples:
        refuse_unheeded(args, {"examples"}, "the examples")
        show("".join(f"{command}\n" for command in COMMANDS))
        return 0
    if args.attempt:
        refuse_unheeded(args, {"source", *TRYING, *SIZES}, "what is tried")
        return _try(args, form)
    refuse_unheeded(args, CHOOSING, "a list of names", "it goes with --try")
    found = _chosen(args)
    if form is not None:
        show(written([f.record() for f in found], form[1:]))
        return 0
    from opgraph.views.text.models import families, names

    all_of_them = not (args.patterns or args.given & {*CHOOSING})
    show(families(found, color(), width()) if all_of_them else names(found, color(), width()))
    return 0


def _chosen(args: argparse.Namespace) -> list[Listing]:
    """The names that fit a pattern and all filters. What is not known of a name fits no filter."""
    if args.sort not in (None, *SORTS):
        raise RenderError(
            f"--sort {args.sort} means nothing to names", hint=one_of(args.sort, SORTS)
        )
    found = listed(tuple(args.patterns), args.source)
    if not found:
        raise UnknownModel(f"no name fits {' '.join(args.patterns)}",
                           hint=suggestion(args.patterns[0]) if args.patterns else None)  # fmt: skip
    if args.task is not None:
        tasks = sorted({f.facts.task for f in found} - {""})
        if not any(args.task in task for task in tasks):
            raise UnknownModel(f"no task is called {args.task}", hint=one_of(args.task, tasks))
        found = [f for f in found if args.task in f.facts.task]
    for most, of in ((args.max_params, "parameters"), (args.max_flops, "flops")):
        if most is not None:
            found = [f for f in found if (n := getattr(f.facts, of)) is not None and n <= most]
    if args.sort == "name":
        found.sort(key=lambda f: f.name)
    elif args.sort is not None:
        found.sort(key=lambda f: -(getattr(f.facts, args.sort) or 0))
    if args.page is not None:
        found = found[PAGE * (args.page - 1) : PAGE * args.page]
    found = found[: args.top]
    if not found:
        raise UnknownModel(
            "no name fits all of this", hint="figures that are not known fit no limit"
        )
    return found


def _try(args: argparse.Namespace, form: str | None) -> int:
    """Trace them, with progress on stderr. The status is 1 when one of them failed."""
    from opgraph.options import Options
    from opgraph.survey import Limits, load_trials, run, save_trial
    from opgraph.survey.table import line, trials_table

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
    if form == ".json":
        show(dumps([t.to_dict() for t in trials], indent=1) + "\n")
    elif form is not None:
        show(written([t.record() for t in trials], form[1:]))
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
