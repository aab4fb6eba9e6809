"""`opgraph draw MODEL -o FILE`: a picture of the graph."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import add_model, add_options, costed_from, view_from, view_options
from opgraph.cli.output import answer, say, status_of
from opgraph.options import Stage
from opgraph.record.errors import RenderError
from opgraph.record.files import write_atomically
from opgraph.views import choices, heeded, views_of

EXAMPLES = """examples:
  opgraph draw resnet18 -o resnet18.svg
  opgraph draw bert-base-uncased --seq-len 128 -o bert.png --theme dark
  opgraph draw bert.json --module encoder.layer.0 --parameters -o layer.svg
  opgraph draw gpt2 --around 24 -o attention.svg
  opgraph draw yolov8n.pt --no-fold --depth 99 --paginate -o yolov8n.pdf"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_model(parser)
    own = heeded("costed", Stage.COSTING, Stage.NODES, Stage.VIEW, kind="picture")
    add_options(parser, *own, "output",
                words={"output": ", ".join(_suffixes()), **choices("costed", "picture")})  # fmt: skip


def _suffixes() -> list[str]:
    return [s for v in views_of("costed") if v.kind == "picture" for s in v.suffixes]


def run(args: argparse.Namespace) -> int:
    from opgraph.views.picture.diagrams import too_large
    from opgraph.views.picture.formats import FORMS, written
    from opgraph.views.picture.picture import Options, Picture

    if args.output is None:
        raise RenderError("which file?", hint=f"-o FILE: {', '.join(_suffixes())}")
    view = view_from(args, kind="picture", usual="svg")
    costed = costed_from(args)
    options = view_options(args, view)
    if view.name not in FORMS:  # a picture of something else than the graph
        answer(args.output, view.load()(costed, **options))
        return status_of(costed)
    picture = Picture(costed, Options(**options))
    content = written(picture, view.name)
    write_atomically(args.output, content)
    for note in picture.notes:
        say(note)
    if view.name == "mermaid" and (reason := too_large(str(content), len(picture.drawing.edges))):
        say(reason)
    say(f"wrote {args.output}: {picture.summary()}")
    return status_of(costed)
