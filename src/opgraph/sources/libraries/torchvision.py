"""torchvision's registered models, built as their default weights describe them: the class count,
auxiliary heads and frozen normalizations of the published checkpoint, without fetching it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from opgraph.record.errors import UnknownModel
from opgraph.record.remarks import Remark
from opgraph.sources import known
from opgraph.sources.base import BuildOptions, Model
from opgraph.sources.libraries import Library, registered

if TYPE_CHECKING:
    from torch import nn

_REGISTERED = r'@register_model\((?:name="(\w+)")?\)[\s\S]*?\ndef (\w+)'


CLIP = 16
"""Frames of a clip, as in the evaluation of torchvision's published video models."""

_FLOAT = Remark(
    "other-variant",
    "in float32, as it is before it is quantized; --model-arg quantize=true quantizes it",
)
"""What is said of torchvision's models that can be quantized, and by default are not."""

FLOW = 512
"""Pixels a side where the preprocessing does not resize (optical flow): the size at which torchvision's
published operation counts hold."""


class TorchvisionSource:
    """Every name in `torchvision.models.list_models()`."""

    name = "torchvision"
    library = Library("torchvision", "torchvision", ("torchvision.models",), (0, 29))

    def claims(self, spec: str) -> bool:
        return spec in self.names()

    def names(self) -> Mapping[str, str]:
        return registered(self.library, "models", _REGISTERED) or known.names(self.name)

    def build(self, spec: str, options: BuildOptions) -> Model:
        if not self.claims(spec):
            raise UnknownModel(f"{self.name} has no model {spec}")
        from torchvision.models import get_model, get_model_builder, get_model_weights

        from opgraph.sources.building import assemble

        arguments = dict(options.arguments)
        float_twin = (
            not arguments.get("quantize")
            and "quantize" in signature(get_model_builder(spec)).parameters
        )
        best = get_model_weights(spec).DEFAULT
        if not arguments.get("quantize"):
            best = best.meta.get("unquantized", best)

        def construct() -> nn.Module:
            with _nothing_fetched():
                return get_model(spec, **{"weights": best, **arguments})

        model = assemble(
            construct,
            name=spec,
            source=self.name,
            dtype=options.dtype,
            notes=(f"as {best} describes it", *((_FLOAT,) if float_twin else ())),
        )
        return replace(model, hints=_hints(best, model.module))


def _hints(weights: Any, module: nn.Module) -> Mapping[str, Any]:
    """The size of the input that the model's own resizing, or else the weights' preprocessing, makes."""
    resize: Any = getattr(module, "transform", None)
    if hasattr(resize, "min_size"):
        height, width = resize.fixed_size or (resize.min_size[-1],) * 2
        return {"input_size": (3, height, width)}
    preprocessing = weights.transforms
    kind = getattr(preprocessing, "func", preprocessing).__name__
    asked = getattr(preprocessing, "keywords", {})
    size = asked.get("crop_size", asked.get("resize_size", FLOW))
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    frames = (CLIP,) if kind == "VideoClassification" else ()
    return {"input_size": (3, *frames, height, width)}


@contextmanager
def _nothing_fetched() -> Iterator[None]:
    """torchvision's builders ask their weights for a state dict and load it: here, for nothing."""
    from torch import nn
    from torchvision.models import WeightsEnum

    fetch, load = WeightsEnum.get_state_dict, nn.Module.load_state_dict
    WeightsEnum.get_state_dict = lambda *_args, **_kwargs: {}
    nn.Module.load_state_dict = lambda *_args, **_kwargs: None
    try:
        yield
    finally:
        WeightsEnum.get_state_dict = fetch
        nn.Module.load_state_dict = load
