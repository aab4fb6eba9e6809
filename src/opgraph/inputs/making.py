"""Example inputs for a model: the table of rules applied to the signature of its `forward`, and the sizes
of them that can be chosen."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from opgraph.inputs.base import Example, InputRequest, OpenSize
from opgraph.inputs.context import Context, named_dtype
from opgraph.inputs.model_reading import first_layer
from opgraph.inputs.rules import RULES
from opgraph.inputs.rules.structured import MAIN, main_tensor
from opgraph.inputs.rules.text import placeholders
from opgraph.options import TensorSpec
from opgraph.record.errors import InputError
from opgraph.record.remarks import Remark, no_effect
from opgraph.sources.base import Model

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def make_inputs(
    model: Model, request: InputRequest | None = None, *, sizes_only: bool = False
) -> Example:
    """Arguments for one call of the model, or some of the same sizes without numbers that were drawn.

    Required parameters come as positional arguments, the others by name. Raises `InputError` naming
    the arguments that no rule makes.
    """
    request = request or InputRequest()
    if "example" in model.hints and replace(request, new_tokens=0) == InputRequest():
        args_given, kwargs_given = model.hints["example"]
        return Example(tuple(args_given), dict(kwargs_given))
    signature = inspect.signature(model.module.forward)
    context = Context(model, request, signature, sizes_only)
    if request.input_shape is not None:
        context = _of_shape(context, request.input_shape)
    shaped = set(context.made)
    for name, spec in request.overrides.items():
        if name.partition(".")[0] in shaped:
            raise InputError(
                f"{name} is given a shape twice: by input_shape, as the first input, and by name",
                hint="leave out one of them",
            )
        with context.making(name):
            _put(context.made, name, _asked(context, name, spec))
    asked = {name.partition(".")[0] for name in request.overrides}
    for name in asked:
        context.made[name] = _listed(name, context.made[name])
    context.drawn |= {name.partition(".")[0] for name in context.drawn}
    placeholders(context)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    main: list[str] = []
    missing: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind in _VARIABLE:
            continue
        value = _value(context, parameter)
        required = parameter.default is parameter.empty
        if value is None:
            if context.required(parameter.name):
                with context.making(parameter.name):
                    value = _guess(context)
            if value is None and not required:
                continue
            (missing if value is None else context.guessed).append(parameter.name)
        elif parameter.name in MAIN and parameter.name not in asked:
            main.append(parameter.name)
        if required and parameter.kind is not parameter.KEYWORD_ONLY:
            args.append(value)
        else:
            kwargs[parameter.name] = value
    if missing:
        raise InputError(
            f"{model.info.name}: no rule makes {', '.join(missing)}",
            hint=f"give it: --input {missing[0]}=1x16:float32, or inputs= and kwargs= in Python",
        )
    if context.guessed:
        note = f"guessed from what the model's layers take: {', '.join(context.guessed)}"
        context.notes.append(Remark("guessed-inputs", note))
    known = request.input_shape is not None or "input_size" in model.hints
    guessed = () if known else (*main, *context.guessed)
    drawn = tuple(sorted(context.drawn))
    example = Example(tuple(args), kwargs, tuple(context.notes), guessed, drawn)
    _check_agreement(model, request, example)
    return example


def _guess(context: Context) -> Any:
    """For an argument that no rule makes: what the first layer takes; None where there is no such layer, or
    where the library's own configuration should say."""
    if context.model.config is not None or first_layer(context.module) is None:
        return None
    return main_tensor(context)


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
    known = context.shape(name)
    return context.floats(*known) if known else None


def _of_shape(usual: Context, shape: tuple[int, ...]) -> Context:
    """The context in which the first argument that a rule or a guess makes a tensor for has this shape, and
    the others go with it. Raises `InputError` where there is none."""
    for name, parameter in usual.signature.parameters.items():
        value = _value(usual, parameter) if parameter.kind not in _VARIABLE else None
        guessed = value is None and usual.required(name) and parameter.kind not in _VARIABLE
        value = _guess(usual) if guessed else value
        if not isinstance(value, (list, torch.Tensor)):
            continue
        floating = isinstance(value, list) or value.is_floating_point()
        implied = _sized_like(usual.request, shape, floating)
        context = Context(usual.model, implied, usual.signature, usual.sizes_only)
        if isinstance(value, list):
            context.made[name] = [context.floats(*shape[1:]) for _ in range(shape[0])]
        else:
            with context.making(name):
                context.made[name] = context.floats(*shape) if floating else context.ids(*shape)
        context.guessed += [name] * guessed
        return context
    raise InputError(
        f"{usual.model.info.name}: input_shape is of no argument of forward{usual.signature}",
        hint="give one by name, as --input x=1x16:float32, or inputs= and kwargs= in Python",
    )


def _sized_like(request: InputRequest, shape: tuple[int, ...], floating: bool) -> InputRequest:
    """The request with the sizes that the main input's shape implies for the other inputs."""
    implied: dict[str, Any] = {"batch_size": shape[0]}
    if floating and len(shape) >= 4:
        implied["image_size"] = (shape[-2], shape[-1])
    elif not floating and len(shape) == 2:
        implied["seq_len"] = shape[1]
    return replace(request, **implied)


def _put(made: dict[str, Any], name: str, value: torch.Tensor) -> None:
    """An argument, or a part of one that is a dictionary or a list (`batch.image`, `boxes.0`), as a graph
    names it. Raises `InputError` where the whole of it is given, too."""
    *path, last = name.split(".")
    if "" in (*path, last):
        raise InputError(f"{name!r} names no argument", hint="write it like batch.image or boxes.0")
    holder: Any = made
    for key in path:
        holder = holder.setdefault(key, {})
        if not isinstance(holder, dict):
            break
    if not isinstance(holder, dict) or last in holder:
        raise InputError(
            f"{name}: a part of it is given, and the whole", hint="leave out one of them"
        )
    holder[last] = value


def _listed(name: str, value: Any) -> Any:
    """The parts of an argument; where their names are numbers they are those of a list, from 0 on. Raises
    `InputError` where one of these is not there."""
    if not isinstance(value, dict):
        return value
    parts = {key: _listed(f"{name}.{key}", part) for key, part in value.items()}
    if not all(map(str.isdecimal, parts)):
        return parts
    numbers = [str(number) for number in range(len(parts))]
    for number in numbers:
        if number not in parts:
            raise InputError(f"{name}.{number} is not given, and {name} is a list by the others",
                             hint="a list has all parts from 0 on")  # fmt: skip
    return [parts[number] for number in numbers]


def _asked(context: Context, whole: str, spec: TensorSpec) -> torch.Tensor:
    name = whole.partition(".")[0]
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


# Which sizes can be chosen: those that make other inputs when they are asked for.

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
        matching = [i for i, size in enumerate(small) if size == low and large[i : i + 1] == [high]]
        value = usual[matching[0]] if matching and len(usual) == len(small) else 1
        most = context.positions if option == "seq_len" and context.positions > 0 else None
        found.append(OpenSize(option, value, most))
    return tuple(found)


def inputs_at(model: Model, request: InputRequest) -> Example:
    """Inputs at the sizes asked for, with a remark on each that changes nothing.

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
    idle = [option for option in _REMARKED if _changes_nothing(model, request, example, option)]
    for option in idle if request != request.shapeless else ():
        alone = _made(model, request.shapeless)
        if alone is None or not _changes_nothing(model, request.shapeless, alone, option):
            raise _instead(option, f"{option} has no effect beside the shape that is given")
    notes = (
        no_effect(option, f"{model.info.name} takes no {_REMARKED[option]}") for option in idle
    )
    return replace(example, notes=(*example.notes, *notes))


_REMARKED = {
    "batch_size": "batch", "seq_len": "tokens", "decoder_seq_len": "tokens of a decoder",
    "image_size": "images of a chosen size",
}  # fmt: skip


def _changes_nothing(model: Model, request: InputRequest, made: Example, option: str) -> bool:
    """Whether a size was asked for, and changes nothing of the inputs that were made."""
    if getattr(request, option) is None:
        return False
    layout = _layout(made)
    if _at(model, request, option, None) != layout:
        return False
    # It may be what the model takes anyway: then others would make other inputs.
    small, large = (_at(model, request, option, n) for n in _PROBES.get(option, (24, 40)))
    return small is not None and small == large == layout


def _check_agreement(model: Model, request: InputRequest, made: Example) -> None:
    """Raise `InputError` for an argument whose shape is given and says another size than is asked for, in
    the dimensions that follow that size where no shape is given. A decoder has a length of its own."""
    asked = [o for o in _REMARKED if getattr(request, o) is not None]
    if not asked or request == request.shapeless:
        return
    names = list(inspect.signature(model.module.forward).parameters)
    given = _named(made, names)
    for option in asked:
        size = getattr(request, option)
        sides = size if isinstance(size, tuple) else (size,)
        values = _PROBES.get(option, (24, 40))
        plain = request.shapeless
        if option == "seq_len":
            plain = replace(plain, decoder_seq_len=plain.decoder_seq_len or 1)
        probes = [_made(model, _sized(plain, option, n)) for n in values]
        low, high = (_named(p, names) if p is not None else {} for p in probes)
        for name in (*request.overrides, *(given if request.input_shape else ())):
            if not (name in given and name in low and name in high):
                continue
            pairs = list(zip(low[name], high[name], strict=False))
            follows = [i for i, pair in enumerate(pairs) if pair == values][: len(sides)]
            if len(given[name]) != len(pairs) or len(follows) != len(sides):
                continue
            found = tuple(given[name][i] for i in follows)
            if found != sides:
                whose = name if name in request.overrides else "input_shape"
                shape, one, other = ("x".join(map(str, s)) for s in (given[name], found, sides))
                raise _instead(option, f"{whose} {shape} has the {option} {one}, and not {other}")


def _instead(option: str, why: str) -> InputError:
    return InputError(why, hint=f"leave out one of them: {option}, or the shape")


def _named(example: Example, names: list[str]) -> dict[str, list[int]]:
    """The sizes of each argument of a call, by its name."""
    named = {**dict(zip(names, example.args, strict=False)), **example.kwargs}
    return {name: list(_sizes(value)) for name, value in named.items()}


def _sized(request: InputRequest, option: str, value: int | None) -> InputRequest:
    asked: Any = (value, value) if option == "image_size" and value is not None else value
    return replace(request, **{option: asked})


def _made(model: Model, request: InputRequest) -> Example | None:
    """Inputs of these sizes; None where there are none."""
    try:
        return make_inputs(model, request, sizes_only=True)
    except InputError:
        return None


def _at(model: Model, request: InputRequest, option: str, value: int | None) -> list[int] | None:
    found = _made(model, _sized(request, option, value))
    return None if found is None else _layout(found)


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
