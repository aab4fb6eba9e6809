"""Rules for the parts of diffusion pipelines: latents, noise levels, and the states of a text encoder."""

from __future__ import annotations

import torch
from torch import Tensor

from opgraph.inputs.context import Context, pair
from opgraph.inputs.table import rule

TEXT = 77
"""Tokens of a prompt, as the text encoders of these pipelines pad it."""
_TIME_IDS = 6


@rule("sample", needed=True)
def latents(c: Context) -> Tensor:
    """What is denoised, or encoded: at the size in the configuration."""
    size = c.request.image_size or pair(c.settings.own("sample_size"))
    return c.floats(c.batch, c.settings.number("in_channels", default=4), *size)


def _given(c: Context, name: str) -> bool:
    """Whether a condition is given: where it must be, and to models of latents, which use all they take."""
    return c.required(name) or c.settings.own("sample_size") is not None


@rule("timestep")
def noise_level(c: Context) -> Tensor | None:
    return torch.full((c.batch,), 500) if _given(c, "timestep") else None


@rule("class_labels")
def class_labels(c: Context) -> Tensor | None:
    classes = c.settings.number("num_embeds_ada_norm", "num_class_embeds")
    return torch.zeros(c.batch, dtype=torch.int64) if classes else None


@rule("encoder_hidden_states")
def text_states(c: Context) -> Tensor | None:
    if not _given(c, "encoder_hidden_states"):
        return None
    names = (
        "caption_channels",
        "joint_attention_dim",
        "cross_attention_dim",
        "encoder_hidden_size",
    )
    width = c.settings.number(*names)
    return c.floats(c.batch, TEXT, width) if width else None


@rule("pooled_projections")
def pooled_text(c: Context) -> Tensor | None:
    width = c.settings.number("pooled_projection_dim")
    return c.floats(c.batch, width) if width and _given(c, "pooled_projections") else None


@rule("added_cond_kwargs")
def conditions(c: Context) -> dict[str, Tensor | None] | None:
    """The pooled prompt and the picture's sizes, for models that add both to the noise level."""
    if c.settings.own("caption_channels"):
        return {"resolution": None, "aspect_ratio": None}
    if c.settings.own("addition_embed_type") != "text_time":
        return None
    width = c.settings.number("projection_class_embeddings_input_dim")
    sizes = _TIME_IDS * c.settings.number("addition_time_embed_dim", default=256)
    return {
        "text_embeds": c.floats(c.batch, width - sizes),
        "time_ids": c.floats(c.batch, _TIME_IDS),
    }
