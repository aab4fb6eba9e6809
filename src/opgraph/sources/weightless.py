"""Building a module without the memory for its weights.

Inside `weightless()` every parameter is moved to the meta device at the moment a module registers it,
so that the initialization that follows costs nothing, while buffers (position ids, anchors, masks) stay
real. Tensors that are too big even for that moment are made on the meta device from the start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

LIMIT = 256 * 2**20
"""Bytes above which a new tensor is made on the meta device from the start."""

_FACTORIES = frozenset(
    getattr(torch, name)
    for name in (
        "empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "ones_like", "full",
        "full_like", "rand", "rand_like", "randn", "randn_like", "randint", "normal", "eye", "arange",
    )
)  # fmt: skip

_moved: ContextVar[WeakIdKeyDictionary | None] = ContextVar("moved", default=None)
_patch = threading.Lock()
_users = 0
_register = nn.Module.register_parameter


@contextmanager
def weightless(limit: int = LIMIT) -> Iterator[None]:
    """Modules built in this context, in this thread, get their parameters on the meta device.

    Parameters that are shared stay shared. Lazy parameters and those of special classes (quantized
    ones) are left as they are.
    """
    global _users
    token = _moved.set(WeakIdKeyDictionary())
    with _patch:
        _users += 1
        nn.Module.register_parameter = _register_on_meta
    try:
        with _BigOnMeta(limit):
            yield
    finally:
        with _patch:
            _users -= 1
            if not _users:
                nn.Module.register_parameter = _register
        _moved.reset(token)


def _register_on_meta(self: nn.Module, name: str, param: Any) -> None:
    moved = _moved.get()
    if moved is not None and type(param) is nn.Parameter and not param.is_meta:
        param = _on_meta(param, moved)
    _register(self, name, param)


def _on_meta(param: nn.Parameter, moved: WeakIdKeyDictionary) -> nn.Parameter:
    if param not in moved:
        twin = nn.Parameter(param.detach().to("meta"), requires_grad=param.requires_grad)
        twin.__dict__.update(param.__dict__)
        moved[param] = twin
    found: nn.Parameter = moved[param]
    return found


class _BigOnMeta(TorchFunctionMode):
    """Sends the factory calls whose result would be larger than `limit` bytes to the meta device."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _FACTORIES:
            # `pin_memory` and generators do not go with the meta device.
            bare = {k: v for k, v in kwargs.items() if k not in ("pin_memory", "generator", "out")}
            planned = func(*args, **{**bare, "device": "meta"}) if "out" not in kwargs else None
            if planned is not None and planned.nbytes > self.limit:
                return planned
        return func(*args, **kwargs)
