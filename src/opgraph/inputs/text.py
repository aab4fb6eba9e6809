"""Rules for token ids and what goes beside them."""

from __future__ import annotations

import torch
from torch import Tensor

from opgraph.inputs.context import Context
from opgraph.inputs.placeholders import placeholders
from opgraph.inputs.table import rule


@rule("input_ids")
def token_ids(c: Context) -> Tensor:
    """Text, with the places for images and sounds in it where the model puts their features there."""
    dims = c.dims("input_ids")
    if dims is not None and len(dims) == 3:
        books = c.settings.number("num_codebooks", "num_channels", default=1)
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
    dims = c.dims("decoder_input_ids")
    if dims is not None and len(dims) == 3:
        books = c.settings.number("num_codebooks", "num_channels", part="decoder", default=1)
        return c.ids(c.batch, c.decoder_sequence, books, below=below)
    return c.ids(c.batch, c.decoder_sequence, below=below)


@rule("position_ids", needed=True)
def positions(c: Context) -> Tensor:
    return torch.arange(c.sequence).expand(c.batch, -1)


@rule("inputs_embeds", needed=True)
def token_embeddings(c: Context) -> Tensor:
    return c.floats(c.batch, c.sequence, c.hidden)
