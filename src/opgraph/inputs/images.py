"""Rules for images and video, in the layouts that models want them in."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from opgraph.inputs.context import Context, pair
from opgraph.inputs.placeholders import encoder_needs
from opgraph.inputs.table import rule

FRAMES = 8
_PAIR = 2
_FRAME_NAMES = ("num_frames", "frames", "temporal", "n_frames")


@rule("pixel_values", "image_pixel_values", "pixel_values_images")
def pixel_values(c: Context) -> Tensor:
    """A batch of images; patches in a row where the model takes a grid of them; tiles, frames or several
    images to a sample where the model's code takes them apart."""
    dims = c.dims("pixel_values") or ()
    if takes_grid(c):
        count = int(math.prod(patches(c))) * c.batch
        if len(dims) > 4:
            return c.floats(c.batch, count // c.batch, c.channels, *patch(c))
        return c.floats(count, c.channels * temporal_patch(c) * math.prod(patch(c)))
    if c.has("spatial_shapes"):
        return c.floats(c.batch, math.prod(patches(c)), c.channels * math.prod(patch(c)))
    if c.settings.get("image_grid_pinpoints") is not None:
        return c.floats(c.batch, tiles(c), *c.image)
    leading = [_count(c, name) for name in dims[1:-3]]
    return c.floats(c.batch, *leading, *c.image)


def _count(c: Context, name: str) -> int:
    """How many of what a model's code calls so are in one sample."""
    if name in _FRAME_NAMES:
        return frames(c)
    if name == "num_tiles":
        return c.settings.number("max_num_tiles", part="vision", default=1)
    if name == "_":
        return _PAIR
    return 1


@rule("pixel_values_videos", needed=True)
def video(c: Context) -> Tensor:
    return c.floats(c.batch, frames(c), *c.image)


def frames(c: Context) -> int:
    """Frames of a clip, as the configuration says."""
    return c.settings.number("num_frames", "frames_per_clip", part="vision", default=FRAMES)


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


def takes_grid(c: Context) -> bool:
    """Whether images come as one row of patches with a grid that says how they lie."""
    return c.has("image_grid_thw") or c.has("grid_thw")


def patch(c: Context) -> tuple[int, int]:
    """Height and width of a patch."""
    return pair(c.settings.get("patch_size", "spatial_patch_size", part="vision", default=16))


def temporal_patch(c: Context) -> int:
    """Frames in a patch."""
    return c.settings.number("temporal_patch_size", part="vision", default=1)


def patches(c: Context) -> tuple[int, int]:
    """Rows and columns of patches in an image, whole groups of those that the model merges."""
    merge = c.settings.number(
        "spatial_merge_size", "merge_size", "downsample_factor", part="vision", default=1
    )
    height, width = c.image_size
    rows, columns = (
        max(1, n // (p * merge)) * merge for n, p in zip((height, width), patch(c), strict=True)
    )
    return rows, columns


@rule("image_grid_thw", "grid_thw")
def grid(c: Context) -> Tensor:
    """Frames, rows and columns of patches of each image."""
    return torch.tensor([[1, *patches(c)]]).expand(c.batch, -1).clone()


@rule("hidden_states", needed=True)
def patch_rows(c: Context) -> Tensor | None:
    """Patches in a row for a vision encoder that takes them so; no rule for other hidden states."""
    return pixel_values(c) if takes_grid(c) else None


@rule("spatial_shapes")
def grid_sizes(c: Context) -> Tensor:
    """Rows and columns of patches of each image."""
    return torch.tensor([patches(c)]).expand(c.batch, -1).clone()


@rule("pixel_attention_mask", needed=True)
def patch_mask(c: Context) -> Tensor:
    return torch.ones(c.batch, math.prod(patches(c)), dtype=torch.int64)


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
