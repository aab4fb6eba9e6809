"""`opgraph draw MODEL -o FILE`: a picture of the graph."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import add_model, add_options, costed_from
from opgraph.cli.output import say, status_of
from opgraph.record.errors import RenderError
from opgraph.record.files import ensure_writable, write_atomically

EXAMPLES = """examples:
  opgraph draw resnet18 -o resnet18.svg
  opgraph draw bert-base-uncased --seq-len 128 -o bert.png --theme dark
  opgraph draw bert.json --module encoder.layer.0 --parameters -o layer.svg
  opgraph draw gpt2 --around 24 -o attention.svg
  opgraph draw yolov8n.pt --no-fold --depth 99 --paginate -o yolov8n.pdf"""


SHOWING = ("start", "end", "around", "context", "module", "depth", "fold", "parameters", "color_by",
           "direction", "theme", "source_url", "dpi", "paginate")  # fmt: skip


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    from opgraph.views.picture.formats import SUFFIXES

    parser.epilog = EXAMPLES
    add_model(parser)
    add_options(parser, "hardware", *SHOWING, "output", words={"output": ", ".join(SUFFIXES)})


def run(args: argparse.Namespace) -> int:
    from opgraph.views.picture.formats import SUFFIXES, form_of, written
    from opgraph.views.picture.mermaid import too_large
    from opgraph.views.picture.picture import Options, Picture

    if args.output is None:
        raise RenderError("which file?", hint=f"-o FILE: {', '.join(SUFFIXES)}")
    form = form_of(args.output)
    ensure_writable(args.output)
    chosen = {name: getattr(args, name) for name in SHOWING}
    options = Options(**{**chosen, "module": args.module or ""})
    if args.hardware is not None:
        from opgraph.hardware import device

        device(args.hardware)
    costed = costed_from(args)
    picture = Picture(costed, options)
    content = written(picture, form)
    write_atomically(args.output, content)
    for note in picture.notes:
        say(note)
    if form == "mermaid" and (reason := too_large(str(content), len(picture.drawing.edges))):
        say(reason)
    say(f"wrote {args.output}: {picture.summary()}")
    return status_of(costed.profile)
