"""`opgraph export MODEL -o FILE`: the graph in a format of another tool, by suffix or by name."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import (
    add_model,
    add_options,
    costed_from,
    ensure_nothing_is_lost,
    options_from,
    refuse_unheeded,
    view_from,
    view_options,
)
from opgraph.cli.output import answer, progress, say, say_remarks, status_of
from opgraph.exporting import EXPORTERS, Exporter, exporter_for
from opgraph.options import Options, Stage, names
from opgraph.record.errors import RenderError
from opgraph.record.files import write_atomically
from opgraph.views import heeded, views_of

EXAMPLES = """examples:
  opgraph export resnet18 -o resnet18.csv
  opgraph export bert-base-uncased.json -o bert.json --format model-explorer
  opgraph export gpt2 --format mermaid > gpt2.mmd
  opgraph export gpt2 --hardware h100-sxm -o gpt2.trace.json
  opgraph export resnet18 -o resnet18.scalesim.csv
  opgraph export resnet18 -o graph.py
  opgraph export bert-base-uncased -o bert.onnx"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    formats = ", ".join(f"{v.name} ({', '.join(v.suffixes)})" for v in views_of("costed"))
    models = ", ".join(f"{e.name} ({e.suffix})" for e in EXPORTERS)
    parser.epilog = (
        f"formats of a profile: {formats}\nformats that need the model: {models}\n\n{EXAMPLES}"
    )
    add_model(parser)
    parser.set_defaults(on_paper=True)
    own = (*names(Stage.COSTING), *heeded("costed", Stage.NODES, Stage.VIEW))
    add_options(parser, *own, "format", "output",
                words={"output": "stdout when it is not given",
                       "format": "instead of what the file's suffix means"})  # fmt: skip


def run(args: argparse.Namespace) -> int:
    if args.format is None and args.output is None:
        raise RenderError("which format?", hint=f"-o FILE, or --format {'|'.join(formats())}")
    exporter = exporter_for(args.output, args.format)
    if exporter is not None and not _is_view(args):
        return _export(exporter, args)
    if args.format is not None and args.format not in formats():
        raise RenderError(
            f"there is no format {args.format!r}", hint=f"one of {', '.join(formats())}"
        )
    view = view_from(args, usual="table")
    costed = costed_from(args)
    answer(args.output, view.load()(costed, **view_options(args, view)))
    for line in view.remarks(costed):
        say(line)
    return status_of(costed, shown=view.name in ("table", "markdown"))


def _is_view(args: argparse.Namespace) -> bool:
    """Whether the file's name ends as a view's does; an exporter knows its last part alone."""
    name = (args.output or "").lower()
    ends = [s for v in views_of("costed") for s in v.suffixes]
    return args.format is None and name.endswith(tuple(ends))


def formats() -> list[str]:
    """The names of all formats, those of a profile and those that need the model."""
    return [*(v.name for v in views_of("costed")), *(e.name for e in EXPORTERS)]


def _export(exporter: Exporter, args: argparse.Namespace) -> int:
    """A format that needs the model: it is built, captured and written, and no profile is made."""
    from opgraph.api.pipeline import prepared
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
    if args.mode != "infer":
        raise RenderError(
            f"{exporter.name} is of one forward, not of the mode {args.mode}",
            hint="json, csv and other views of a profile take every mode",
        )
    refuse_unheeded(args, {*names(Stage.BUILD, Stage.INPUTS), "mode", "tracer"}, exporter.name)
    ensure_nothing_is_lost(args, "written by opgraph" if exporter.name == "python" else None)
    options = Options(**options_from(args))
    with progress():
        model, example = prepared(args.model, options=options)
        say_remarks((*model.info.notes, *example.notes))
        made = exporter.run(model, example, tracer)
    write_atomically(args.output, made.content)
    say(": ".join(filter(None, (f"wrote {args.output}", "; ".join(made.remarks)))))
    return 0
