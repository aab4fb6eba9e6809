"""How arguments that are not tensors are written down: in a few characters, on one line."""

from __future__ import annotations

from typing import Any

import torch

_SHOWN = 120

BY_NAME = {
    "scaled_dot_product_attention": ("", "", "", "attn_mask=", "dropout_p=", "is_causal="),
}
"""What is written before the positional arguments of some operators, so that they are written the same
however they were given: whether attention is causal is read from them."""


def cut(text: str) -> str:
    """The beginning of a text that is too long."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def short(item: Any) -> str:
    """An argument that is not a tensor, in a few characters."""
    if isinstance(item, slice):
        return _slice(item)
    if item is Ellipsis:
        return "..."
    if item is None or isinstance(item, (bool, int, float)):
        return repr(item)
    if isinstance(item, str):
        return repr(item[:40])
    if isinstance(item, (tuple, list)):
        return f"({', '.join(map(short, item[:8]))}{', …' if len(item) > 8 else ''})"
    if isinstance(item, (torch.dtype, torch.device, torch.memory_format, torch.layout)):
        return str(item).removeprefix("torch.")
    return str(getattr(item, "__name__", type(item).__name__))


def _slice(item: slice) -> str:
    ends = ("" if e is None else short(e) for e in (item.start, item.stop))
    step = "" if item.step is None else f":{short(item.step)}"
    return ":".join(ends) + step
