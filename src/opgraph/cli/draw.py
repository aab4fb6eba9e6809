"""`opgraph draw MODEL -o FILE`: a picture of the graph."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import add_model_arguments, profile_from
from opgraph.cli.output import say, status_of
from opgraph.record.files import ensure_writable, write_atomically

EXAMPLES = """examples:
  opgraph draw resnet18 -o resnet18.svg
  opgraph draw bert-base-uncased --seq-len 128 -o bert.png --theme dark
  opgraph draw bert.json --module encoder.layer.0 --parameters -o layer.svg
  opgraph draw gpt2 --around 24 -o attention.svg
  opgraph draw yolov8n.pt --no-fold --depth 99 --paginate -o yolov8n.pdf"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    from opgraph.views.picture.picture import DIRECTIONS, SUFFIXES, THEMES

    parser.epilog = EXAMPLES
    add_model_arguments(parser)
    what = parser.add_argument_group("what is drawn")
    what.add_argument("--depth", type=int, metavar="N",
                      help="close modules N levels below the root; by default the deepest level with "
                           "at most about 150 boxes")  # fmt: skip
    what.add_argument("--no-fold", action="store_true", help="draw repeated modules one by one")
    what.add_argument(
        "--module", metavar="PATH", default="", help="one module, its neighbours as stubs"
    )
    what.add_argument("--start", type=int, metavar="N", help="from this node on")
    what.add_argument("--end", type=int, metavar="M", help="up to this node")
    what.add_argument("--around", type=int, metavar="N", help="this node and its neighbours")
    what.add_argument("--context", type=int, metavar="K", help="how many on each side (10)")
    what.add_argument("--parameters", action="store_true", help="parameters as boxes of their own")
    how = parser.add_argument_group("how it looks")
    how.add_argument("--color-by", default="bottleneck", metavar="WHAT",
                     help="bottleneck (default), op, flops, bytes, memory, dtype, time, "
                          "fusion")  # fmt: skip
    how.add_argument("--hardware", metavar="DEVICE",
                     help="judge bottlenecks and predict time there (opgraph hardware "
                          "lists them)")  # fmt: skip
    how.add_argument("--direction", choices=DIRECTIONS, default="down")
    how.add_argument("--theme", choices=THEMES, default="auto",
                     help="auto follows the reader's setting, where the format can")  # fmt: skip
    how.add_argument("--source-url", metavar="URL",
                     help="links to source lines, with {path} and {line} in it")  # fmt: skip
    how.add_argument(
        "--dpi", type=float, default=144.0, metavar="N", help="dots an inch of a PNG (144)"
    )
    how.add_argument("--paginate", action="store_true", help="break a PDF into pages")
    how.add_argument("-o", "--output", metavar="FILE", required=True, help=", ".join(SUFFIXES))


def run(args: argparse.Namespace) -> int:
    from opgraph.views.picture.mermaid import too_large
    from opgraph.views.picture.picture import Options, Picture, form_of

    form = form_of(args.output)
    ensure_writable(args.output)
    options = Options(
        depth=args.depth,
        fold=not args.no_fold,
        module=args.module,
        start=args.start,
        end=args.end,
        around=args.around,
        context=args.context,
        parameters=args.parameters,
        color_by=args.color_by,
        direction=args.direction,
        theme=args.theme,
        hardware=args.hardware,
        source_url=args.source_url,
        dpi=args.dpi,
        paginate=args.paginate,
    )
    profile = profile_from(args)
    picture = Picture(profile, options)
    content = picture.render(form)
    write_atomically(args.output, content)
    for note in picture.notes:
        say(note)
    if form == "mermaid" and (reason := too_large(str(content), len(picture.drawing.edges))):
        say(reason)
    say(f"wrote {args.output}: {picture.summary()}")
    return status_of(profile)
