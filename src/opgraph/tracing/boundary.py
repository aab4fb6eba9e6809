"""A forward whose arguments and results are plain containers of tensors, for tools that take nothing else
(`torch.export`, ONNX): caches, model outputs and other objects are taken apart at the boundary and put
together again behind it. Nothing is registered anywhere, so nothing has to be taken back."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from opgraph.tracing.values import tensors_in


def plain_arguments(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with every object that holds tensors replaced by the list of its tensors."""
    return tuple(_apart(a) for a in args), {k: _apart(a) for k, a in kwargs.items()}


def plain_forward(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Callable[..., Any]:
    """`forward` as a function of what `plain_arguments` gives for these arguments, with a plain result:
    tensors, numbers, tuples and dicts with texts as keys."""

    @functools.wraps(forward)
    def plain(*given: Any, **named: Any) -> Any:
        whole = [_together(a, model) for a, model in zip(given, args, strict=True)]
        rest = {k: _together(a, kwargs[k]) for k, a in named.items()}
        return plain_result(forward(*whole, **rest))

    return plain


def plain_result(result: Any) -> Any:
    """A result as plain containers; an object that is none becomes the tuple of its tensors."""
    if result is None or isinstance(result, (Tensor, int, float, bool, str)):
        return result
    if isinstance(result, Mapping):
        return {str(k): plain_result(v) for k, v in result.items() if v is not None}
    if isinstance(result, (list, tuple)):
        return tuple(plain_result(v) for v in result)
    return tuple(tensors_in(result))


def _is_plain(item: Any) -> bool:
    if isinstance(item, (list, tuple)):
        return type(item) in (list, tuple) and all(map(_is_plain, item))
    if isinstance(item, dict):
        return type(item) is dict and all(map(_is_plain, item.values()))
    return item is None or isinstance(item, (Tensor, int, float, bool, str))


def _apart(item: Any) -> Any:
    return item if _is_plain(item) else tensors_in(item)


def _together(parts: Any, model: Any) -> Any:
    """The object that `parts` came from, with these tensors in the place of its own."""
    if _is_plain(model):
        return parts
    return copy.deepcopy(model, {id(t): p for t, p in zip(tensors_in(model), parts, strict=True)})
