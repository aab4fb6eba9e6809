"""Rules for images and video, and for the parts of diffusion pipelines."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from opgraph.inputs.context import Context, pair, rule
from opgraph.inputs.model_reading import applied_to, joined
from opgraph.inputs.rules.text import encoder_needs

_PAIR = 2


@rule("pixel_values", "image_pixel_values")
def pixel_values(c: Context) -> Tensor:
    """A batch of images; patches in a row where the model takes a grid of them or its first layer is
    linear; tiles, frames or several images to a sample where the model's code takes them apart."""
    names = c.dims("pixel_values")
    width = c.channels * math.prod(c.patch)
    layer = applied_to(c.module, "pixel_values")
    if c.has("target_sizes"):
        high, wide = c.patch
        return c.floats(1, c.channels, high, wide * c.batch * math.prod(c.patches))
    if c.takes_grid:
        known = c.shape("pixel_values")
        if known is not None and (len(known) == 2 or names[0] == "num_image_tokens"):
            return c.floats(*known)
        count = math.prod(c.patches)
        if isinstance(layer, nn.Linear):
            return c.floats(c.batch * count, layer.in_features)
        if isinstance(layer, nn.Conv2d):
            return c.floats(c.batch * count, c.channels, *c.patch)
        if len(names) == 5:
            return c.floats(c.batch, count, c.channels, *c.patch)
        return c.floats(c.batch * count, width * c.temporal_patch)
    if c.has("spatial_shapes") or (isinstance(layer, nn.Linear) and not c.has("image_grid_hw")):
        count = math.prod(c.patches)
        return c.floats(c.batch, count, getattr(layer, "in_features", width))
    if c.settings.get("image_grid_pinpoints") is not None:
        return c.floats(c.batch, tiles(c), *c.image)
    if c.has("prompt_pixel_values"):
        return c.floats(c.batch, *_half(c))
    leading = names[1:] if len(names) == 2 else names[1:-3]
    if not leading and joined(c.module, "pixel_values"):
        leading = ("num_images",)
    return c.floats(
        c.batch, *(_PAIR if n == "_" else c.named_size(n) or 1 for n in leading), *c.image
    )


@rule("high_res_pixel_values")
def large_image(c: Context) -> Tensor | None:
    """A second, larger picture of the same, for models that look twice."""
    if c.beside("pixel_values") is None:
        return None
    size = c.settings.own("image_size", part="large vision")
    return c.floats(c.batch, c.channels, *pair(size))


@rule("pixel_values_videos")
def video(c: Context) -> Tensor | None:
    """Frames over time, for models that take nothing else to look at."""
    if c.has("pixel_values") and not c.required("pixel_values_videos"):
        return None
    return c.floats(c.batch, c.frames, *c.image)


@rule("images")
def images(c: Context) -> Any:
    """A batch, or a list of images where the annotation says so (torchvision's detectors)."""
    annotation = str(c.signature.parameters["images"].annotation)
    if "list" not in annotation.lower():
        return image(c)
    size = c.request.image_size or c.model.hints.get("input_size", c.image)[-2:]
    return [c.floats(c.channels, *size) for _ in range(c.batch)]


@rule("image1", "image2")
def image(c: Context) -> Tensor:
    """A batch of images at the size that the source knows, else at that of the configuration."""
    size = tuple(c.model.hints.get("input_size", c.image))
    if c.request.image_size is not None:
        size = (*size[:-2], *c.request.image_size)
    return c.floats(c.batch, *size)


# Grids of patches


@rule("image_grid_thw", "grid_thw")
def grid(c: Context) -> Tensor:
    """Frames, rows and columns of patches of each image."""
    return torch.tensor([[1, *c.patches]]).expand(c.batch, -1).clone()


@rule("hidden_states", needed=True)
def patch_rows(c: Context) -> Tensor | None:
    """Patches in a row for a vision encoder that takes them so, latents for a diffusion transformer; no
    rule for other hidden states."""
    if c.takes_grid:
        return pixel_values(c)
    return latents(c) if denoises(c) else None


@rule("spatial_shapes", "target_sizes")
def grid_sizes(c: Context) -> Tensor:
    """Rows and columns of patches of each image."""
    return torch.tensor([c.patches]).expand(c.batch, -1).clone()


@rule("merge_sizes", "image_merge_sizes")
def merge_sizes(c: Context) -> Tensor:
    """Patches that are merged to one, along each side, for each image."""
    return torch.full((c.batch,), c.merge)


@rule("pixel_attention_mask")
def patch_mask(c: Context) -> Tensor | None:
    """Of patches or tiles, for models that cannot do without."""
    if not (c.required("pixel_attention_mask") or encoder_needs(c, "pixel_attention_mask")):
        return None
    images = c.value("pixel_values")
    return torch.ones(images.shape[:2], dtype=torch.bool)


@rule("pixel_position_ids", "image_position_ids")
def patch_places(c: Context) -> Tensor | None:
    """Column and row of each patch."""
    if c.beside("pixel_values") is None:
        return None
    rows, columns = c.patches
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).flip(-1)
    return places.expand(c.batch, -1, -1).clone()


@rule("image_attention_mask")
def seen_images(c: Context) -> Tensor | None:
    """Which images each token may look at: the one there is."""
    ids = c.beside("input_ids")
    if ids is None or c.beside("pixel_values") is None or c.has("bool_masked_pos"):
        return None  # where patches are masked it is a mask of patches
    return torch.ones(*ids.shape, 1, dtype=torch.int64)


@rule("image_sizes")
def image_sizes(c: Context) -> Tensor | None:
    """Height and width of each image before it was cut or padded, for models that cannot do without."""
    if not (c.required("image_sizes") or encoder_needs(c, "image_sizes")):
        return None
    return torch.tensor([c.image_size]).expand(c.batch, -1).clone()


def tiles(c: Context) -> int:
    """Pieces that an image is cut into, for the best of the resolutions the model knows, and the whole."""
    from transformers.image_processing_utils import select_best_resolution

    side = c.settings.number("image_size", part="vision", default=c.image_size[0])
    best = select_best_resolution(c.image_size, c.settings.get("image_grid_pinpoints"))
    return 1 + int((best[0] // side) * (best[1] // side))


# Which of the known arrangements of tiles each image has: the first.
rule("aspect_ratio_ids")(lambda c: torch.ones(c.batch, 1, dtype=torch.int64))


@rule("aspect_ratio_mask")
def tile_mask(c: Context) -> Tensor:
    """Which tiles are there: all."""
    tiles_there = c.named_size("num_tiles") or 1
    return torch.ones(c.batch, 1, tiles_there, dtype=torch.int64)


@rule("bool_masked_pos", needed=True)
def masked_patches(c: Context) -> Tensor:
    return torch.zeros(c.batch, math.prod(c.patches), dtype=torch.bool)


rule("prompt_pixel_values", needed=True)(lambda c: c.floats(c.batch, *_half(c)))
rule("prompt_masks", needed=True)(lambda c: c.floats(c.batch, *_half(c)))


def _half(c: Context) -> tuple[int, int, int]:
    """The size of an image that the model puts below another one."""
    high, wide = c.image_size
    return c.channels, high // 2, wide


# Rules for the parts of diffusion pipelines: latents, noise levels, and the states of a text encoder.


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
