"""What the model itself says about an argument: how its code takes the argument's shape apart, and which
layer the argument goes into."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from torch import nn

Dims = tuple[str, ...]


def sizes(module: nn.Module, name: str) -> Dims | None:
    """The names of the sizes of an argument: as code takes them apart (`batch, channels, height, width =
    pixel_values.shape`), else as a docstring gives them; outer modules come first."""
    found = (_unpacked(cls, name) or _documented(cls, name) for cls in _classes(module))
    return next((names for names in found if names is not None), None)


def _classes(module: nn.Module) -> list[Any]:
    """The classes of a model's modules whose code is not torch's own, outer ones first."""
    found = dict.fromkeys(type(m) for m in module.modules())
    return [cls for cls in found if not cls.__module__.startswith("torch.")]


@cache
def _source(cls: type) -> str:
    """The code of a class, found by its first line where that is one of a kind: before Python 3.13,
    `inspect.getsource` parses the whole file for each class."""
    try:
        lines, _ = inspect.findsource(sys.modules[cls.__module__])
        begins = re.compile(rf"class {cls.__qualname__}\b")
        found = [number for number, line in enumerate(lines) if begins.match(line)]
        if len(found) == 1:
            return "".join(inspect.getblock(lines[found[0] :]))
        return inspect.getsource(cls)
    except (OSError, TypeError, KeyError):
        return ""


@cache
def _unpacked(cls: type, name: str) -> Dims | None:
    code = re.sub(r'"""[\s\S]*?"""', "", _source(cls))
    pattern = rf"^\s*([\w, ]+?) = {re.escape(name)}\.(?:shape|size\(\))(?:\[:2\])?\s*$"
    found = re.search(pattern, code, re.MULTILINE)
    names = _split(found.group(1)) if found else ()
    return names if len(names) > 1 else None


def joined(module: nn.Module, name: str) -> bool:
    """Whether a model makes one dimension of the first two of an argument (`x = x.flatten(0, 1)`)."""
    pattern = rf"^\s*{re.escape(name)} = {re.escape(name)}\.flatten\(0, 1\)"
    return any(re.search(pattern, _source(cls), re.MULTILINE) for cls in _classes(module))


@cache
def _documented(cls: type, name: str) -> Dims | None:
    """From `name (`torch.Tensor` of shape `(a, b)`)`, in docstrings as the class itself writes them: what
    a library fills in for all its classes is too general to go by."""
    pattern = rf"^\s*{re.escape(name)} \([^\n]*?of shape\s*`?\(([^)]*)\)"
    found = re.search(pattern, _source(cls), re.MULTILINE)
    return _split(found.group(1)) if found else None


def _split(names: str) -> Dims:
    return tuple(part.strip() for part in names.split(",") if part.strip())


def swaps(module: nn.Module, name: str) -> bool:
    """Whether the model's code swaps the last two axes of an argument before anything else."""
    pattern = rf"= {re.escape(name)}\.(transpose\((1, 2|2, 1)\)|permute\(0, 2, 1\))"
    return any(re.search(pattern, _source(cls)) for cls in _classes(module))


def first_layer(module: nn.Module) -> nn.Module | None:
    """The first leaf that has weights, packed ones included, in the order the modules were made in."""
    leaves = (m for m in module.modules() if not list(m.children()))
    return next((m for m in leaves if _has_weights(m)), None)


def _has_weights(layer: nn.Module) -> bool:
    sizes = ("in_features", "in_channels", "num_embeddings")
    return next(layer.parameters(recurse=False), None) is not None or any(
        hasattr(layer, n) for n in sizes
    )


_MATRICES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def applied_to(module: nn.Module, name: str) -> nn.Module | None:
    """The linear layer or convolution that the model's code calls on an argument as it comes
    (`self.projection(pixel_values)`)."""
    return next((m for m in _called_on(module, name) if isinstance(m, _MATRICES)), None)


def reached_by(module: nn.Module, name: str) -> nn.Module | None:
    """The convolution or linear layer that an argument comes to as it is, also through modules which
    begin with that (`self.encoder(input_values)`, and there `x = self.conv(x)`)."""
    inside = (_beginning(m) for m in _called_on(module, name))
    return applied_to(module, name) or next((m for m in inside if m is not None), None)


def _called_on(module: nn.Module, name: str) -> Iterator[nn.Module]:
    """The modules that the model's code calls on an argument as it comes."""
    for inner in module.modules():
        cls: Any = type(inner)
        if not cls.__module__.startswith("torch."):
            for found in re.finditer(rf"self\.(\w+)\(\s*{re.escape(name)}\b", _source(cls)):
                called = getattr(inner, found.group(1), None)
                if isinstance(called, nn.Module):
                    yield called


def _beginning(module: nn.Module) -> nn.Module | None:
    """The convolution or linear layer that `forward` begins with, where it does: `x = self.conv(x)`, or
    `for layer in self.layers: x = layer(x)`, and what such a module begins with."""
    cls: Any = type(module)
    body = _source(cls).partition("def forward(")[2]
    begun = re.search(r"\n\s+(?:for (\w+) in self\.(\w+):\s+)?(\w+) = (\S.*)", body)
    if begun is None:
        return None
    each, several, given, said = begun.groups()
    if several is not None and said.strip() == f"{each}({given})":
        first = next(iter(getattr(module, several, None) or ()), None)
    else:
        call = re.fullmatch(rf"self\.(\w+)\({given}\)", said.strip())
        first = getattr(module, call.group(1), None) if call else None
    if isinstance(first, _MATRICES) or not isinstance(first, nn.Module):
        return first if isinstance(first, _MATRICES) else None
    return _beginning(first)


def first_taking(module: nn.Module, *sizes: int) -> nn.Module | None:
    """The first convolution or linear layer whose input has one of these sizes."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear) and layer.in_features in sizes:
            return layer
        if isinstance(layer, (nn.Conv1d, nn.Conv2d)) and layer.in_channels in sizes:
            return layer
    return None


# Reading a library's configuration object, whose parts (text, vision, audio) may nest and whose names
# differ from library to library.

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
