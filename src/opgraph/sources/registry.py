"""The registry of sources, and the resolution of what a person names to a `Model`.

A bare name goes to the first source that claims it, in the order of `_built_in`; `source:name` asks one
source. Other packages add theirs through the entry point group `opgraph.sources`.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from opgraph.errors import UnknownModel
from opgraph.sources.base import BuildOptions, Model, Source
from opgraph.sources.diffusers import DiffusersSource
from opgraph.sources.torchvision import TorchvisionSource
from opgraph.sources.transformers import HuggingFaceSource, ModelTypeSource
from opgraph.sources.ultralytics import UltralyticsSource

if TYPE_CHECKING:
    from torch import nn

GROUP = "opgraph.sources"


def _built_in() -> tuple[Source, ...]:
    return (
        TorchvisionSource(),
        HuggingFaceSource(),
        UltralyticsSource(),
        DiffusersSource(),
        ModelTypeSource(),
    )


@cache
def sources() -> dict[str, Source]:
    """All sources by name, in the order in which bare names are looked up."""
    found: dict[str, Source] = {source.name: source for source in _built_in()}
    for point in entry_points(group=GROUP):
        source = point.load()()
        found.setdefault(source.name, source)
    return found


def resolve(spec: str | nn.Module, options: BuildOptions | None = None) -> Model:
    """Build the model that `spec` names, or take the module that it is.

    Raises `UnknownModel` (with the nearest names), `MissingDependency`, or another `SourceError`.
    """
    options = options or BuildOptions()
    if not isinstance(spec, str):
        from opgraph.sources.objects import from_module

        return from_module(spec)
    source, rest = find(spec)
    return source.build(rest, options)


def find(spec: str) -> tuple[Source, str]:
    """The source for a name, and the name without the source's prefix. Raises `UnknownModel`."""
    prefix, _, rest = spec.partition(":")
    if rest and prefix in sources():
        return sources()[prefix], rest
    for source in sources().values():
        if source.claims(spec):
            return source, spec
    raise UnknownModel(f"no source knows a model {spec}", hint=_suggestion(spec))


def nearest(name: str, count: int = 3) -> list[str]:
    """The known names most like this one."""
    known = {n.lower(): n for source in sources().values() for n in source.names()}
    return [known[n] for n in difflib.get_close_matches(name.lower(), known, count, 0.6)]


def _suggestion(spec: str) -> str:
    close = nearest(spec.rpartition(":")[2])
    return "did you mean " + ", ".join(close) + "?" if close else "`opgraph models` lists the names"
