"""From the names that a model's code gives to the sizes of an argument to numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from opgraph.inputs import grids
from opgraph.inputs.context import Context

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
    "num_frames": grids.frames,
    "frames": grids.frames,
    "temporal": grids.frames,
    "sequence_len": grids.frames,
    "num_images": lambda _: 1,
    "num_concurrent_media": lambda _: 1,
    "num_videos": lambda _: 1,
    "num_tiles": lambda c: c.settings.number("max_num_tiles", part="vision", default=1),
    "num_patches": lambda c: math.prod(grids.patches(c)) * c.batch,
    "total_patches": lambda c: math.prod(grids.patches(c)) * c.batch,
    "num_image_tokens": lambda c: grids.tokens(c) * c.batch,
    "patch_size": lambda c: grids.patch(c)[0],
    "temporal_patch_size": grids.temporal_patch,
    "spatial_merge_size": grids.merge,
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
