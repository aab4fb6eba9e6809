"""timm's registered models, at the input size of their default checkpoint; `NAME.TAG` takes that of
another checkpoint. No weights are fetched."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from opgraph.record.errors import UnknownModel
from opgraph.sources import known
from opgraph.sources.base import BuildOptions, Model
from opgraph.sources.libraries import Library, registered

if TYPE_CHECKING:
    from torch import nn

_REGISTERED = r"@register_model\s+def (\w+)"


class TimmSource:
    """Every name in `timm.list_models()`."""

    name = "timm"
    library = Library("timm", "timm", ("timm",), (1, 0, 20))

    def claims(self, spec: str) -> bool:
        architecture, dot, _ = spec.partition(".")
        absent = self.library.folder is None
        return architecture in self.names() and (not dot or absent or _has_checkpoint(spec))

    def names(self) -> Mapping[str, str]:
        return registered(self.library, "models", _REGISTERED) or known.names(self.name)

    def build(self, spec: str, options: BuildOptions) -> Model:
        if "timm" not in sys.modules and not self.claims(spec):  # importing it takes two seconds
            raise UnknownModel(f"{self.name} has no model {spec}")
        import timm

        from opgraph.sources.building import assemble

        if not timm.is_model(spec) or ("." in spec and not _has_checkpoint(spec)):
            raise UnknownModel(f"{self.name} has no model {spec}")
        arguments = dict(options.arguments)

        def construct() -> nn.Module:
            module: nn.Module = timm.create_model(spec, pretrained=False, **arguments)
            return module

        model = assemble(construct, name=spec, source=self.name, dtype=options.dtype)
        size = arguments.get("img_size", model.module.pretrained_cfg["input_size"])
        if isinstance(size, int):
            size = (arguments.get("in_chans", 3), size, size)
        return replace(model, hints={"input_size": tuple(size)})


def _has_checkpoint(spec: str) -> bool:
    """Whether timm knows the tag of `NAME.TAG` for that architecture; building would take any. Tags are
    made as timm is imported, so this is the one question for which a name costs that."""
    import timm

    try:
        return timm.get_pretrained_cfg(spec) is not None
    except RuntimeError:
        return False
