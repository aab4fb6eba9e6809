"""Canonical operator names: the same computation has the same name whichever tracer found it and however
the model spelled it (`x + y`, `torch.add`, `x.add_(y)` and `aten.add.Tensor` are all "add")."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

import torch

_SYNONYMS = {
    "__iadd__": "add", "__radd__": "add", "__isub__": "sub", "__rsub__": "sub", "rsub": "sub",
    "__imul__": "mul", "__rmul__": "mul", "__truediv__": "div", "__itruediv__": "div",
    "__rtruediv__": "div", "__rdiv__": "div", "__idiv__": "div", "true_divide": "div", "divide": "div",
    "__floordiv__": "floor_divide", "__rfloordiv__": "floor_divide", "__ifloordiv__": "floor_divide",
    "floordiv": "floor_divide", "truediv": "div",
    "__rpow__": "pow", "__ipow__": "pow", "__rmatmul__": "matmul", "__imatmul__": "matmul",
    "__mod__": "remainder", "__rmod__": "remainder", "mod": "remainder", "__imod__": "remainder",
    "__and__": "bitwise_and", "__iand__": "bitwise_and", "__rand__": "bitwise_and",
    "__or__": "bitwise_or", "__ior__": "bitwise_or", "__ror__": "bitwise_or",
    "__xor__": "bitwise_xor", "__ixor__": "bitwise_xor", "__invert__": "bitwise_not",
    "and_": "bitwise_and", "or_": "bitwise_or", "invert": "bitwise_not",
    "multiply": "mul", "subtract": "sub", "negative": "neg", "absolute": "abs",
    "concat": "cat", "concatenate": "cat",
    "view": "reshape", "view_as": "reshape", "reshape_as": "reshape", "_unsafe_view": "reshape",
    "swapaxes": "transpose", "swapdims": "transpose", "T": "transpose", "mT": "transpose",
    "H": "transpose", "mH": "transpose", "t": "transpose", "numpy_T": "transpose",
    "expand_as": "expand", "type_as": "to", "type": "to", "float": "to", "half": "to", "double": "to",
    "bfloat16": "to", "long": "to", "int": "to", "bool": "to", "_to_copy": "to", "cpu": "to",
    "cuda": "to", "clamp_min": "clamp", "clamp_max": "clamp", "clip": "clamp",
    "special_softmax": "softmax", "special_expit": "sigmoid", "expit": "sigmoid",
    "convolution": "conv", "unsafe_chunk": "chunk", "unsafe_split": "split", "split_with_sizes": "split",
    "__bool__": "item", "__int__": "item", "__float__": "item", "__index__": "item",
    "__complex__": "item", "_local_scalar_dense": "item", "tolist": "item",
    "greater": "gt", "less": "lt", "greater_equal": "ge", "less_equal": "le", "not_equal": "ne",
    "arctan2": "atan2", "_softmax": "softmax", "_log_softmax": "log_softmax",
    "native_layer_norm": "layer_norm", "native_group_norm": "group_norm",
    "_native_batch_norm_legit_no_training": "batch_norm", "native_batch_norm": "batch_norm",
    "_adaptive_avg_pool2d": "adaptive_avg_pool2d", "max_pool2d_with_indices": "max_pool2d",
    "upsample": "interpolate", "_in_projection_packed": "linear",
    "select": "getitem", "slice": "getitem", "index": "getitem", "index_put": "setitem",
    "lift_fresh_copy": "tensor", "lift_fresh": "tensor",
    "upsample_nearest1d": "interpolate", "upsample_nearest2d": "interpolate",
    "upsample_nearest3d": "interpolate", "_upsample_nearest_exact2d": "interpolate",
    "upsample_linear1d": "interpolate", "upsample_bilinear2d": "interpolate",
    "upsample_trilinear3d": "interpolate", "upsample_bicubic2d": "interpolate",
    "_upsample_bilinear2d_aa": "interpolate", "_upsample_bicubic2d_aa": "interpolate",
    "tensor_split": "split", "moveaxis": "movedim", "cond": "cond",
}  # fmt: skip


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """The canonical name of a function, method or operator, given the name as it is spelled."""
    if name in _SYNONYMS:
        return _SYNONYMS[name]
    if name.startswith("__") and name.endswith("__") and len(name) > 4:
        name = name[2:-2]
    else:
        name = name.strip("_") or name
    return _SYNONYMS.get(name, name)


@lru_cache(maxsize=4096)
def names(func: Any) -> tuple[str, str, str]:
    """What a torch function is called: as its author spelled it, canonically, and with where it lives."""
    name = spelled(func)
    return name, canonical(name), target(func)


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
