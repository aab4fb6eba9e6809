"""What becomes of many models: a survey goes over models, sizes, modes and devices on Ray, and an atlas
answers questions about what was found."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opgraph.surveying.job import survey
    from opgraph.surveying.sql import Answer, Atlas, atlas

__all__ = ["Answer", "Atlas", "atlas", "survey"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'job' if name == 'survey' else 'sql'}"), name)
