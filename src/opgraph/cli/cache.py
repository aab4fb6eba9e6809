"""`opgraph cache`: where profiles of names are kept, how many there are, and removing them."""

from __future__ import annotations

import argparse
from collections import Counter

from opgraph.cli.arguments import add_options, form_of
from opgraph.cli.output import say, tell
from opgraph.record.errors import RenderError
from opgraph.record.units import plural, size
from opgraph.views.terminal import safe

EXAMPLES = """examples:
  opgraph cache
  opgraph cache --clear"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_options(parser, "clear", "json", "format")


def run(args: argparse.Namespace) -> int:
    from opgraph.api import cache

    where, form = cache.folder(), form_of(args)
    if args.clear and form is not None:
        raise RenderError("--clear prints no table", hint="leave out --json or --format")
    if where is None and (args.clear or form is None):
        say(f"profiles are not kept: {cache.VARIABLE}=0, or there is no home folder")
        return 0
    if args.clear:
        say(f"{plural(cache.clear(), 'profile')} removed")
        return 0
    found = [] if where is None else cache.used()
    took = size(sum(each.bytes for each in found))
    text = f"{where}: {plural(len(found), 'profile')}, {took} of {size(cache.MOST)}\n"
    models = Counter(safe(each.model) or "unknown" for each in found)
    text += "".join(f"  {name}" + f" × {n}" * (n > 1) + "\n" for name, n in models.items())
    tell(form, lambda: text, lambda: [{**k._asdict(), "path": str(k.path)} for k in found])
    return 0
