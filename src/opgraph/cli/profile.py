"""`opgraph profile MODEL`: the cost table and summary."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import add_model, add_options, costed_from, show_view, view_from
from opgraph.cli.output import status_of
from opgraph.options import Stage, names
from opgraph.views import heeded

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
      --mode train --tensor-parallel 8 --fsdp 128"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser)
    parser.set_defaults(on_paper=True)
    add_options(
        parser,
        *names(Stage.COSTING),
        *heeded("costed", Stage.VIEW),
        "json",
        "format",
        "output",
        words={
            "output": "write to a file, as its suffix says: .json, .txt, .html, .svg …; roofline.svg or "
            "roofline.png draws the roofline of --hardware"
        },
    )


def run(args: argparse.Namespace) -> int:
    view = view_from(args, usual="table")
    costed = costed_from(args)
    show_view(args, view, costed)
    return status_of(costed, shown=view.name in ("table", "markdown"))
