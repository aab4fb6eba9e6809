"""Devices that a model names and that are not here: what it makes on them or moves to them is on the CPU
instead, where it costs the same, so that a model written for a GPU can be looked at without one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

_CPU = torch.device("cpu")
_ACCELERATORS = frozenset({"cuda", "xpu", "mps"})
_TO = Tensor.to
_ACROSS: tuple[Any, ...] = (Tensor.cuda, Tensor.xpu)
MOVES = frozenset((_TO, *_ACROSS))
"""Functions that move a tensor; of the others, those that take a `device` do."""


def brought_here(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A call without devices that are not here."""
    if func in _ACROSS:
        device = "cuda" if func is Tensor.cuda else "xpu"
        return (func, args, kwargs) if _is_here(device) else (Tensor.cpu, args[:1], {})
    if func is _TO:
        args = tuple(_CPU if _is_away(item) else item for item in args)
    if _is_away(kwargs.get("device")):
        kwargs = {**kwargs, "device": _CPU}
    return func, args, kwargs


def _is_away(item: Any) -> bool:
    return isinstance(item, (str, torch.device)) and not _is_here(str(item))


@cache
def _is_here(name: str) -> bool:
    try:
        device = torch.device(name)
    except RuntimeError:
        return True  # it is none, and torch will say so
    if device.type not in _ACCELERATORS:
        return True
    module = torch.get_device_module(device)
    return bool(module.is_available()) and (device.index or 0) < int(module.device_count())
