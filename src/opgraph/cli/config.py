"""Defaults of the command line from `[tool.opgraph]` in the nearest pyproject.toml.

[tool.opgraph]
hardware = "h100-sxm"
depth = 4
theme = "dark"
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from opgraph.record.errors import InputError

KEYS: dict[str, type] = {"hardware": str, "depth": int, "theme": str}
"""What can be set. Nothing that runs code or writes files: a repository brings its own pyproject.toml."""

_FILE = "pyproject.toml"
_TABLE = b"tool.opgraph"


def defaults(folder: Path) -> dict[str, Any]:
    """The settings in force in a folder: those of the nearest pyproject.toml in it or above.

    Raises `InputError` for a key that is not known, or a value of another type.
    """
    file = next((f for f in (p / _FILE for p in (folder, *folder.parents)) if f.is_file()), None)
    if file is None:
        return {}
    try:
        data = file.read_bytes()
    except OSError:
        return {}
    # Most have no such table, and parsing a file takes longer than looking for a word in it.
    if _TABLE not in data:
        return {}
    import tomllib

    try:
        tools = tomllib.loads(data.decode("utf-8")).get("tool", {})
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    table = tools.get("opgraph", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise InputError(f"{file}: tool.opgraph is {table!r}, not a table", hint="[tool.opgraph]")
    for key, value in table.items():
        if key not in KEYS:
            raise InputError(f"{file}: tool.opgraph has no {key}", hint=f"it has {', '.join(KEYS)}")
        if type(value) is not KEYS[key]:
            raise InputError(f"{file}: tool.opgraph.{key} is {value!r}, not {KEYS[key].__name__}")
    return dict(table)


def apply(parser: argparse.ArgumentParser, settings: dict[str, Any]) -> None:
    """Make settings the defaults of a command, as far as it has such options."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of its arguments
        if action.dest in settings:
            value = settings[action.dest]
            if action.choices is not None and value not in action.choices:
                known = ", ".join(map(str, action.choices))
                raise InputError(f"tool.opgraph.{action.dest} is {value!r}", hint=f"one of {known}")
            action.default = value
