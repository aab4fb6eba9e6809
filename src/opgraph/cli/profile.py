"""`opgraph profile MODEL`: the cost table and summary."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import add_model, add_options, costed_from
from opgraph.cli.output import color, say, show, status_of, width
from opgraph.options import Stage, names

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
    from opgraph.record.files import ensure_writable, write_atomically
    from opgraph.views import view_for, view_named

    view = view_named("table") if args.output is None else view_for(args.output)
    if args.output is not None:
        ensure_writable(args.output)
    elif args.json:
        view = view_named("json")
    if args.hardware is not None:
        from opgraph.hardware import device

        device(args.hardware)
    costed = costed_from(args)
    options = {name: getattr(args, name) for name in (*SHOWING, "verbose", "memory")}
    options["subgraphs"] = args.partition is not None
    heeded = {k: v for k, v in options.items() if k in view.heeds}
    if args.output is not None:
        write_atomically(args.output, view.load()(costed, **heeded))
        say(f"wrote {args.output}")
    elif view.name == "table":
        show(str(view.load()(costed, color=color(), width=width(), **heeded)))
    else:
        show(str(view.load()(costed, **heeded)))
    return status_of(costed.profile)
