"""Rules for images and video, in the layouts that models want them in."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from opgraph.inputs.context import Context, pair, rule
from opgraph.inputs.model_reading import applied_to
from opgraph.inputs.rules.latents import denoises, latents
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
