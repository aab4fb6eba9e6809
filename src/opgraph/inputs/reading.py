"""What the model itself says about an argument: how its code takes the argument's shape apart, and which
layer the argument goes into."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache

from torch import nn

Dims = tuple[str, ...]


def unpacked(module: nn.Module, name: str) -> Dims | None:
    """The names that the model's code gives to the sizes of an argument, as in
    `batch, frames, channels, height, width = pixel_values.shape`; outer modules come first."""
    for inner in _classes(module):
        found = _unpacked_in(inner, name)
        if found is not None:
            return found
    return None


def _classes(module: nn.Module) -> Iterator[type]:
    yield from dict.fromkeys(type(m) for m in module.modules() if not _is_torch(type(m)))


def _is_torch(cls: type) -> bool:
    return cls.__module__.startswith("torch.")


@cache
def _unpacked_in(cls: type, name: str) -> Dims | None:
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return None
    source = re.sub(r'"""[\s\S]*?"""', "", source)
    pattern = rf"^\s*([\w, ]+?) = {re.escape(name)}\.(?:shape|size\(\))\s*$"
    found = re.search(pattern, source, re.MULTILINE)
    if found is None or "," not in found.group(1):
        return None
    return tuple(part.strip() for part in found.group(1).split(","))


def documented(module: nn.Module, name: str) -> Dims | None:
    """The sizes of an argument as the docstring of `forward` gives them: `name (… of shape `(a, b)`)`."""
    doc = type(module).forward.__doc__ or ""
    found = re.search(rf"^\s*{re.escape(name)} \(.*?of shape\s+`?\(([^)]*)\)", doc, re.MULTILINE)
    return tuple(part.strip() for part in found.group(1).split(",")) if found else None


def first_layer(module: nn.Module) -> nn.Module | None:
    """The first leaf with weights, in the order in which the modules were made."""
    leaves = (m for m in module.modules() if not list(m.children()))
    return next((m for m in leaves if next(m.parameters(recurse=False), None) is not None), None)


def first_taking(module: nn.Module, *sizes: int) -> nn.Module | None:
    """The first convolution or linear layer whose input has one of these sizes."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear) and layer.in_features in sizes:
            return layer
        if isinstance(layer, (nn.Conv1d, nn.Conv2d)) and layer.in_channels in sizes:
            return layer
    return None
