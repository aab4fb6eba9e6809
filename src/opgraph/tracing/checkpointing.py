"""Activation checkpointing for a step of training: blocks keep their inputs alone, and run again when their
gradients are computed. A model of transformers says itself which blocks those are; elsewhere they are the
repeated ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from opgraph.errors import InputError


def enable(module: nn.Module, again: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Let the blocks of a module be checkpointed. `again` wraps what is run anew in the backward. What is
    changed in the module is for the caller to undo (see `opgraph.tracing.weights.untouched`).

    Raises `InputError` when the model has no repeated blocks.
    """

    def kept(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # The state of random numbers decides nothing that is counted, and is slow to keep.
        return checkpoint(
            again(function), *args, use_reentrant=False, preserve_rng_state=False, **kwargs
        )

    if getattr(module, "supports_gradient_checkpointing", False):
        enabled: Any = module.gradient_checkpointing_enable
        enabled()
        for part in module.modules():
            if getattr(part, "gradient_checkpointing", False):
                part._gradient_checkpointing_func = kept
        return
    blocks = list(repeated(module))
    if not blocks:
        raise InputError(f"{type(module).__name__} has no repeated blocks to checkpoint")
    for block in blocks:
        block.forward = partial(kept, block.forward)


def repeated(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost modules made of others that stand in a list with more of their class."""
    same = Counter(type(part) for part in module.children())
    listed = isinstance(module, (nn.ModuleList, nn.Sequential))
    for part in module.children():
        made_of_others = next(part.children(), None) is not None
        if listed and same[type(part)] > 1 and made_of_others:
            yield part
        else:
            yield from repeated(part)
