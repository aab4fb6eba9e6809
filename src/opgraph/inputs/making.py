"""Example inputs for a model: the table of rules applied to the signature of its `forward`."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch

from opgraph.inputs.base import Example, InputRequest
from opgraph.inputs.context import Context, named_dtype
from opgraph.inputs.dims import shape
from opgraph.inputs.rules import RULES
from opgraph.inputs.rules.text import placeholders
from opgraph.options import TensorSpec
from opgraph.record.errors import InputError
from opgraph.sources.base import Model

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def make_inputs(model: Model, request: InputRequest | None = None) -> Example:
    """Arguments for one call of the model.

    Required parameters come as positional arguments, the others by name. Raises `InputError` naming
    the arguments that no rule makes.
    """
    request = request or InputRequest()
    if "example" in model.hints and replace(request, new_tokens=0) == InputRequest():
        args_given, kwargs_given = model.hints["example"]
        return Example(tuple(args_given), dict(kwargs_given))
    signature = inspect.signature(model.module.forward)
    context = Context(model, request, signature)
    if request.input_shape is not None:
        context = _of_shape(context, request.input_shape)
    for name, spec in request.overrides.items():
        context.made[name] = _asked(context, name, spec)
    placeholders(context)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    missing: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind in _VARIABLE:
            continue
        value = _value(context, parameter)
        required = parameter.default is parameter.empty
        if value is None:
            if required:
                missing.append(parameter.name)
            continue
        if required and parameter.kind is not parameter.KEYWORD_ONLY and not missing:
            args.append(value)
        else:
            kwargs[parameter.name] = value
    if missing:
        raise InputError(
            f"{model.info.name}: no rule makes {', '.join(missing)}",
            hint=f"give it: --input {missing[0]}=1x16:float32, or inputs= and kwargs= in Python",
        )
    return Example(tuple(args), kwargs, tuple(context.notes))


def _value(context: Context, parameter: inspect.Parameter) -> Any:
    name = parameter.name
    if name in context.made:
        return context.made[name]
    rule = RULES.get(name)
    if rule is None:
        return _from_names(context, name) if context.required(name) else None
    if rule.needed and not context.required(name):
        return None
    return context.value(name)


def _from_names(context: Context, name: str) -> Any:
    """For a parameter that no rule knows: random numbers, where the model's code says of what shape."""
    known = shape(context, name)
    return context.floats(*known) if known else None


def _of_shape(usual: Context, shape: tuple[int, ...]) -> Context:
    """The context in which the first argument that a rule makes a tensor for has this shape, and the
    others go with it."""
    for name, parameter in usual.signature.parameters.items():
        value = _value(usual, parameter) if parameter.kind not in _VARIABLE else None
        if not isinstance(value, (list, torch.Tensor)):
            continue
        floating = isinstance(value, list) or value.is_floating_point()
        context = Context(usual.model, _sized_like(usual.request, shape, floating), usual.signature)
        if isinstance(value, list):
            context.made[name] = [context.floats(*shape[1:]) for _ in range(shape[0])]
        else:
            context.made[name] = context.floats(*shape) if floating else context.ids(*shape)
        return context
    return usual


def _sized_like(request: InputRequest, shape: tuple[int, ...], floating: bool) -> InputRequest:
    """The request with the sizes that the main input's shape implies for the other inputs.

    Raises `InputError` where others were asked for.
    """
    implied: dict[str, Any] = {"batch_size": shape[0]}
    if floating and len(shape) >= 4:
        implied["image_size"] = (shape[-2], shape[-1])
    elif not floating and len(shape) == 2:
        implied["seq_len"] = shape[1]
    for option, size in implied.items():
        asked = getattr(request, option)
        if asked is not None and asked != size:
            raise InputError(
                f"input_shape {'x'.join(map(str, shape))} has the {option} {size}, and not {asked}",
                hint=f"leave out one of them: {option}, or input_shape",
            )
    return replace(request, **implied)


def _asked(context: Context, name: str, spec: TensorSpec) -> torch.Tensor:
    if not context.has(name) and not any(
        p.kind is p.VAR_KEYWORD for p in context.signature.parameters.values()
    ):
        known = [n for n, p in context.signature.parameters.items() if p.kind not in _VARIABLE]
        raise InputError(f"the model takes no argument {name}", hint="it takes " + ", ".join(known))
    if spec.dtype is None:
        return context.floats(*spec.shape)
    dtype = named_dtype(spec.dtype)
    if dtype.is_floating_point:
        return context.floats(*spec.shape).to(dtype)
    if dtype is torch.bool:
        return torch.ones(spec.shape, dtype=dtype)
    return context.ids(*spec.shape).to(dtype)
