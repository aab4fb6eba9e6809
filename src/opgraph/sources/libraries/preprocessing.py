"""What the preprocessing of a transformers model type makes of images and sound by default: sizes that the
model's configuration does not hold."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from opgraph.sources.base import Model


def hints(model: Model) -> dict[str, Any]:
    """`image_size` as the model type's image processor has it, and `feature_size` and `sampling_rate` as
    its feature extractor has them; only those that the model's inputs need."""
    takes = inspect.signature(model.module.forward).parameters
    found: dict[str, Any] = {}
    if "pixel_values" in takes and not _own_image_size(model.config):
        found["image_size"] = _image_size(model.config.model_type)
    if any(name in takes for name in ("input_features", "input_values", "audio_mel")):
        found.update(_sound(model.config.model_type))
    return {name: value for name, value in found.items() if value}


def _own_image_size(config: Any) -> bool:
    parts = (config, getattr(config, "vision_config", None))
    return any(getattr(part, "image_size", None) for part in parts)


def _image_size(model_type: str) -> Any:
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

    names = IMAGE_PROCESSOR_MAPPING_NAMES.get(model_type) or {}
    cls = _class(names.get("pil") or names.get("torchvision"))
    crop = getattr(cls, "crop_size", None) if getattr(cls, "do_center_crop", False) else None
    return crop or getattr(cls, "size", None)


def _sound(model_type: str) -> Mapping[str, Any]:
    from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES

    for name in _shorter(model_type):
        cls = _class(FEATURE_EXTRACTOR_MAPPING_NAMES.get(name))
        if cls is not None:
            defaults = inspect.signature(cls.__init__).parameters
            wanted = ("feature_size", "sampling_rate")
            return {n: defaults[n].default for n in wanted if n in defaults}
    return {}


def _shorter(model_type: str) -> Iterator[str]:
    """A model type and what it is a part of: `gemma4_audio`, `gemma4`."""
    while model_type:
        yield model_type
        model_type = model_type.rpartition("_")[0]


def _class(name: str | None) -> Any:
    """A class of transformers by name; None where what it needs is not installed."""
    import transformers

    try:
        return getattr(transformers, name) if name else None
    except (ImportError, AttributeError):
        return None
