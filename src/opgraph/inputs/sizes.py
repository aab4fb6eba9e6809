"""Which sizes of a model's inputs can be chosen: those that make other inputs when they are asked for."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from opgraph.inputs.base import Example, InputRequest, OpenSize
from opgraph.inputs.context import Context
from opgraph.inputs.making import make_inputs
from opgraph.record.errors import InputError
from opgraph.sources.base import Model

_PROBES = {"batch_size": (2, 3), "seq_len": (24, 40), "image_size": (256, 320)}


def open_sizes(model: Model, request: InputRequest | None = None) -> tuple[OpenSize, ...]:
    """The sizes that the model's inputs follow, with their values in this request (or by default)."""
    request = request or InputRequest()
    usual = _layout(make_inputs(model, request))
    context = Context(model, request, inspect.signature(model.module.forward))
    found = []
    for option, (low, high) in _PROBES.items():
        small, large = (_at(model, request, option, value) for value in (low, high))
        if small is None or large is None or small == large:
            continue
        places = [i for i, size in enumerate(small) if size == low and large[i : i + 1] == [high]]
        value = usual[places[0]] if places and len(usual) == len(small) else 1
        most = None
        if option == "seq_len":
            limit = context.settings.number(
                "max_position_embeddings", "n_positions", "max_sequence_length", part="text"
            )
            most = limit if limit > 0 else None
        found.append(OpenSize(option, value, most))
    return tuple(found)


def inputs_at(model: Model, request: InputRequest) -> Example:
    """Inputs at the sizes asked for, with a remark where tokens were asked for and there are none.

    Raises `InputError` for sizes beyond any tensor, too.
    """
    try:
        example = make_inputs(model, request)
    except (RuntimeError, TypeError) as error:
        if "verflow" not in str(error):  # as torch says it: "Overflow when unpacking", "overflowed"
            raise
        raise InputError(
            f"{model.info.name}: a tensor of the sizes asked for has more bytes than can be counted"
        ) from error
    if not _without_tokens(model, request, example):
        return example
    note = f"{model.info.name} takes no tokens: seq_len changes nothing"
    return replace(example, notes=(*example.notes, note))


def _without_tokens(model: Model, request: InputRequest, made: Example) -> bool:
    """Whether a number of tokens was asked for, and changes nothing of the inputs that were made."""
    # One that is among their sizes needs no look at others, which takes inputs of their own.
    if request.seq_len is None or request.seq_len in _layout(made):
        return False
    small, large = (_at(model, request, "seq_len", value) for value in _PROBES["seq_len"])
    return small is not None and small == large


def _at(model: Model, request: InputRequest, option: str, value: int) -> list[int] | None:
    asked: Any = (value, value) if option == "image_size" else value
    try:
        return _layout(make_inputs(model, replace(request, **{option: asked})))
    except InputError:
        return None


def _layout(example: Example) -> list[int]:
    """All sizes of all tensors, and the lengths of lists, in order."""
    return list(_sizes((example.args, example.kwargs)))


def _sizes(value: Any) -> Iterator[int]:
    if isinstance(value, torch.Tensor):
        yield from value.shape
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _sizes(item)
    elif isinstance(value, (list, tuple)):
        yield len(value)
        for item in value:
            yield from _sizes(item)
