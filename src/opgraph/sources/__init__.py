"""From what a person names to a module that can be traced, without its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opgraph.sources.base import BuildOptions, Model, Source

if TYPE_CHECKING:
    from opgraph.sources.registry import resolve, sources

__all__ = ["BuildOptions", "Model", "Source", "resolve", "sources"]


def __getattr__(name: str) -> Any:
    if name not in ("resolve", "sources"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opgraph.sources import registry

    return getattr(registry, name)
