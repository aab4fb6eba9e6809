"""From the names that a model's code gives to the sizes of an argument to numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from opgraph.inputs.context import Context, pair

# Images as rows of patches: how many there are, and of what size.

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


_KNOWN: dict[str, Callable[[Context], int]] = {
    "batch_size": lambda c: c.batch,
    "bsz": lambda c: c.batch,
    "sequence_length": lambda c: c.sequence,
    "seq_len": lambda c: c.sequence,
    "seq_length": lambda c: c.sequence,
    "target_sequence_length": lambda c: c.decoder_sequence,
    "num_channels": lambda c: c.channels,
    "channels": lambda c: c.channels,
    "height": lambda c: c.image_size[0],
    "width": lambda c: c.image_size[1],
    "image_size": lambda c: c.image_size[0],
    "num_frames": frames,
    "frames": frames,
    "temporal": frames,
    "sequence_len": frames,
    "num_images": lambda _: 1,
    "num_concurrent_media": lambda _: 1,
    "num_videos": lambda _: 1,
    "num_tiles": lambda c: c.settings.number("max_num_tiles", part="vision", default=1),
    "num_patches": lambda c: math.prod(patches(c)) * c.batch,
    "total_patches": lambda c: math.prod(patches(c)) * c.batch,
    "num_image_tokens": lambda c: tokens(c) * c.batch,
    "patch_size": lambda c: patch(c)[0],
    "temporal_patch_size": temporal_patch,
    "spatial_merge_size": merge,
    "num_codebooks": lambda c: c.settings.number("num_codebooks", "num_channels", part="decoder"),
    "embed_dim": lambda c: c.hidden,
    "hidden_size": lambda c: c.hidden,
}


def size(c: Context, name: str) -> int | None:
    """The number that a name of a size stands for: a number, a known name, a setting of that name, or a
    product of such; None where it cannot be told."""
    factors = [_factor(c, part.strip()) for part in re.split(r"(?<!\*)\*(?!\*)", name)]
    numbers = [f for f in factors if f]
    return math.prod(numbers) if len(numbers) == len(factors) else None


def _factor(c: Context, name: str) -> int | None:
    found: int | None
    base, _, power = (part.strip() for part in name.partition("**"))
    base = base.removeprefix("config.").removeprefix("self.config.")
    if base.isdigit():
        found = int(base)
    elif base in _KNOWN:
        found = _KNOWN[base](c)
    else:
        found = c.settings.number(base)
    return found if found is None else math.prod([found] * int(power or 1))


def shape(c: Context, argument: str) -> tuple[int, ...] | None:
    """The shape of an argument from the names of its sizes, where all of them can be told."""
    found = [size(c, name) for name in c.dims(argument)]
    known = [n for n in found if n is not None]
    return tuple(known) if found and len(known) == len(found) else None
