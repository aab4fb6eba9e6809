"""A module that the caller already has: taken as it is, out of the wrappers that hide it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opgraph.record.errors import SourceError
from opgraph.record.profile import ModelInfo
from opgraph.sources.base import Model

if TYPE_CHECKING:
    from torch import nn


def from_module(module: nn.Module) -> Model:
    """The module itself: neither copied nor changed. Raises `SourceError` for what is no module."""
    _ensure_module(module)
    inner, notes = _unwrap(module)
    cls = type(inner)
    return Model(
        module=inner,
        info=ModelInfo(cls.__name__, "object", f"{cls.__module__}.{cls.__qualname__}", notes),
        config=getattr(inner, "config", None),
        hints={},
        materialize=None,
    )


def _ensure_module(thing: Any) -> None:
    from torch import nn

    if isinstance(thing, nn.Module):
        return
    if isinstance(thing, type):
        name = thing.__name__
        raise SourceError(f"{name} is a class, and no model yet", hint=f"make one of it: {name}()")
    raise SourceError(
        f"{thing!r:.80} is of the type {type(thing).__name__}, and no model",
        hint="a model is a torch.nn.Module, or the name of one",
    )


def _unwrap(module: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    from torch import nn

    notes: tuple[str, ...] = ()
    while True:
        if type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod"):
            notes += ("out of torch.compile",)
            module = module._orig_mod
        elif isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            notes += (f"out of {type(module).__name__}",)
            module = module.module
        elif _has_adapters(module):
            notes += ("with its adapters in place",)
            module = module.get_base_model()
        else:
            return module, notes


def _has_adapters(module: nn.Module) -> bool:
    """Whether it is peft's wrapper around a model whose layers it has replaced (LoRA and kin). Wrappers
    that put a prompt before the input do work of their own, and stay."""
    ours = type(module).__module__.startswith("peft.")
    return ours and not getattr(module.active_peft_config, "is_prompt_learning", False)
