"""diffusers models: the U-Nets, transformers and autoencoders of published pipelines, by the catalogue's
configurations (`diffusers:unet/sdxl`). Never any weights."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from opgraph.record.errors import SourceError, UnknownModel
from opgraph.sources import catalogue
from opgraph.sources.base import BuildOptions, Model, check_arguments
from opgraph.sources.libraries import Library

if TYPE_CHECKING:
    from torch import nn

DIFFUSERS = Library("diffusers", "diffusers", ("diffusers",), (0, 37))


class DiffusersSource:
    """Published parts of pipelines by `part/name`."""

    name = "diffusers"
    library = DIFFUSERS

    def claims(self, spec: str) -> bool:
        return catalogue.lookup(spec, self.name) is not None

    def names(self) -> Mapping[str, str]:
        return catalogue.names(self.name)

    def build(self, spec: str, options: BuildOptions) -> Model:
        entry = catalogue.lookup(spec, self.name)
        if entry is None:
            raise UnknownModel(f"{self.name} has no model {spec}")
        import diffusers

        from opgraph.sources.building import assemble

        cls = getattr(diffusers, entry.cls, None)
        if cls is None:
            raise SourceError(
                f"the installed diffusers has no {entry.cls}",
                hint="pip install -U diffusers may bring it",
            )

        known = inspect.signature(cls.__init__).parameters.keys() - {"self"}
        check_arguments(options.arguments, known, entry.name)

        def construct() -> nn.Module:
            module: nn.Module = cls(**{**entry.arguments(), **options.arguments})
            return module

        model = assemble(
            construct,
            name=entry.name,
            source=self.name,
            dtype=options.dtype or entry.dtype,
            notes=(f"configuration from {entry.source}",),
        )
        return replace(model, config=model.module.config)
