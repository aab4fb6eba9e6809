"""Reading a library's configuration object, whose parts (text, vision, audio) may nest and whose names
differ from library to library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_PARTS = {
    "text": ("text_config", "thinker_config", "language_config", "llm_config", "decoder", "encoder"),
    "vision": ("vision_config", "image_config", "image_encoder", "vision_encoder", "encoder"),
    "audio": ("audio_config", "audio_encoder_config", "speech_config", "encoder_config", "audio_encoder",
              "encoder"),
    "decoder": ("decoder_config", "decoder", "text_config"),
    "backbone": ("backbone_config",),
    "large vision": ("high_res_vision_config",),
}  # fmt: skip


class Settings:
    """A configuration, or none."""

    def __init__(self, config: Any) -> None:
        self.root = config

    def get(self, *names: str, part: str | None = None, default: Any = None) -> Any:
        """The first of these settings there is. Where a part is named, its configuration is asked first,
        then the whole's, then those of the other parts."""
        for config in self._configs(part):
            for name in names:
                found = read(config, name)
                if found is not None:
                    return found
        return default

    def own(self, *names: str, part: str | None = None, default: Any = None) -> Any:
        """As `get`, but without looking into the other parts."""
        for config in (*self._part(part), *([] if self.root is None else [self.root])):
            for name in names:
                found = read(config, name)
                if found is not None:
                    return found
        return default

    def number(self, *names: str, part: str | None = None, default: int = 0) -> int:
        """A setting that must be a whole number; the first of a list of them."""
        found = self.get(*names, part=part)
        if isinstance(found, (list, tuple)) and found:
            found = found[0]
        return found if isinstance(found, int) else default

    def endings(self, *endings: str) -> Iterator[tuple[str, Any]]:
        """All settings, in any part, whose name ends so."""
        for config in self._configs(None):
            for name, value in items(config):
                if name.endswith(endings):
                    yield name, value

    def _part(self, part: str | None) -> list[Any]:
        found = (read(self.root, name) for name in _PARTS[part]) if part else ()
        return [c for c in found if hasattr(c, "model_type") or isinstance(c, Mapping)]

    def _configs(self, part: str | None) -> Iterator[Any]:
        if self.root is None:
            return
        for inner in self._part(part):
            yield inner
            yield from children(inner)
        yield self.root
        for inner in children(self.root):
            yield inner
            yield from children(inner)


def read(config: Any, name: str) -> Any:
    """One setting of a configuration object or mapping; None where it is missing."""
    if isinstance(config, Mapping):
        return config.get(name)
    try:
        return getattr(config, name, None)
    except (ValueError, RuntimeError, TypeError, LookupError):
        return None  # a setting that differs by layer, say


def items(config: Any) -> Iterator[tuple[str, Any]]:
    """All settings of one configuration."""
    found = config if isinstance(config, Mapping) else getattr(config, "__dict__", {})
    yield from ((str(name), value) for name, value in found.items())


def children(config: Any) -> Iterator[Any]:
    """The configurations directly inside a configuration."""
    yield from (value for _, value in items(config) if hasattr(value, "model_type"))
