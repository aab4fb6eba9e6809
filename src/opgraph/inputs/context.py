"""What an input rule can read: the model, its configuration, the sizes asked for, and the arguments
that other rules have made. Rules never see the model's name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn

from opgraph.errors import InputError
from opgraph.inputs.base import InputRequest
from opgraph.sources.base import Model

SEQUENCE = 128
IMAGE = 224
_BIG = 256 * 2**20

_PARTS = {
    "text": (
        "text_config",
        "text_encoder",
        "thinker_config",
        "language_config",
        "decoder",
        "encoder",
    ),
    "vision": ("vision_config", "image_encoder", "vision", "backbone_config", "encoder"),
    "audio": ("audio_config", "audio_encoder", "encoder"),
    "decoder": ("decoder", "text_config"),
}


@dataclass
class Context:
    """One making of inputs for one model."""

    model: Model
    request: InputRequest
    signature: inspect.Signature
    rule: Callable[[str], Callable[[Context], Any] | None]
    made: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(0)

    @property
    def module(self) -> nn.Module:
        module: nn.Module = self.model.module
        return module

    @property
    def batch(self) -> int:
        return self.request.batch_size or 1

    @cached_property
    def dtype(self) -> torch.dtype:
        """That of floating-point inputs: the one asked for, or that of the model's parameters."""
        if self.request.dtype is not None:
            return named_dtype(self.request.dtype)
        for parameter in self.module.parameters():
            if parameter.is_floating_point():
                return parameter.dtype
        return torch.float32

    def has(self, name: str) -> bool:
        """Whether `forward` takes an argument of that name."""
        return name in self.signature.parameters

    def required(self, name: str) -> bool:
        parameter = self.signature.parameters.get(name)
        return parameter is not None and parameter.default is inspect.Parameter.empty

    def value(self, name: str) -> Any:
        """Another argument of the call, as its own rule makes it; None where there is no such one."""
        if name not in self.made and self.has(name):
            make = self.rule(name)
            self.made[name] = make(self) if make else None
        return self.made.get(name)

    def get(self, *names: str, part: str | None = None, default: Any = None) -> Any:
        """The first of these settings that the configuration has, looked for in the configuration of a
        part ("text", "vision", "audio", "decoder") first when one is named."""
        for config in self._configs(part):
            for name in names:
                found = _read(config, name)
                if found is not None:
                    return found
        return default

    def _configs(self, part: str | None) -> Iterator[Any]:
        root = self.model.config
        if root is None:
            return
        if part is not None:
            for attribute in _PARTS[part]:
                inner = _read(root, attribute)
                if inner is not None and not isinstance(inner, (int, str, float, list, tuple)):
                    yield inner
        yield root
        for inner in _children(root):
            yield inner
            yield from _children(inner)

    @cached_property
    def sequence(self) -> int:
        """Tokens of the main sequence: as asked, else 128 or as many as the model has positions for."""
        if self.request.seq_len is not None:
            return self.request.seq_len
        most = self.get(
            "max_position_embeddings", "n_positions", "max_sequence_length", part="text"
        )
        return min(SEQUENCE, most) if isinstance(most, int) and most > 0 else SEQUENCE

    @cached_property
    def decoder_sequence(self) -> int:
        """Tokens of the decoder's sequence."""
        if self.request.decoder_seq_len is not None:
            return self.request.decoder_seq_len
        most = self.get("max_target_positions", "max_position_embeddings", part="decoder")
        return min(self.sequence, most) if isinstance(most, int) and most > 0 else self.sequence

    @cached_property
    def vocabulary(self) -> int:
        found = self.get("vocab_size", "n_tokens", part="text")
        if isinstance(found, int) and found > 0:
            return found
        for module in self.module.modules():
            if isinstance(module, nn.Embedding):
                return int(module.num_embeddings)
        return 2

    @cached_property
    def image(self) -> tuple[int, int, int]:
        """Channels, height, width of an image."""
        channels = self.get("num_channels", "in_channels", "in_chans", part="vision", default=3)
        if self.request.image_size is not None:
            return (channels, *self.request.image_size)
        size = self.model.hints.get("image_size") or self.get(
            "image_size", "input_size", part="vision", default=IMAGE
        )
        return (channels, *pair(size))

    def floats(self, *shape: int) -> torch.Tensor:
        """Random numbers; without memory when they would be too many."""
        if math.prod(shape) * self.dtype.itemsize > _BIG:
            return torch.empty(shape, dtype=self.dtype, device="meta")
        return torch.randn(shape, generator=self.generator).to(self.dtype)

    def ids(self, *shape: int, below: int | None = None) -> torch.Tensor:
        """Random token ids inside the vocabulary that mean nothing special (no padding, no end)."""
        most = below or self.vocabulary
        special = {i for i in self._special if 0 <= i < most}
        plain = [i for i in range(min(most, 1000 + len(special))) if i not in special] or [0]
        chosen = torch.randint(len(plain), shape, generator=self.generator)
        return torch.tensor(plain)[chosen]

    @cached_property
    def _special(self) -> set[int]:
        found: set[int] = set()
        for config in self._configs("text"):
            for name, value in _items(config):
                if name.endswith(("_token_id", "_token_index", "_token_ids")):
                    found.update(
                        v
                        for v in (value if isinstance(value, list) else [value])
                        if isinstance(v, int)
                    )
        return found


def named_dtype(name: str) -> torch.dtype:
    """The torch dtype of a name. Raises `InputError`."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"{name} is not a dtype", hint="float32, bfloat16, float16, int64, bool …")
    return found


def pair(size: Any) -> tuple[int, int]:
    """Height and width from the ways configurations write them."""
    if isinstance(size, Mapping):
        edge = size.get("shortest_edge") or size.get("longest_edge") or IMAGE
        return int(size.get("height", edge)), int(size.get("width", edge))
    if isinstance(size, (list, tuple)):
        return int(size[-2] if len(size) > 1 else size[0]), int(size[-1])
    return int(size), int(size)


def _read(config: Any, name: str) -> Any:
    if isinstance(config, Mapping):
        return config.get(name)
    return getattr(config, name, None)


def _items(config: Any) -> Iterator[tuple[str, Any]]:
    items = config if isinstance(config, Mapping) else getattr(config, "__dict__", {})
    yield from ((str(name), value) for name, value in items.items())


def _children(config: Any) -> Iterator[Any]:
    for _, value in _items(config):
        if hasattr(value, "model_type"):
            yield value
