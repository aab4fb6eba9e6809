"""`opgraph profile MODEL`: the cost table and summary."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from opgraph.cli.arguments import add_model, add_options, profile_from
from opgraph.cli.output import color, say, show, status_of, width
from opgraph.options import Stage, names
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


SHOWING = ("depth", "sort", "top", "show_shapes", "fold", "theme")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser)
    add_options(
        parser,
        *names(Stage.COSTING, Stage.PARALLEL),
        *SHOWING,
        "json",
        "output",
        words={
            "output": "write to a file, as its suffix says: .json, .txt, .html, .svg …; roofline.svg or "
            "roofline.png draws the roofline of --hardware"
        },
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
    profile = profile_from(args)
    if args.autocast is not None:
        profile = _autocast(profile, args.autocast)
    options = {name: getattr(args, name) for name in (*SHOWING, "verbose", "hardware", "memory",
                                                      "partition")}  # fmt: skip
    options["layout"] = _layout(args)
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
