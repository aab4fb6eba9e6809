"""`opgraph completion SHELL`: a script that completes commands, options and their values in a shell.

The shell asks opgraph at each tab, by argcomplete: so names of models, devices and files are those that are
there. Nothing is imported for it that a listing does not need.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from opgraph.cli.output import show
from opgraph.options import OPTIONS
from opgraph.options.kinds import Named
from opgraph.record.errors import MissingDependency

EXAMPLES = """examples:
  opgraph completion bash > ~/.local/share/bash-completion/completions/opgraph
  opgraph completion zsh > ~/.zfunc/_opgraph
  opgraph completion fish > ~/.config/fish/completions/opgraph.fish"""

SHELLS = ("bash", "zsh", "fish")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise MissingDependency("argcomplete", "completion") from None
    show(shellcode(["opgraph"], shell=args.shell) + "\n")
    return 0


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks what can follow, and end."""
    import argcomplete

    for one in _parsers(parser):
        for action in one._actions:  # noqa: SLF001 - there is no public list
            values = _VALUES.get(action.dest)
            option = OPTIONS.get(action.dest)
            if values is not None:
                action.completer = values  # type: ignore[attr-defined]
            elif option is not None and isinstance(option.kind, Named) and option.kind.allowed:
                allowed = option.kind.allowed
                action.choices = [f"{name}={v}" for name, every in allowed.items() for v in every]
    argcomplete.autocomplete(parser, always_complete_options="long")


def _parsers(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from action.choices.values()


def _models(prefix: str, **_: object) -> list[str]:
    """Names that begin so, and files and folders, of which saved profiles and code are models, too."""
    from argcomplete.completers import FilesCompleter

    from opgraph.sources.known import typed

    files = FilesCompleter(("json", "py", "pt", "pth", "pt2", "yaml"))
    return [*typed(prefix), *files(prefix)]


def _devices(**_: object) -> list[str]:
    from opgraph.hardware.devices import files

    return sorted(files())


def _formats(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    from opgraph.cli.export import formats
    from opgraph.views.tables import FORMS

    return formats() if parsed_args.command == "export" else [*FORMS]


def _sources(**_: object) -> list[str]:
    from opgraph.sources.known import sources

    return sources()


def _tasks(**_: object) -> list[str]:
    from opgraph.sources.known import tasks

    return tasks()


_VALUES: dict[str, Callable[..., list[str]]] = {
    "model": _models, "specs": _models, "models": _models, "patterns": _models, "against": _models,
    "hardware": _devices, "device": _devices, "source": _sources, "task": _tasks,
    "format": _formats,
}  # fmt: skip
"""Of which arguments the values are listed, by what; those of a closed set are argparse's own choices."""
