"""Rules for token ids and what goes beside them, with the placeholders of images and sounds among them."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map

from opgraph.inputs.context import RULES, Context, rule
from opgraph.record.errors import first_line
from opgraph.sources.building import undisturbed
from opgraph.sources.weightless import RealMasks, bring_compiler, pretended


@rule("input_ids")
def token_ids(c: Context) -> Tensor:
    """Text, with the places for images and sounds in it where the model puts their features there; a code
    from each book at a time for models of coded sound, and two texts to choose from."""
    books = c.settings.own("num_codebooks")
    names = c.dims("input_ids")
    if books and len(names) == 3:
        return c.ids(c.batch, c.sequence, books)
    if _chooses(c):
        return c.ids(c.batch, 2, c.sequence)
    text = c.ids(c.batch, c.sequence)
    parts = [torch.full((c.batch, count), token) for token, count in placeholders(c)]
    return torch.cat([text[:, :1], *parts, text[:, 1:]], dim=1)


def _chooses(c: Context) -> bool:
    """Whether the model takes several texts, of which it chooses one."""
    return c.dims("input_ids")[1:] == ("num_choices", "sequence_length")


@rule("attention_mask")
def attention_mask(c: Context) -> Tensor | None:
    """As a tokenizer gives it for unpadded text: all ones, beside token ids."""
    ids = c.beside("input_ids")
    if ids is None:
        return None
    return torch.ones(ids.shape if _chooses(c) else ids.shape[:2], dtype=torch.int64)


@rule("token_type_ids")
def token_type_ids(c: Context) -> Tensor | None:
    """Only where the model tells kinds of tokens apart."""
    ids = c.beside("input_ids")
    kinds = c.settings.number("type_vocab_size", part="text")
    return None if ids is None or kinds < 2 else torch.zeros(ids.shape, dtype=torch.int64)


@rule("mm_token_type_ids")
def modalities(c: Context) -> Tensor | None:
    """0 for text, 1 for the places of images, 2 for those of video, 3 for those of sound."""
    ids = c.beside("input_ids")
    if ids is None:
        return None
    kinds = torch.zeros(ids.shape, dtype=torch.int64)
    for token, _ in placeholders(c):
        kinds[ids == token] = 1
    return kinds


@rule("decoder_input_ids")
def decoder_token_ids(c: Context) -> Tensor:
    below = c.settings.number("vocab_size", part="decoder") or None
    known = c.shape("decoder_input_ids")
    if known is not None:
        return c.ids(*known, below=below)
    return c.ids(c.batch, c.decoder_sequence, below=below)


@rule("use_cache")
def use_cache(c: Context) -> bool | None:
    """No cache of keys and values where no layer has any."""
    if not c.settings.own("num_attention_heads", part="text"):
        return None
    layers = c.settings.own("layer_types", "layers_block_type", part="text")
    known = isinstance(layers, (list, tuple)) and layers
    return False if known and set(layers) == {"linear_attention"} else None


rule("position_ids", needed=True)(lambda c: torch.arange(c.sequence).expand(c.batch, -1))
rule("inputs_embeds", needed=True)(lambda c: c.floats(c.batch, c.sequence, c.hidden))


@rule("qformer_input_ids", needed=True)
def query_former_ids(c: Context) -> Tensor:
    return c.ids(c.batch, c.sequence, below=c.settings.number("vocab_size", part="text"))


@rule("task_inputs", needed=True)
def task_ids(c: Context) -> Tensor:
    return c.ids(c.batch, c.settings.number("task_seq_len", default=c.sequence))


@rule("query_embeds", needed=True)
def queries(c: Context) -> Tensor:
    count = c.settings.number("num_query_tokens", "num_queries", default=32)
    return c.floats(c.batch, count, c.settings.number("hidden_size", "d_model"))


@rule("bbox")
def boxes(c: Context) -> Tensor | None:
    """The place of each token on its page, from 0 to 1000; as fractions for models that scale boxes."""
    ids = c.beside("input_ids")
    if ids is None:
        return None
    box = torch.tensor([100, 100, 200, 120]).expand(*ids.shape, 4).clone()
    return box / 1000 if c.settings.get("bbox_scale") else box


@rule("image_embeds_position_mask")
def image_places(c: Context) -> Tensor | None:
    """Where in the text the image's tokens are: behind the first token."""
    ids = c.beside("input_ids")
    count = c.settings.number("latent_query_num")
    if ids is None or not count:
        return None
    mask = torch.zeros(ids.shape, dtype=torch.int64)
    mask[:, 1 : 1 + count] = 1
    return mask


# The placeholders of images and sounds in a sequence of token ids: as many as the model's own encoder makes
# features, which is found by running that encoder on fake tensors.

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
        encode = _method(c, *methods)
        if token is None or encode is None or not c.has("input_ids"):
            continue
        try:
            if all(c.beside(name) is None for name in arguments):
                continue
            features = _features(c, encode)
        except Exception as error:  # noqa: BLE001 - whatever the model's own encoder raises
            c.leave_out(_all_of(encode), f"without {what}: {first_line(error)}")
            continue
        widths = {int(t.shape[-1]) for t in features}
        if _method(c, "get_placeholder_mask") is not None and widths != {c.hidden}:
            wrong = f"features are {widths} wide and tokens {c.hidden}"
            c.leave_out(_all_of(encode), f"without {what}: {wrong}")
            continue
        yield int(token), sum(int(t.numel() // t.shape[-1]) for t in features) // c.batch


def _method(c: Context, *names: str) -> Callable[..., Any] | None:
    """The first of these methods that the model has: a head may only pass on what it is given to the model
    inside of it."""
    owners = (getattr(c.module, "base_model", None), c.module)
    found = (getattr(owner, name, None) for name in names for owner in owners)
    return next((method for method in found if method is not None), None)


def _all_of(encode: Callable[..., Any]) -> list[str]:
    """The arguments of an encoder method, but for the text they go with."""
    return [n for n in inspect.signature(encode).parameters if n != "input_ids"]


def encoder_needs(c: Context, name: str) -> bool:
    """Whether an encoder method of the model takes an argument of that name and has no default for it."""
    asked = (_method(c, m) for _, _, methods, _ in _KINDS for m in methods)
    found = (inspect.signature(a).parameters.get(name) for a in asked if a is not None)
    return any(p is not None and p.default is p.empty for p in found)


def _features(c: Context, ask: Callable[..., Any]) -> list[Tensor]:
    """The features that an encoder method of the model returns, without values."""
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
    bring_compiler()
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    quiet = patch.object(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", new=True)
    with pretended(c.module, mode), torch.no_grad(), undisturbed(), RealMasks(), quiet:
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
