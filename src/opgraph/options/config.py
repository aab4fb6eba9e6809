"""Defaults of the command line from `[tool.opgraph]` in the nearest pyproject.toml.

[tool.opgraph]
hardware = "h100-sxm"
depth = 4
theme = "dark"
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from opgraph.options.fields import OPTIONS, SETTINGS
from opgraph.record.errors import InputError

_FILE = "pyproject.toml"
_WORD = b"opgraph"


@cache
def _parsed(data: bytes) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(data.decode("utf-8"))


def defaults(folder: Path) -> dict[str, Any]:
    """The settings in force in a folder: those of the nearest pyproject.toml in it or above.

    Raises `InputError` for a key that is not known, or a value that the option cannot have.
    """
    file = next((f for f in (p / _FILE for p in (folder, *folder.parents)) if f.is_file()), None)
    if file is None:
        return {}
    try:
        data = file.read_bytes()
    except OSError:
        return {}
    # Most have no such table, and parsing a file takes longer than looking for a word in it.
    if _WORD not in data:
        return {}
    try:
        tools = _parsed(data).get("tool", {})
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    table = tools.get("opgraph", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise InputError(f"{file}: tool.opgraph is {table!r}, not a table", hint="[tool.opgraph]")
    for key in table:
        if key not in SETTINGS:
            known = ", ".join(SETTINGS)
            raise InputError(f"{file}: tool.opgraph has no {key}", hint=f"it has {known}")
    return {
        key: OPTIONS[key].check(value, f"{file}: tool.opgraph.{key}")
        for key, value in table.items()
    }
