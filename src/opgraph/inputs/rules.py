"""The table of input rules: the name of a parameter of `forward` → the function that makes its value.

A rule returns None where the argument should be left out. Rules marked `needed` are used only where the
parameter has no default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from opgraph.inputs.context import Context

Make = Callable[[Context], Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """How to make an argument, and whether only a parameter without a default gets it."""

    make: Make
    needed: bool = False


RULES: dict[str, Rule] = {}


def rule(*names: str, needed: bool = False) -> Callable[[Make], Make]:
    """Enter a function into the table under these parameter names."""

    def enter(make: Make) -> Make:
        for name in names:
            if name in RULES:
                raise ValueError(f"there is already a rule for {name}")
            RULES[name] = Rule(make, needed)
        return make

    return enter


@rule("input_ids", "ids", "tokens")
def token_ids(c: Context) -> torch.Tensor:
    return c.ids(c.batch, c.sequence)


@rule("attention_mask")
def attention_mask(c: Context) -> torch.Tensor | None:
    """As a tokenizer gives it for unpadded text: all ones, beside token ids."""
    ids = c.value("input_ids")
    return None if ids is None else torch.ones(ids.shape[:2], dtype=torch.int64)


@rule("token_type_ids")
def token_type_ids(c: Context) -> torch.Tensor | None:
    """Only where the model tells kinds of tokens apart."""
    ids = c.value("input_ids")
    kinds = c.get("type_vocab_size", part="text", default=0)
    return None if ids is None or kinds < 2 else torch.zeros(ids.shape, dtype=torch.int64)


@rule("decoder_input_ids")
def decoder_input_ids(c: Context) -> torch.Tensor:
    return c.ids(c.batch, c.decoder_sequence)


@rule("pixel_values")
def pixel_values(c: Context) -> torch.Tensor:
    return c.floats(c.batch, *c.image)


@rule("images")
def images(c: Context) -> Any:
    """A batch, or a list of images where the annotation says so (torchvision's detectors)."""
    annotation = str(c.signature.parameters["images"].annotation)
    if "list" in annotation.lower():
        size = c.request.image_size or c.model.hints.get("input_size", c.image)[-2:]
        return [c.floats(c.image[0], *size) for _ in range(c.batch)]
    return main_tensor(c)


@rule("image1", "image2")
def image_of_a_pair(c: Context) -> torch.Tensor:
    return main_tensor(c)


@rule("x", "input", "inputs", "image", "img", "imgs", "X", needed=True)
def main_tensor(c: Context) -> torch.Tensor:
    """The input that the source knows the size of, or that the model's first layer with weights takes."""
    if c.request.input_shape is not None:
        shape = c.request.input_shape
        return c.ids(*shape) if _takes_ids(c.module) else c.floats(*shape)
    if "input_size" in c.model.hints:
        size = tuple(c.model.hints["input_size"])
        if c.request.image_size is not None:
            size = (*size[:-2], *c.request.image_size)
        return c.floats(c.batch, *size)
    return _for_first_layer(c)


def _first_layer(module: nn.Module) -> nn.Module | None:
    leaves = (m for m in module.modules() if not list(m.children()))
    return next((m for m in leaves if next(m.parameters(recurse=False), None) is not None), None)


def _takes_ids(module: nn.Module) -> bool:
    return isinstance(_first_layer(module), (nn.Embedding, nn.EmbeddingBag))


def _for_first_layer(c: Context) -> torch.Tensor:
    layer = _first_layer(c.module)
    height, width = c.image[1:]
    match layer:
        case nn.Embedding() | nn.EmbeddingBag():
            return c.ids(c.batch, c.sequence, below=layer.num_embeddings)
        case nn.Conv1d():
            return c.floats(c.batch, layer.in_channels, c.sequence)
        case nn.Conv2d():
            return c.floats(c.batch, layer.in_channels, height, width)
        case nn.Conv3d():
            return c.floats(c.batch, layer.in_channels, 16, height, width)
        case nn.Linear():
            return c.floats(c.batch, layer.in_features)
        case nn.RNNBase():
            first, second = (c.batch, c.sequence) if layer.batch_first else (c.sequence, c.batch)
            return c.floats(first, second, layer.input_size)
        case nn.TransformerEncoderLayer() | nn.MultiheadAttention():
            return c.floats(c.batch, c.sequence, layer.embed_dim)
    return c.floats(c.batch, *c.image)
