"""The command line: one file a command, an explicit list of them, and one boundary for errors."""

from __future__ import annotations

import argparse
import atexit
import os
import re
import sys
from collections.abc import Container, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from opgraph.cli import output
from opgraph.cli.arguments import HelpAll, OptionParser, add_options
from opgraph.options.config import defaults
from opgraph.record.errors import OpgraphError, did_you_mean
from opgraph.version import __version__

__all__ = ["COMMANDS", "main", "process", "whole_parser"]

COMMANDS = {
    "profile": "the cost table and summary of a model",
    "explain": "ten facts about what a model costs, each with the command that says more",
    "explore": "the graph as text: an overview, then nodes by range and filter",
    "compare": "what changed between models or saved profiles, with gates for CI",
    "sweep": "the costs over batch, length and image sizes, and their exact formulas",
    "fit": "the largest batch, length and context that fit on a device",
    "serve": "throughput and latency of a model as an inference engine serves it",
    "plan": "the best layouts over many devices, of a step of training or to serve",
    "measure": "a run on this machine, its time on every operator beside the prediction",
    "join": "somebody's profiler trace on the operators of a model",
    "card": "the costs section of a model card",
    "view": "the interactive page, as one file that needs no network",
    "draw": "a picture of the graph",
    "check": "every tracer side by side, and other counters beside them",
    "export": "the graph in a format of another tool",
    "models": "what can be named, and what each costs",
    "survey": "many models, sizes, modes and devices at once, on a cluster if there is one",
    "atlas": "questions about what surveys found, in SQL",
    "hardware": "the devices known, and measuring the machine at hand",
    "cache": "the profiles that are kept, so that a name is traced once",
    "completion": "a script that completes commands and options in a shell",
}
"""Every command is the module `opgraph.cli.<name>` with `prepare_parser(parser)` and `run(args)`."""


def process() -> NoReturn:
    """`main` as a process, which ends with its exit status. Taking apart what torch and the model libraries
    made would take a quarter of the time; the system frees it at once. What torch warns its developers of
    stays out of a user's terminal unless TORCH_LOGS asks for it; what matters of a run is a remark."""
    os.environ.setdefault("TORCH_LOGS", "-all")
    status = main()
    atexit._run_exitfuncs()  # noqa: SLF001 - what the interpreter itself calls at its end
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # full, closed, or not there
            stream.flush()
    os._exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit status: 0 done; 1 a gate failed, or the graph is partial; 2 the
    request cannot be met; 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    output.open_streams()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what can follow
        from opgraph.cli.completion import complete

        complete(_parser(os.environ.get("COMP_LINE", "").split()[1:]))
    try:
        parser = _parser(arguments)
        args = parser.parse_args(arguments)
        args.arguments = arguments
        output.be_quiet(getattr(args, "quiet", False))
        if args.command is None:
            parser.print_help()
            return 0
        status: int = import_module(f"opgraph.cli.{args.command}").run(args)
        output.finish()
        if args.verbose:
            output.say_what_it_took()
        return status
    except OpgraphError as error:
        if "--debug" in arguments:
            raise
        return _complain(str(error), error.hint)
    except KeyboardInterrupt:
        return _complain("interrupted", None, status=130)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing is wrong, and nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if "--debug" in arguments:
            raise
        if isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY):
            return _complain("there is not enough memory", _LESS_MEMORY)
        first = str(error).strip().splitlines()[:1]
        return _complain(
            f"{type(error).__name__}: {first[0] if first else 'no message'}",
            "this is not expected; run it again with --debug for the traceback",
        )


def _complain(message: str, hint: str | None, status: int = 2) -> int:
    from opgraph.views.terminal import safe

    output.insist(f"error: {safe(' '.join(message.split()), 500)}")
    if hint:
        output.insist(f"hint: {safe(' '.join(hint.split()), 500)}")
    return status


_NO_MEMORY = (
    "failed to map segment",
    "annot allocate memory",
    "can't allocate memory",
    "bad_alloc",
)
"""What loaders and allocators say when there is none."""
_LESS_MEMORY = (
    "a smaller batch size or image takes less; torch itself maps some gigabytes (see `ulimit -v`), "
    "and a saved profile (.json) opens without it"
)


class _Parser(OptionParser):
    """A parser whose complaints look like all others."""

    def error(self, message: str, hint: str | None = None) -> None:  # type: ignore[override]
        raise SystemExit(_complain(message, hint or f"{self.prog} --help"))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        what = "command" if action.dest == "command" else action.dest
        close = did_you_mean(str(value), action.choices, 1)
        self.error(f"there is no {what} {value}", close or f"one of {', '.join(action.choices)}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """What is not known is an error of the command that does not know it, which knows what is close."""
        found, unknown = super().parse_known_args(args, namespace)
        several = [a.dest for a in self._actions if a.nargs == "+" and not a.option_strings]
        if several and not any(word.startswith("-") for word in unknown):
            getattr(found, several[0]).extend(unknown)  # MODEL --option VALUE MODEL
            return found, []
        if unknown:
            spaced = _spaced_shape(list(args), unknown, self._option_string_actions)
            if spaced is not None:
                self.error(f"a shape is one word, and {' '.join(unknown)} stands apart", spaced)
            known = self._option_string_actions
            names = [a.partition("=")[0] for a in unknown if a.startswith("--")]
            takers = _takers(names[:1])
            tried = [(n, 0.75) for n in names] + [
                (n, 0.9) for also in takers.values() for n in also
            ]
            close = dict.fromkeys(c for n in tried if (c := did_you_mean(n[0], known, 1, n[1])))
            hint = f"{' '.join(close)} ({self.prog} --help)" if close else None
            if takers:
                self.error(
                    f"{self.prog} takes no {names[0]}", hint or f"it is for {', '.join(takers)}"
                )
            if any(word.startswith("-") for word in unknown):
                self.error(f"unrecognized arguments: {' '.join(unknown)}", hint)
            ends = [word for word in re.split("[-:]", unknown[0]) if word.isdigit()]
            if "--start" in known and ends:
                hint = f"--start {ends[0]} --end {ends[-1]} is a range of nodes"
            taken = [f"one {a.metavar or a.dest}" for a in self._actions if not a.option_strings]
            takes = " and ".join(taken) or "no argument"
            self.error(f"{self.prog} takes {takes}, and {unknown[0]:.60} is one more", hint)
        return found, unknown


def _takers(flags: list[str]) -> dict[str, list[str]]:
    """The commands that take an option, each with the other names that it has there."""
    found: dict[str, list[str]] = {}
    for name in COMMANDS:
        parser: Any = OptionParser(add_help=False)
        _prepare(name, parser)
        for flag in flags:
            if flag in parser.flags:
                found[name] = [f for f in parser.flags[flag].option_strings if f != flag]
    return found


def _spaced_shape(given: list[str], unknown: list[str], options: Container[str]) -> str | None:
    """A shape whose sizes are words of their own (`--input-shape 1 3 384 384`, or without the option where
    a command has it), in one; None for others."""
    if not all(size.isdecimal() for size in unknown):
        return None
    end = next((i for i in range(len(given)) if given[i : i + len(unknown)] == unknown), 0)
    if end > 1 and given[end - 1].isdecimal():
        return f"{given[end - 2]} {'x'.join(given[end - 1 : end] + unknown)}"
    shape = "--input-shape"
    return f"{shape} {'x'.join(unknown)}" if len(unknown) > 1 and shape in options else None


def _parser(arguments: list[str], *, every: bool = False) -> OptionParser:
    parser = _Parser(
        prog="opgraph",
        description="The operator graph of any PyTorch model, with the true cost of every operator.",
        epilog="example: opgraph profile resnet18",
    )
    parser.add_argument("--version", action="version", version=f"opgraph {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    asked = next((a for a in arguments if not a.startswith("-")), "")
    begun = asked in COMMANDS and asked == arguments[0]  # nothing is said of the other commands
    for name in [asked] if begun else COMMANDS:
        text = COMMANDS[name]
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.",
                                      formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
        if every or name == asked:
            _prepare(name, command)
            command.settings = {} if every else defaults(Path.cwd())
    return parser


def whole_parser() -> OptionParser:
    """The parser with all commands prepared, for what needs to see them all."""
    return _parser([], every=True)


def _prepare(name: str, command: OptionParser) -> None:
    """A command's own arguments, and those that all commands have."""
    import_module(f"opgraph.cli.{name}").prepare_parser(command)
    add_options(command, "verbose", "quiet", "debug")
    command.add_argument("--help-all", action=HelpAll, nargs=0, dest="help", default=argparse.SUPPRESS,
                         help="show every option, by the stage that heeds it")  # fmt: skip
