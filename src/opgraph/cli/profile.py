"""`opgraph profile MODEL`: the cost table and summary."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from opgraph.cli.arguments import add_model_arguments, profile_from
from opgraph.cli.output import color, say, show, status_of, width
from opgraph.record.errors import InputError

if TYPE_CHECKING:
    from opgraph.analysis.parallel.plan import Layout
    from opgraph.record.profile import Profile

EXAMPLES = """examples:
  opgraph profile resnet18
  opgraph profile bert-base-uncased --seq-len 128 --depth 4
  opgraph profile yolov8n.pt --input-shape 1x3x640x640 -o yolov8n.json
  opgraph profile yolov8n.json --sort flops --top 10
  opgraph profile resnet50 --batch-size 64 --hardware rtx-4090 --autocast float16
  opgraph profile bert-base-uncased --hardware h100-sxm -o bert.roofline.svg
  opgraph profile gpt2 --mode train --optimizer sgd --checkpointing
  opgraph profile meta-llama/Llama-3.1-8B --mode decode --context-len 8192 --hardware h100-sxm
  opgraph profile gpt2 --memory --partition fuse
  opgraph profile meta-llama/Llama-3.1-405B --dtype bfloat16 --hardware h100-sxm \\
      --tensor-parallel 8 --pipeline-parallel 2"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model_arguments(parser)
    cost = parser.add_argument_group("what it costs")
    cost.add_argument(
        "--hardware",
        metavar="DEVICE",
        help="the time it takes there, and whether it fits (opgraph hardware lists them)",
    )
    cost.add_argument(
        "--autocast",
        choices=("float16", "bfloat16"),
        help="as mixed precision would run it, on paper",
    )
    cost.add_argument("--memory", action="store_true", help="live memory over the run")
    cost.add_argument(
        "--partition",
        choices=("none", "fuse", "inductor"),
        help="what would be fused, by rules or by TorchInductor's scheduler, and what that saves",
    )
    several = parser.add_argument_group("over several devices, on paper")
    for name, what in (
        ("tensor", "that share each operator"),
        ("pipeline", "stages, cut between layers"),
        ("data", "copies, each with a batch of its own"),
    ):
        several.add_argument(f"--{name}-parallel", type=int, metavar="N", help=what)
    several.add_argument(
        "--micro-batches", type=int, metavar="N", help="that go through the pipeline in a step (1)"
    )
    view = parser.add_argument_group("view")
    view.add_argument("--depth", type=int, metavar="N", help="levels of modules below the root")
    view.add_argument(
        "--sort",
        metavar="KEY",
        help="flops, macs, bytes, parameters, intensity or name; by execution if not given",
    )
    view.add_argument("--top", type=int, metavar="N", help="only the first N rows")
    view.add_argument("--show-shapes", action="store_true", help="a column of output shapes")
    view.add_argument("--no-fold", action="store_true", help="list repeated modules one by one")
    view.add_argument(
        "--theme", choices=("auto", "light", "dark"), default="auto", help="of a picture"
    )
    view.add_argument(
        "-v", "--verbose", action="store_true", help="every attempt, and all versions"
    )
    view.add_argument("--json", action="store_true", help="the whole profile as JSON on stdout")
    view.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write to a file, as its suffix says: .json, .txt, .html, .svg …; roofline.svg or "
        "roofline.png draws the roofline of --hardware",
    )


def run(args: argparse.Namespace) -> int:
    from opgraph.record.files import ensure_writable
    from opgraph.views import render, view_for, view_named, write

    if args.output is not None:
        view_for(args.output)
        ensure_writable(args.output)
    if args.hardware is not None:
        from opgraph.hardware import device

        device(args.hardware)
    args.inductor = args.partition == "inductor"
    profile = profile_from(args)
    if args.autocast is not None:
        profile = _autocast(profile, args.autocast)
    options = {
        "depth": args.depth,
        "sort": args.sort,
        "top": args.top,
        "show_shapes": args.show_shapes,
        "fold": not args.no_fold,
        "verbose": args.verbose,
        "hardware": args.hardware,
        "memory": args.memory,
        "partition": args.partition,
        "theme": args.theme,
        "layout": _layout(args),
    }
    view = view_named("table") if args.output is None else view_for(args.output)
    heeded = {k: v for k, v in options.items() if k in (*view.needs, *view.heeds)}
    if args.output is not None:
        write(profile, args.output, **heeded)
        say(f"wrote {args.output}")
    elif args.json:
        show(profile.to_json())
    else:
        show(str(render("table", profile, color=color(), width=width(), **heeded)))
    return status_of(profile)


def _autocast(profile: Profile, lower: str) -> Profile:
    """The profile in mixed precision. One that was saved so is as it is: its casts are in it already."""
    already = profile.convention.get("autocast")
    if already == lower:
        return profile
    if already is not None:
        raise InputError(
            f"this profile was saved with --autocast {already}",
            hint=f"name the model, or a profile without it, for {lower}",
        )
    from opgraph.analysis.cost.precision import autocast

    return replace(
        profile,
        graph=autocast(profile.graph, lower),
        convention={**profile.convention, "autocast": lower},
    )


def _layout(args: argparse.Namespace) -> Layout | None:
    """Over how many devices, where that is asked for."""
    sizes = (args.tensor_parallel, args.pipeline_parallel, args.data_parallel, args.micro_batches)
    if sizes == (None,) * 4:
        return None
    from opgraph.analysis.parallel.plan import Layout

    return Layout(*(1 if size is None else size for size in sizes))
