"""Rules for token ids and what goes beside them."""

from __future__ import annotations

import torch
from torch import Tensor

from opgraph.inputs import dims
from opgraph.inputs.context import Context
from opgraph.inputs.placeholders import placeholders
from opgraph.inputs.table import rule


@rule("input_ids")
def token_ids(c: Context) -> Tensor:
    """Text, with the places for images and sounds in it where the model puts their features there; a code
    from each book at a time for models of coded sound."""
    books = c.settings.own("num_codebooks")
    names = c.dims("input_ids")
    if books and len(names) == 3:
        return c.ids(c.batch, c.sequence, books)
    text = c.ids(c.batch, c.sequence)
    parts = [torch.full((c.batch, count), token) for token, count in placeholders(c)]
    return torch.cat([text[:, :1], *parts, text[:, 1:]], dim=1)


@rule("attention_mask")
def attention_mask(c: Context) -> Tensor | None:
    """As a tokenizer gives it for unpadded text: all ones, beside token ids."""
    ids = c.beside("input_ids")
    return None if ids is None else torch.ones(ids.shape[:2], dtype=torch.int64)


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
    known = dims.shape(c, "decoder_input_ids")
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


@rule("position_ids", needed=True)
def positions(c: Context) -> Tensor:
    return torch.arange(c.sequence).expand(c.batch, -1)


@rule("inputs_embeds", needed=True)
def token_embeddings(c: Context) -> Tensor:
    return c.floats(c.batch, c.sequence, c.hidden)


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
