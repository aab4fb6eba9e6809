"""What torch functions are called: as their author spelled them, canonically, and with where they live."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

import torch

from opgraph.record.names import canonical

LAUNCHED = "triton"
"""The namespace of the operators that stand for kernels which a forward launches, by what those are called:
one called `double` is not torch's."""


@lru_cache(maxsize=4096)
def names(func: Any) -> tuple[str, str, str]:
    """What a torch function is called: as its author spelled it, canonically, and with where it lives."""
    name = spelled(func)
    own = getattr(func, "namespace", None) == LAUNCHED
    return name, name if own else canonical(name), target(func)


def spelled(func: Any) -> str:
    """The name of a torch function as its author wrote it: "conv2d", "__add__", "T"."""
    name: str = getattr(func, "__name__", None) or type(func).__name__
    if name in ("__get__", "__set__"):
        owner = getattr(func, "__self__", None)
        return str(getattr(owner, "__name__", name))
    packet = getattr(func, "_overloadpacket", None)
    return str(packet.__name__) if packet is not None else name


def target(func: Any) -> str:
    """A torch function with where it lives: "torch.conv2d", "Tensor.add_", "aten.mm.default"."""
    if hasattr(func, "_overloadpacket"):
        return str(func)
    name = spelled(func)
    if hasattr(func, "__objclass__") or getattr(func, "__name__", "") in ("__get__", "__set__"):
        return f"Tensor.{name}"
    if type(func).__name__ == "builtin_function_or_method":
        module = getattr(func, "__module__", None) or "torch"
        return f"{module.replace('torch._C._nn', 'torch.nn.functional')}.{name}"
    return f"{getattr(func, '__module__', 'torch')}.{name}"


# How arguments that are not tensors are written down: in a few characters, on one line.

_SHOWN = 120

_NO_DEFAULT = object()


@lru_cache(maxsize=4096)
def positional(func: Any) -> tuple[tuple[str, Any], ...]:
    """What is written before each positional argument of a function ("stride="), and its default; so they
    are written the same however they were given. Methods, and functions whose overloads disagree about
    names, have none."""
    overloads = [s for s in _schemas(func) if s]
    if overloads:
        longest = max(overloads, key=len)
        kept = []
        for i, (name, default) in enumerate(longest):
            if any(len(o) > i and o[i][0] != name for o in overloads):
                break
            kept.append((f"{name}=", default))
        return tuple(kept)
    return ()


def _schemas(func: Any) -> list[tuple[tuple[str, Any], ...]]:
    """The names and defaults of the positional arguments of each overload, as far as torch tells."""
    if hasattr(func, "_schema"):
        return [_of_schema(func._schema)]
    if hasattr(func, "__objclass__") or getattr(func, "__name__", "").startswith("__"):
        return []
    if type(func).__name__ == "builtin_function_or_method":
        packet = getattr(torch.ops.aten, getattr(func, "__name__", ""), None)
        names = [n for n in packet.overloads() if "out" not in n] if packet is not None else []
        return [_of_schema(getattr(packet, n)._schema) for n in names]
    try:
        given = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        tuple(
            (p.name, _NO_DEFAULT if p.default is inspect.Parameter.empty else p.default)
            for p in given
            if p.kind in kinds
        )
    ]


def _of_schema(schema: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (a.name, a.default_value if a.has_default_value() else _NO_DEFAULT)
        for a in schema.arguments
        if not a.kwarg_only
    )


def usual(value: Any, default: Any) -> bool:
    """Whether a value is what an argument has when nothing is said; (1, 1) is the same as 1."""
    values, defaults = _list(value), _list(default)
    if len(values) != len(defaults) and 1 not in (len(values), len(defaults)):
        return False
    if not values or not defaults:
        return values == defaults
    pairs = zip(values * len(defaults), defaults * len(values), strict=False)
    return all(type(v) is type(d) and v == d for v, d in pairs)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def cut(text: str) -> str:
    """The beginning of a text that is too long."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def short(item: Any) -> str:
    """An argument that is not a tensor, in a few characters."""
    if isinstance(item, slice):
        return _slice(item)
    if item is Ellipsis:
        return "..."
    if item is None or isinstance(item, (bool, int, float)):
        return repr(item)
    if isinstance(item, str):
        return repr(item[:40])
    if isinstance(item, (tuple, list)):
        return f"({', '.join(map(short, item[:8]))}{', …' if len(item) > 8 else ''})"
    if isinstance(item, (torch.dtype, torch.device, torch.memory_format, torch.layout)):
        return str(item).removeprefix("torch.")
    return str(getattr(item, "__name__", type(item).__name__))


def _slice(item: slice) -> str:
    ends = ("" if e is None else short(e) for e in (item.start, item.stop))
    step = "" if item.step is None else f":{short(item.step)}"
    return ":".join(ends) + step
