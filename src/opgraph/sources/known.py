"""What is known of names before anything is traced or installed: family, task, parameters, FLOPs, licence.

It stands in `known.csv`, which `python benchmarks/known.py` makes. Whoever asks gets `Facts`, wherever
they are from.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["FILE", "Facts", "facts", "names", "sources", "typed"]

FILE = Path(__file__).with_name("known.csv")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a name. `flops` are those of one call with `inputs`, in matrix products and
    convolutions; None is unknown. `licence` is that of the published weights, or of the code that makes the
    model where it says so; empty is unknown."""

    family: str = ""
    task: str = ""
    parameters: int | None = None
    flops: int | None = None
    inputs: str = ""
    licence: str = ""


NOTHING = Facts()


@cache
def _table() -> dict[str, dict[str, Facts]]:
    found: dict[str, dict[str, Facts]] = {}
    with FILE.open(encoding="utf-8", newline="") as file:
        for source, name, family, task, parameters, flops, inputs, licence in csv.reader(file):
            known = Facts(family, task, _number(parameters), _number(flops), inputs, licence)
            found.setdefault(source, {})[name] = known
    return found


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def facts(source: str, name: str) -> Facts:
    """What is known of a name of a source."""
    return _table().get(source, {}).get(name, NOTHING)


def sources() -> list[str]:
    """The sources that have names in the table."""
    return list(_table())


def tasks() -> list[str]:
    """What the names are for."""
    return sorted({f.task for rows in _table().values() for f in rows.values()} - {""})


def typed(prefix: str = "") -> list[str]:
    """All names that begin so as they are typed: bare, without those that are only a part or a type of a
    model, or with their source in front, where the prefix has one."""
    source, colon, _ = prefix.partition(":")
    if colon:
        return [n for n in (f"{source}:{name}" for name in names(source)) if n.startswith(prefix)]
    bare = (n for s, rows in _table().items() if s not in ("hf-type", "diffusers") for n in rows)
    return [n for n in bare if n.startswith(prefix)]


def names(source: str) -> Mapping[str, str]:
    """The names of a source with the family of each, for where its library is not installed."""
    return {name: known.family for name, known in _table().get(source, {}).items()}
