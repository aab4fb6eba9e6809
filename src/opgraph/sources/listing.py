"""All that can be named, by source and family, and the names that fit a pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from opgraph.record.errors import SourceError
from opgraph.sources.registry import claimant, sources


@dataclass(frozen=True, slots=True)
class Listing:
    """A name, where it is from, its family there, and what to type for it: the bare name where that
    leads to this source, else with the source before it."""

    name: str
    source: str
    family: str
    spec: str


def listed(patterns: Sequence[str] = (), source: str | None = None) -> list[Listing]:
    """The names that fit any of the patterns (all of them without one), by source.

    A pattern with `*` or `?` must fit the whole name, another one a part of it; `source:pattern` asks one
    source. Raises `SourceError` when there is no such source.
    """
    if source is not None and source not in sources():
        raise SourceError(f"there is no source {source}", hint=f"one of {', '.join(sources())}")
    return [
        Listing(name, where, family, _spec(name, where))
        for where, name, family in _everything()
        if source in (None, where)
        and (not patterns or any(_fits(p, where, name) for p in patterns))
    ]


def is_pattern(text: str) -> bool:
    """Whether a text stands for many names."""
    return any(sign in text for sign in "*?[")


def _everything() -> Iterator[tuple[str, str, str]]:
    for where, source in sources().items():
        for name, family in sorted(source.names().items()):
            yield where, name, family


def _spec(name: str, where: str) -> str:
    found = claimant(name)
    return name if found is not None and found.name == where else f"{where}:{name}"


def _fits(pattern: str, where: str, name: str) -> bool:
    prefix, colon, rest = pattern.partition(":")
    if colon and prefix in sources():
        if prefix != where:
            return False
        pattern = rest
    pattern, name = pattern.lower(), name.lower()
    return fnmatchcase(name, pattern) if is_pattern(pattern) else pattern in name
