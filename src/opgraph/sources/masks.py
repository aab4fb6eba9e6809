"""Choosing elements of a fake tensor by a mask that is real: how many there are is known then, but the fake
mode will not look. The mask is put in as the places that it chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten
INDEXED = frozenset(
    (_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default)
)  # fmt: skip
"""The operators whose results depend on the values of a mask among their arguments."""


def places_for_masks(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of an operator that indexes, with the places that real masks choose instead of them;
    those of others as they are."""
    if func not in INDEXED or not any(map(_is_mask, args[1])):
        return args
    places: list[Tensor | None] = []
    for index in args[1]:
        places += index.nonzero(as_tuple=True) if _is_mask(index) else [index]
    return (args[0], places, *args[2:])


def _is_mask(index: Any) -> bool:
    return (
        isinstance(index, Tensor)
        and not isinstance(index, FakeTensor)
        and index.dtype in (torch.bool, torch.uint8)
        and index.device.type == "cpu"
    )


class RealMasks(TorchDispatchMode):
    """Within, fake tensors can be indexed by real masks."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return func(*places_for_masks(func, args), **(kwargs or {}))
