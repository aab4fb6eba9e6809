"""`opgraph models`: what can be named, with its size, task and licence."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from opgraph.cli.arguments import add_options, form_of, refuse_unheeded
from opgraph.cli.output import color, show, tell, width
from opgraph.record import units
from opgraph.record.errors import RenderError, UnknownModel, one_of
from opgraph.sources.registry import listed, suggestion

if TYPE_CHECKING:
    from opgraph.sources.registry import Listing

EPILOG = """examples:
  opgraph models                          families, with a few names of each
  opgraph models 'llama*'                 the names that fit a pattern
  opgraph models --task detection --max-params 30M --sort flops
  opgraph models --source timm --page 2"""


CHOOSING = ("source", "task", "max_params", "max_flops", "hardware", "sort", "top", "page")
SORTS = ("name", "parameters", "flops", "time")
PAGE = 50


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "patterns", nargs="*", metavar="NAME|PATTERN", help="a part of a name, or a pattern with *"
    )
    words: dict[str, str | tuple[str, ...]] = {
        "sort": SORTS,
        "top": "the first N names",
        "hardware": "the predicted latency there, of those that the atlas has (opgraph atlas)",
    }
    add_options(parser, *CHOOSING, "examples", "json", "format", words=words)


def run(args: argparse.Namespace) -> int:
    form = form_of(args)
    if args.examples:
        refuse_unheeded(args, {"examples"}, "the examples")
        if args.patterns:
            raise RenderError("the examples are of no one name", hint="leave the name out")
        show("".join(f"{command}\n" for command in COMMANDS))
        return 0
    latencies = None if args.hardware is None else _latencies(args.hardware)
    found = _chosen(args, latencies or {})

    def rows() -> list[dict[str, Any]]:
        times = [{} if latencies is None else {"latency": latencies.get(f.spec)} for f in found]
        return [{**f.record(), **time} for f, time in zip(found, times, strict=True)]

    def text() -> str:
        from opgraph.views.text.models import families, names

        all_of_them = not (args.patterns or args.given & {*CHOOSING})
        shown = families if all_of_them else partial(names, latencies=latencies)
        return shown(found, color(), width())

    tell(form, text, rows)
    return 0


def _latencies(hardware: str) -> dict[str, float]:
    """The predicted seconds on a device of the models of the atlas, by what is typed."""
    from opgraph.hardware import device
    from opgraph.surveying.sql import latencies

    return latencies(device(hardware).id)


def _chosen(args: argparse.Namespace, latencies: Mapping[str, float]) -> list[Listing]:
    """The names that fit a pattern and all filters. What is not known of a name fits no filter."""
    found = listed(tuple(args.patterns), args.source)
    if not found:
        raise UnknownModel(f"no name fits {' '.join(args.patterns)}",
                           hint=suggestion(args.patterns[0]) if args.patterns else None)  # fmt: skip
    if args.task is not None:
        tasks = sorted({f.facts.task for f in found} - {""})
        if not any(args.task in task for task in tasks):
            raise UnknownModel(f"no task is called {args.task}", hint=one_of(args.task, tasks))
        found = [f for f in found if args.task in f.facts.task]
    for option, of in (("max_params", "parameters"), ("max_flops", "flops")):
        most = getattr(args, option)
        if most is None:
            continue
        known = [(n, f) for f in found if (n := getattr(f.facts, of)) is not None]
        found = [f for n, f in known if n <= most]
        if known and not found:
            least = units.count(min(n for n, _ in known))
            raise UnknownModel(f"none of them is known to have at most {units.count(most)} {of}",
                               hint=f"the least has {least}")  # fmt: skip
    if args.sort == "name":
        found.sort(key=lambda f: f.name)
    elif args.sort == "time":
        if args.hardware is None:
            raise RenderError("--sort time is of the time on a device",
                              hint="--hardware h100-sxm (opgraph hardware lists them)")  # fmt: skip
        found.sort(key=lambda f: latencies.get(f.spec, inf))
    elif args.sort is not None:
        found.sort(key=lambda f: -(getattr(f.facts, args.sort) or 0))
    if not found:
        raise UnknownModel(
            "no name fits all of this", hint="figures that are not known fit no limit"
        )
    if args.page is not None:
        first, pages = PAGE * (args.page - 1), -(-len(found) // PAGE)
        if first >= len(found):
            raise RenderError(f"there is no page {args.page}", hint=f"the last one is {pages}")
        found = found[first : first + PAGE]
    return found[: args.top]


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
