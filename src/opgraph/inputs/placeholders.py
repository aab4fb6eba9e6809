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
from opgraph.sources.building import first_line
from opgraph.sources.masks import RealMasks
from opgraph.sources.weightless import pretended

_KINDS = (
    (
        "images",
        ("pixel_values", "image_pixel_values"),
        ("get_image_features", "get_img_features"),
        ("image_token_id", "image_token_index", "img_context_token_id", "media_placeholder_token_id",
         "image_patch_id"),
    ),
    (
        "sound",
        ("input_features", "input_values", "audio_input_features"),
        ("get_audio_features", "get_speech_features"),
        ("audio_token_id", "audio_token_index", "sound_context_token_id"),
    ),
)  # fmt: skip


def placeholders(c: Context) -> list[tuple[int, int]]:
    """Token id and count, in each sequence of the batch, for each kind of input besides text.

    Optional arguments that the configuration leaves no way to use are left out, with a note.
    """
    if "placeholders" not in c.made:
        c.made["placeholders"] = list(_placeholders(c))
    found: list[tuple[int, int]] = c.made["placeholders"]
    return found


def _placeholders(c: Context) -> Iterator[tuple[int, int]]:
    for what, arguments, methods, tokens in _KINDS:
        token = c.settings.own(*tokens, part="text")
        method = next((m for m in methods if hasattr(c.module, m)), None)
        if token is None or method is None or not c.has("input_ids"):
            continue
        try:
            if all(c.beside(name) is None for name in arguments):
                continue
            features = _features(c, method)
        except Exception as error:  # noqa: BLE001 - whatever the model's own encoder raises
            c.leave_out(_all_of(c, method), f"without {what}: {first_line(error)}")
            continue
        widths = {int(t.shape[-1]) for t in features}
        if hasattr(c.module, "get_placeholder_mask") and widths != {c.hidden}:
            wrong = f"features are {widths} wide and tokens {c.hidden}"
            c.leave_out(_all_of(c, method), f"without {what}: {wrong}")
            continue
        yield int(token), sum(int(t.numel() // t.shape[-1]) for t in features) // c.batch


def _all_of(c: Context, method: str) -> list[str]:
    """The arguments of an encoder method, but for the text they go with."""
    return [n for n in inspect.signature(getattr(c.module, method)).parameters if n != "input_ids"]


def encoder_needs(c: Context, name: str) -> bool:
    """Whether an encoder method of the model takes an argument of that name and has no default for it."""
    asked = (getattr(c.module, m, None) for _, _, methods, _ in _KINDS for m in methods)
    found = (inspect.signature(a).parameters.get(name) for a in asked if a is not None)
    return any(p is not None and p.default is p.empty for p in found)


def _features(c: Context, method: str) -> list[Tensor]:
    """The features that an encoder method of the model returns, without values."""
    ask = getattr(c.module, method)
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(ask).parameters.items():
        rule = RULES.get(name)
        needed = parameter.default is parameter.empty
        if name == "input_ids":
            continue  # the places in the text are what is being found out
        if rule is not None and (needed or (c.has(name) and not rule.needed)):
            value = c.value(name)
            if value is not None:
                given[name] = value
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with pretended(c.module, mode), torch.no_grad(), warnings.catch_warnings(), RealMasks():
        warnings.simplefilter("ignore")
        made = ask(**tree_map(lambda item: _fake(item, mode), given))
    return list(_tensors(made))


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
