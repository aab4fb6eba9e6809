"""Rules for the parts of diffusion pipelines: latents, noise levels, and the states of a text encoder."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opgraph.inputs.context import Context, pair, rule

TEXT = 77
"""Tokens of a prompt, as the text encoders of most of these pipelines pad it."""
LONG_TEXT = 512
"""The same for transformers over tokens of images or video, whose text encoder is a T5."""
SIDE = 64
"""Latents a side of a picture of 512 pixels."""
CLIP = (21, 60, 104)
"""Frames, rows and columns of the latents of a clip of 81 frames at 480p."""
PACKED_CLIP = (21, 16, 24)
"""The same where latents are packed into tokens, of 161 frames of 512 x 768 pixels."""
_TIME_IDS = 6
_UPSCALED = 8
"""Pixels a latent, along each side."""


def denoises(c: Context) -> bool:
    """Whether the model is a part of a diffusion pipeline: it takes latents and how noisy they are."""
    return c.has("timestep") and bool(c.settings.own("in_channels"))


def _side(c: Context) -> tuple[int, int]:
    return c.request.image_size or pair(c.settings.own("sample_size") or SIDE)


def _clip(c: Context) -> tuple[int, int, int] | None:
    """Frames, rows and columns, for models of video; None for those of pictures."""
    high, wide = (c.settings.own(name) for name in ("sample_height", "sample_width"))
    if high and wide:
        step = c.settings.number("temporal_compression_ratio", default=4)
        return 1 + (c.settings.number("sample_frames", default=1) - 1) // step, high, wide
    over_time = c.settings.own("patch_size_t") or isinstance(
        c.settings.own("patch_size"), (list, tuple)
    )
    return CLIP if over_time else None


def _in_tokens(c: Context) -> bool:
    """Whether latents come as one row of tokens, with their places or their sizes beside them."""
    return c.has("img_ids") or (c.has("height") and c.has("width"))


@rule("sample", needed=True)
def latents(c: Context) -> Tensor:
    """What is denoised, or encoded: pictures, frames of a clip, or tokens of either."""
    channels = c.settings.number("in_channels", default=4)
    clip = _clip(c)
    if _in_tokens(c):
        count = math.prod(PACKED_CLIP if clip else _side(c))
        return c.floats(c.batch, count, channels)
    if clip is not None:
        frames, *size = clip
        first = c.settings.own("sample_frames")
        return c.floats(c.batch, *((frames, channels) if first else (channels, frames)), *size)
    if c.has("added_time_ids"):
        return c.floats(c.batch, c.settings.number("num_frames", default=1), channels, *_side(c))
    return c.floats(c.batch, channels, *_side(c))


@rule("img_ids")
def places(c: Context) -> Tensor:
    """Of each token of the picture: nothing, its row, its column."""
    high, wide = _side(c)
    grid = torch.cartesian_prod(torch.zeros(1), torch.arange(high) * 1.0, torch.arange(wide) * 1.0)
    return grid.to(c.dtype)


rule("txt_ids")(lambda c: torch.zeros(_text(c), 3, dtype=c.dtype))
rule("num_frames")(lambda c: PACKED_CLIP[0] if denoises(c) and _in_tokens(c) else None)
rule("height")(lambda c: PACKED_CLIP[1] if denoises(c) and _in_tokens(c) else None)
rule("width")(lambda c: PACKED_CLIP[2] if denoises(c) and _in_tokens(c) else None)


@rule("controlnet_cond", needed=True)
def control_image(c: Context) -> Tensor:
    """What the picture is to follow, in pixels."""
    high, wide = _side(c)
    channels = c.settings.number("conditioning_channels", default=3)
    return c.floats(c.batch, channels, _UPSCALED * high, _UPSCALED * wide)


@rule("added_time_ids", needed=True)
def clip_conditions(c: Context) -> Tensor:
    """Frames a second, motion and noise."""
    width = c.settings.number("projection_class_embeddings_input_dim")
    return c.floats(c.batch, width // c.settings.number("addition_time_embed_dim", default=256))


@rule("guidance")
def guidance(c: Context) -> Tensor | None:
    return c.floats(c.batch) if c.settings.own("guidance_embeds") else None


def _given(c: Context, name: str) -> bool:
    """Whether a condition is given: where it must be, and to models of latents, which use all they take."""
    return c.required(name) or denoises(c)


rule("timestep")(lambda c: torch.full((c.batch,), 500) if _given(c, "timestep") else None)


@rule("class_labels")
def class_labels(c: Context) -> Tensor | None:
    classes = c.settings.number("num_embeds_ada_norm", "num_class_embeds")
    return torch.zeros(c.batch, dtype=torch.int64) if classes else None


def _text(c: Context) -> int:
    long = _in_tokens(c) or _clip(c) is not None
    usual = c.settings.number("max_text_seq_length", default=LONG_TEXT if long else TEXT)
    return c.request.seq_len or usual


@rule("encoder_hidden_states")
def text_states(c: Context) -> Tensor | None:
    if not _given(c, "encoder_hidden_states"):
        return None
    width = c.settings.number(
        "caption_channels", "joint_attention_dim", "text_embed_dim", "text_dim", "cross_attention_dim",
        "encoder_hidden_size",
    )  # fmt: skip
    return c.floats(c.batch, _text(c), width) if width else None


@rule("encoder_attention_mask", needed=True)
def text_mask(c: Context) -> Tensor:
    return torch.ones(c.batch, _text(c), dtype=torch.int64)


@rule("pooled_projections")
def pooled_text(c: Context) -> Tensor | None:
    width = c.settings.number("pooled_projection_dim")
    return c.floats(c.batch, width) if width and _given(c, "pooled_projections") else None


@rule("added_cond_kwargs")
def conditions(c: Context) -> dict[str, Tensor | None] | None:
    """The pooled prompt and the picture's sizes, for models that add both to the noise level."""
    if c.settings.own("caption_channels"):
        return {"resolution": c.floats(c.batch, 2), "aspect_ratio": c.floats(c.batch, 1)}
    if c.settings.own("addition_embed_type") != "text_time":
        return None
    width = c.settings.number("projection_class_embeddings_input_dim")
    sizes = _TIME_IDS * c.settings.number("addition_time_embed_dim", default=256)
    return {
        "text_embeds": c.floats(c.batch, width - sizes),
        "time_ids": c.floats(c.batch, _TIME_IDS),
    }
