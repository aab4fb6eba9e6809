"""A model whose images lie with their channels last (`torch.channels_last`), as cuDNN's convolutions on
matrix units want them: weights and inputs of four dimensions, which convolutions hand on to results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from opgraph.inputs.base import Example
from opgraph.record.errors import InputError
from opgraph.sources.base import Model
from opgraph.tracing.parts import buffers_of, parameters_of
from opgraph.tracing.state.asking import asking
from opgraph.tracing.state.copies import copied

_KEY = "memory_format"


def channels_last(model: Model) -> Model:
    """The model with its weights of four dimensions so; a module of the caller's own is left as it is.

    Raises `InputError` where there are none: then the layout changes nothing.
    """
    if _KEY in model.hints:
        return model
    weights = {id(w): w for w in parameters_of(model.module) if _images(w)}
    if not weights:
        raise InputError(
            f"{model.info.name} has no weights of four dimensions: channels_last changes nothing",
            hint="it is for models with convolutions over images",
        )
    memo: dict[int, Any] = {id(b): b for b in buffers_of(model.module)}
    for weight in parameters_of(model.module):
        data = weight.detach()
        laid = data.contiguous(memory_format=torch.channels_last) if id(weight) in weights else data
        memo[id(weight)] = nn.Parameter(laid, requires_grad=weight.requires_grad)
    remake = model.materialize

    def made() -> nn.Module:
        again: nn.Module = remake()  # type: ignore[misc]
        return again.to(memory_format=torch.channels_last)

    note = "weights and inputs of four dimensions have their channels last in memory"
    return replace(
        model,
        module=copied(model.module, memo),
        info=model.info.noting(note),
        hints={**model.hints, _KEY: "channels_last"},
        materialize=None if remake is None else made,
    )


def laid_out(model: Model, example: Example) -> Example:
    """The inputs as the model's weights lie."""
    if _KEY not in model.hints:
        return example

    def laid(tensor: Tensor) -> Tensor:
        return tensor.contiguous(memory_format=torch.channels_last) if _images(tensor) else tensor

    with asking(*example.given):
        args, kwargs = tree_map_only(Tensor, laid, (example.args, dict(example.kwargs)))
    return replace(example, args=args, kwargs=kwargs)


def _images(tensor: Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_floating_point() and not nn.parameter.is_lazy(tensor)
