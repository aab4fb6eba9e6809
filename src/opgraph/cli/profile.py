"""`opgraph profile MODEL`: the cost table and summary."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import add_model_arguments, profile_from
from opgraph.cli.output import color, say, show, status_of, width

EXAMPLES = """examples:
  opgraph profile resnet18
  opgraph profile bert-base-uncased --seq-len 128 --depth 4
  opgraph profile yolov8n.pt --input-shape 1x3x640x640 -o yolov8n.json
  opgraph profile yolov8n.json --sort flops --top 10"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model_arguments(parser)
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
        "-v", "--verbose", action="store_true", help="every attempt, and all versions"
    )
    view.add_argument("--json", action="store_true", help="the whole profile as JSON on stdout")
    view.add_argument(
        "-o", "--output", metavar="FILE", help="write to a file, as its suffix says: .json, .txt"
    )


def run(args: argparse.Namespace) -> int:
    from opgraph.files import ensure_writable
    from opgraph.views import render, view_for, write

    if args.output is not None:
        view_for(args.output)
        ensure_writable(args.output)
    profile = profile_from(args)
    options = {
        "depth": args.depth,
        "sort": args.sort,
        "top": args.top,
        "show_shapes": args.show_shapes,
        "fold": not args.no_fold,
        "verbose": args.verbose,
    }
    if args.output is not None:
        write(profile, args.output, **(options if view_for(args.output).name == "table" else {}))
        say(f"wrote {args.output}")
    elif args.json:
        show(profile.to_json())
    else:
        show(str(render("table", profile, color=color(), width=width(), **options)))
    return status_of(profile)
