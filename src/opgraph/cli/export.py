"""`opgraph export MODEL -o FILE`: the graph in a format of another tool, by suffix or by name."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import add_model_arguments, profile_from
from opgraph.cli.output import say, show, status_of
from opgraph.errors import RenderError
from opgraph.files import write_atomically
from opgraph.views import render, view_for, views

EXAMPLES = """examples:
  opgraph export resnet18 -o resnet18.csv
  opgraph export bert-base-uncased.json -o bert.json --format model-explorer
  opgraph export gpt2 --format mermaid > gpt2.mmd
  opgraph export gpt2 --hardware h100-sxm -o gpt2.trace.json"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    formats = ", ".join(f"{v.name} ({', '.join(v.suffixes)})" for v in views().values())
    parser.epilog = f"formats: {formats}\n\n{EXAMPLES}"
    add_model_arguments(parser)
    view = parser.add_argument_group("export")
    view.add_argument("-o", "--output", metavar="FILE", help="stdout when it is not given")
    view.add_argument("--format", metavar="NAME", help="instead of what the file's suffix means")
    view.add_argument(
        "--hardware", metavar="DEVICE", help="the device of a trace (opgraph hardware lists them)"
    )


def run(args: argparse.Namespace) -> int:
    if args.format is None and args.output is None:
        raise RenderError("which format?", hint=f"-o FILE, or --format {'|'.join(views())}")
    name = args.format or view_for(args.output).name
    if name not in views():
        raise RenderError(f"there is no format {name!r}", hint=f"one of {', '.join(views())}")
    given = {"hardware": args.hardware}
    options = {option: given[option] for option in views()[name].needs}
    for option, value in options.items():
        if value is None:
            raise RenderError(
                f"{name} needs --{option}", hint=f"opgraph {option} lists what there is"
            )
    profile = profile_from(args)
    content = render(name, profile, **options)
    if args.output is not None:
        write_atomically(args.output, content)
        say(f"wrote {args.output}")
    elif isinstance(content, str):
        show(content)
    else:
        raise RenderError(
            f"{name} is binary, and a terminal shows text", hint="name a file with -o"
        )
    return status_of(profile)
