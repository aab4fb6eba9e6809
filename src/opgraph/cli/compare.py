"""`opgraph compare A B [C …]`: what changed, with gates for continuous integration."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from opgraph.cli.arguments import add_model, add_options, costed_from, profile_of
from opgraph.cli.output import color, insist, say, show, status_of, width
from opgraph.record.errors import RenderError
from opgraph.record.files import dumps, ensure_writable, suffix_of, write_atomically

if TYPE_CHECKING:
    from opgraph.analysis.compare.comparison import ComparisonRecord
    from opgraph.analysis.costed import CostedRecord

EXAMPLES = """examples:
  opgraph compare resnet18 resnet50
  opgraph compare bert-base-uncased 'bert-base-uncased --seq-len 512' --by op
  opgraph compare gpt2 'gpt2 --dtype bfloat16' 'gpt2 --batch-size 8'
  opgraph compare main.json branch.json --fail-if 'flops > +2%' --fail-if 'coverage < 100%'
  opgraph compare main.json branch.json --markdown > comment.md"""

SUFFIXES = (".txt", ".md", ".json")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="two or more: a name, or a saved profile (.json); options of its own go with it in "
        "quotes: 'bert-base-uncased --seq-len 512'",
    )
    add_model(parser, positional=False)
    add_options(parser, "hardware", "by", "depth", "fail_if", "json", "markdown", "output",
                words={"output": ", ".join(SUFFIXES)})  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from opgraph.analysis.compare.comparison import compared
    from opgraph.analysis.compare.gates import parse_gate
    from opgraph.hardware import device

    form = _form(args)
    if form == ".md" and args.by != "module":
        raise RenderError(f"Markdown says what changed by module, not by {args.by}",
                          hint="--by module, or -o FILE.txt")  # fmt: skip
    if args.output is not None:
        ensure_writable(args.output)
    chosen = None if args.hardware is None else device(args.hardware)
    for gate in args.fail_if:
        parse_gate(gate, chosen)  # a gate that cannot be read should not wait for the tracing
    if len(args.models) < 2:
        raise RenderError("there is nothing to compare with", hint="opgraph compare A B")
    models = [costed_from(args, profile_of(spec, args)) for spec in args.models]
    comparison = compared(models, _labels(args.models, models), args.fail_if)
    text = _drawn(comparison, args, form)
    if args.output is not None:
        write_atomically(args.output, text)
        say(f"wrote {args.output}")
    else:
        show(text)
    for broken in comparison.broken:
        from opgraph.views.text.compare import verdict

        insist(f"gate broken: {broken.gate.text} ({verdict(comparison, broken)})")
    return 1 if comparison.broken else max(status_of(m.profile) for m in models)


def _form(args: argparse.Namespace) -> str | None:
    if args.output is not None:
        return suffix_of(args.output, SUFFIXES, "compare")
    return ".json" if args.json else ".md" if args.markdown else None


def _labels(specs: list[str], models: list[CostedRecord]) -> list[str] | None:
    """What was typed, where names alone would not tell the profiles apart."""
    return specs if len({m.profile.model.name for m in models}) < len(models) else None


def _drawn(comparison: ComparisonRecord, args: argparse.Namespace, form: str | None) -> str:
    from opgraph.views.text.compare import comparison_markdown, comparison_text

    if form == ".json":
        return dumps(comparison.to_dict(), indent=1) + "\n"
    if form == ".md":
        return comparison_markdown(comparison, depth=args.depth)
    plain = form == ".txt"
    return comparison_text(
        comparison, color=color() and not plain, width=width(), by=args.by, depth=args.depth
    )
