"""Suggestions for names that nobody knows."""

from __future__ import annotations

import difflib

PREFIXED = ("hf-type",)
"""Sources whose names are only found with their prefix."""


def nearest(name: str, count: int = 3) -> list[str]:
    """The known names most like this one, over all sources."""
    from opgraph.sources.registry import sources

    known: dict[str, str] = {}
    for source in sources().values():
        bare = source.name not in PREFIXED
        for n in source.names():
            spec = n if bare else f"{source.name}:{n}"
            known.setdefault(n.lower(), spec)
            known.setdefault(n.lower().rpartition("/")[2], spec)
    close = difflib.get_close_matches(name.lower(), known, 2 * count, 0.6)
    return list(dict.fromkeys(known[n] for n in close))[:count]


def suggestion(name: str) -> str:
    """One line that helps on from a name that is not known."""
    close = nearest(name.rpartition(":")[2])
    return "did you mean " + ", ".join(close) + "?" if close else "`opgraph models` lists the names"
