"""`opgraph completion SHELL`: a script that completes commands and options in a shell."""

from __future__ import annotations

import argparse

from opgraph.cli.output import show
from opgraph.record.errors import MissingDependency

EXAMPLES = """examples:
  opgraph completion bash > ~/.local/share/bash-completion/completions/opgraph
  opgraph completion zsh > ~/.zfunc/_opgraph"""

SHELLS = ("bash", "zsh", "tcsh")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    from opgraph.cli import whole_parser

    try:
        import shtab
    except ImportError:
        raise MissingDependency("shtab", "completion") from None
    show(shtab.complete(whole_parser(), args.shell) + "\n")
    return 0
