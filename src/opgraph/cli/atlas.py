"""`opgraph atlas`: questions about what surveys found, in SQL."""

from __future__ import annotations

import argparse

from opgraph.cli.arguments import add_options, form_of
from opgraph.cli.output import color, say, show, tell, width
from opgraph.record.errors import RenderError

EXAMPLES = """examples:
  opgraph atlas
  opgraph atlas "select name, params, flops from models where task = 'detection'
                 order by latency_h100 limit 10"
  opgraph atlas --dataset zoo "select spec, reason from cases where not ok" --format csv
  opgraph atlas --dataset zoo -o zoo.html"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "sql", metavar="SQL", nargs="?", help="one SELECT; what is in it if not given"
    )
    add_options(parser, "dataset", "json", "format", "output", words={
        "output": "write the rows, or without SQL all models, as csv, json, md or parquet; without SQL "
        "also as a page (.html), or all tables into a folder",
    })  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from opgraph.surveying.sql import Atlas, write_answer
    from opgraph.surveying.table import about_text, answer_text

    path, args.output = args.output, None
    form = form_of(args)
    if path is not None and form is not None:
        raise RenderError(f"{form[1:]} and --output are two answers", hint="ask for one of them")
    atlas = Atlas(*args.dataset)
    if path is not None:
        if args.sql is None:
            atlas.save(path)
        else:
            write_answer(atlas.sql(args.sql), path)
        say(f"wrote {path}")
        return 0
    if args.sql is None and form is None:
        show(about_text(atlas, color(), width()))
        return 0
    found = atlas.sql(args.sql or "select * from models")
    tell(form, lambda: answer_text(found, color(), width()), found.records)
    return 0
