"""Suggestions for names that nobody knows."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from opgraph.record.errors import UnknownModel
from opgraph.sources import installed

if TYPE_CHECKING:
    from opgraph.sources.base import Source

PREFIXED = ("hf-type",)
"""Sources whose names are only found with their prefix."""


def nearest(name: str, count: int = 3, source: Source | None = None) -> list[str]:
    """The known names most like this one, over all sources or in one, as they are typed."""
    from opgraph.sources.registry import sources

    known: dict[str, str] = {}
    for one in sources().values() if source is None else (source,):
        bare = source is None and one.name not in PREFIXED
        for n in one.names():
            spec = n if bare else f"{one.name}:{n}"
            known.setdefault(n.lower(), spec)
            known.setdefault(n.lower().rpartition("/")[2], spec)
    close = difflib.get_close_matches(name.lower(), known, 2 * count, 0.6)
    return list(dict.fromkeys(known[n] for n in close))[:count]


def suggestion(name: str, source: Source | None = None) -> str:
    """One line that helps on from a name that is not known."""
    close = nearest(name.rpartition(":")[2], source=source)
    where = "" if source is None else f" --source {source.name}"
    named = (
        f"did you mean {', '.join(close)}?" if close else f"`opgraph models{where}` lists the names"
    )
    unknown_here = installed.absent() if source is None else None
    return f"{named} ({unknown_here})" if unknown_here else named


def unknown(spec: str, source: Source) -> UnknownModel:
    """What to raise for a name that was asked of one source, which has no such model."""
    return UnknownModel(f"{source.name} has no model {spec}", hint=suggestion(spec, source))
