"""The JSON Schemas of what `--json` prints, one file for each command. `python benchmarks/schemas.py` makes
them. The version is raised when a key goes or changes its meaning; new keys may come without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "VERSION", "schema"]

FOLDER = Path(__file__).parent
VERSION = 1
_SAME = {"measure": "profile", "join": "profile"}
"""Commands that print what another does."""


def schema(command: str) -> dict[str, Any]:
    """The schema of what `opgraph COMMAND --json` prints. Raises `KeyError` for one that prints none."""
    file = FOLDER / f"{_SAME.get(command, command)}.json"
    if not file.is_file():
        raise KeyError(command)
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found
