"""From what a person names to a module that can be traced, without its weights."""

from __future__ import annotations

from opgraph.sources.base import BuildOptions, Model, Source
from opgraph.sources.registry import resolve, sources

__all__ = ["BuildOptions", "Model", "Source", "resolve", "sources"]
