"""Images as rows of patches: how many there are, and of what size."""

from __future__ import annotations

import math

from opgraph.inputs.context import Context, pair

FRAMES = 8
"""Frames of a clip where the configuration does not say."""


def frames(c: Context) -> int:
    """Frames of a clip."""
    return c.settings.number("num_frames", "frames_per_clip", part="vision", default=FRAMES)


def patch(c: Context) -> tuple[int, int]:
    """Height and width of a patch."""
    return pair(c.settings.get("patch_size", "spatial_patch_size", part="vision", default=16))


def temporal_patch(c: Context) -> int:
    """Frames in a patch."""
    return c.settings.number("temporal_patch_size", part="vision", default=1)


def merge(c: Context) -> int:
    """Patches that are merged to one, along each side."""
    return c.settings.number(
        "spatial_merge_size",
        "merge_size",
        "downsample_factor",
        "pooling_kernel_size",
        part="vision",
        default=1,
    )


def patches(c: Context) -> tuple[int, int]:
    """Rows and columns of patches in an image, in whole groups of those that are merged."""
    high, wide = c.image_size
    step_down, step_right = (p * merge(c) for p in patch(c))
    return max(1, high // step_down) * merge(c), max(1, wide // step_right) * merge(c)


def tokens(c: Context) -> int:
    """Groups of merged patches in an image."""
    return math.prod(patches(c)) // merge(c) ** 2


def takes_grid(c: Context) -> bool:
    """Whether images come as one row of patches with a grid that says how they lie."""
    return c.has("image_grid_thw") or c.has("grid_thw")
