"""The places that images and sounds take in a sequence of token ids: as many as the model's own encoder
makes features, which is found by running that encoder on fake tensors."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map

from opgraph.inputs.context import Context
from opgraph.inputs.table import RULES
from opgraph.sources.weightless import pretended

_KINDS = (
    (
        ("pixel_values", "image_pixel_values"),
        ("get_image_features", "get_img_features"),
        ("image_token_id", "image_token_index", "img_context_token_id", "media_placeholder_token_id",
         "image_patch_id"),
    ),
    (
        ("input_features", "input_values", "audio_input_features"),
        ("get_audio_features", "get_speech_features"),
        ("audio_token_id", "audio_token_index", "sound_context_token_id"),
    ),
)  # fmt: skip


def placeholders(c: Context) -> list[tuple[int, int]]:
    """Token id and count, in each sequence of the batch, for each kind of input besides text."""
    return list(_placeholders(c))


def _placeholders(c: Context) -> Iterator[tuple[int, int]]:
    for arguments, methods, tokens in _KINDS:
        token = c.settings.own(*tokens, part="text")
        given = any(c.beside(name) is not None for name in arguments)
        method = next((m for m in methods if hasattr(c.module, m)), None)
        if isinstance(token, int) and given and method is not None:
            yield token, _features(c, method) // c.batch


def encoder_needs(c: Context, name: str) -> bool:
    """Whether an encoder method of the model takes an argument of that name and has no default for it."""
    asked = (getattr(c.module, m, None) for _, methods, _ in _KINDS for m in methods)
    found = (inspect.signature(a).parameters.get(name) for a in asked if a is not None)
    return any(p is not None and p.default is p.empty for p in found)


def _features(c: Context, method: str) -> int:
    """How many vectors an encoder method of the model returns."""
    ask = getattr(c.module, method)
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(ask).parameters.items():
        rule = RULES.get(name)
        needed = parameter.default is parameter.empty
        if rule is not None and (needed or (c.has(name) and not rule.needed)):
            value = c.value(name)
            if value is not None:
                given[name] = value
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with pretended(c.module, mode), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = ask(**tree_map(lambda item: _fake(item, mode), given))
    return sum(int(t.numel() // t.shape[-1]) for t in _tensors(made))


def _fake(item: Any, mode: FakeTensorMode) -> Any:
    if isinstance(item, Tensor) and item.is_meta:
        return FakeTensor(mode, item, torch.device("cpu"))
    return item


def _tensors(made: Any) -> Iterator[Tensor]:
    """The features in what an encoder returns: projected ones where it returns several."""
    for name in ("pooler_output", "last_hidden_state"):
        found = getattr(made, name, None)
        if found is not None:
            made = found
            break
    if isinstance(made, Tensor):
        yield made
    elif isinstance(made, (list, tuple)):
        for item in made:
            if isinstance(item, Tensor):
                yield item
