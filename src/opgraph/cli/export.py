"""`opgraph export MODEL -o FILE`: the graph in a format of another tool, by suffix or by name."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

from opgraph.cli.arguments import add_model, add_options, costed_from, options_from
from opgraph.cli.output import say, show, status_of
from opgraph.exporting import EXPORTERS, Exporter, exporter_for
from opgraph.record.errors import RenderError
from opgraph.record.files import ensure_writable, write_atomically
from opgraph.views import view_for, view_named, views_of

EXAMPLES = """examples:
  opgraph export resnet18 -o resnet18.csv
  opgraph export bert-base-uncased.json -o bert.json --format model-explorer
  opgraph export gpt2 --format mermaid > gpt2.mmd
  opgraph export gpt2 --hardware h100-sxm -o gpt2.trace.json
  opgraph export resnet18 -o graph.py
  opgraph export bert-base-uncased -o bert.onnx"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    formats = ", ".join(f"{v.name} ({', '.join(v.suffixes)})" for v in views_of("costed"))
    models = ", ".join(f"{e.name} ({e.suffix})" for e in EXPORTERS)
    parser.epilog = (
        f"formats of a profile: {formats}\nformats that need the model: {models}\n\n{EXAMPLES}"
    )
    add_model(parser)
    add_options(parser, "hardware", "format", "output",
                words={"output": "stdout when it is not given"})  # fmt: skip


def run(args: argparse.Namespace) -> int:
    if args.format is None and args.output is None:
        raise RenderError("which format?", hint=f"-o FILE, or --format {'|'.join(_formats())}")
    exporter = exporter_for(args.output, args.format)
    if exporter is not None:
        return _export(exporter, args)
    if args.format is not None and args.format not in _formats():
        raise RenderError(
            f"there is no format {args.format!r}", hint=f"one of {', '.join(_formats())}"
        )
    view = view_named(args.format) if args.format else view_for(args.output)
    if args.hardware is None and "hardware" in view.needs:
        raise RenderError(
            f"{view.name} needs --hardware", hint="opgraph hardware lists what there is"
        )
    if args.hardware is not None and "hardware" not in view.costs:
        raise RenderError(f"{view.name} is the same on every device", hint="leave out --hardware")
    if args.output is not None:
        ensure_writable(args.output)
    costed = costed_from(args)
    content = view.load()(costed)
    if args.output is not None:
        write_atomically(args.output, content)
        say(f"wrote {args.output}")
    elif isinstance(content, str):
        show(content)
    else:
        raise RenderError(
            f"{view.name} is binary, and a terminal shows text", hint="name a file with -o"
        )
    return status_of(costed.profile)


def _formats() -> list[str]:
    """The names of all formats, those of a profile and those that need the model."""
    return [*(v.name for v in views_of("costed")), *(e.name for e in EXPORTERS)]


def _export(exporter: Exporter, args: argparse.Namespace) -> int:
    """A format that needs the model: it is built, captured and written, and no profile is made."""
    from opgraph.api.pipeline import prepared
    from opgraph.options import Options
    from opgraph.record.loading import is_saved_profile

    if args.output is None:
        raise RenderError(f"{exporter.name} is written to a file", hint="name one with -o")
    if is_saved_profile(args.model):
        raise RenderError(
            f"{exporter.name} needs the model itself", hint="name the model, not a profile"
        )
    tracer = exporter.tracers[0] if args.tracer == "auto" else args.tracer
    if tracer not in exporter.tracers:
        raise RenderError(
            f"{exporter.name} is not written from {tracer}",
            hint=f"one of {', '.join(exporter.tracers)}",
        )
    ensure_writable(args.output)
    options = Options(**options_from(args))
    if options.mode != "infer":
        raise RenderError(
            f"{exporter.name} is of one forward, not of the mode {options.mode}",
            hint="json, csv and other views of a profile take every mode",
        )
    if options.fragment != "all" or options.concrete_args:
        option = "--fragment" if options.fragment != "all" else "--concrete-args"
        raise RenderError(
            f"{option} is for profiles, and {exporter.name} is of the whole forward",
            hint="leave it out; --tracer chooses how the graph is found",
        )
    with redirect_stdout(sys.stderr):
        model, example = prepared(args.model, options=options)
        made = exporter.run(model, example, tracer)
    write_atomically(args.output, made.content)
    say(
        f"wrote {args.output}: {'; '.join(made.remarks)}"
        if made.remarks
        else f"wrote {args.output}"
    )
    return 0
