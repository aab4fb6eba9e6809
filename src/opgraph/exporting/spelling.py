"""How the parts of a captured graph are written in Python: names, values, functions, constants."""

from __future__ import annotations

import base64
import keyword
import re
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor

from opgraph.errors import TraceError

_LARGEST = 64 * 2**20
"""Bytes of constants above which a file of text is no place for them."""

_TAKEN = frozenset(
    "self torch nn operator device inf nan sys tensor put get share load Model parameter".split()
)


def identifier(text: str) -> str:
    """A name that Python takes, like the text."""
    name = re.sub(r"\W", "_", text)
    return f"_{name}" if not name or name[0].isdigit() or keyword.iskeyword(name) else name


def encoded(tensor: Tensor) -> str:
    """The expression that makes a constant: its values, where they are few, or their bytes.

    Raises `TraceError` when it has no values, or too many.
    """
    if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
        raise TraceError(
            "a constant of the graph has no values", hint="give a model with its weights"
        )
    if tensor.numel() * tensor.element_size() > _LARGEST:
        raise TraceError(
            "a constant of the graph is too large for a Python file", hint="write a .pt2"
        )
    plain = tensor.detach().contiguous()
    if plain.numel() <= 8 and plain.dtype is not torch.bfloat16:
        return f"torch.tensor({_values(plain.tolist())}, dtype={plain.dtype})"
    raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    data = base64.b64encode(zlib.compress(raw, 9)).decode()
    return f"tensor({plain.dtype}, {tuple(plain.shape)!r}, {data!r})"


def _values(values: Any) -> str:
    return repr(values)


class Speller:
    """Writes the nodes of a graph; each has a name of its own, or an expression that stands for it."""

    def __init__(self) -> None:
        self.names: dict[fx.Node, str] = {}
        self._values: dict[fx.Node, Any] = {}
        self._taken = set(_TAKEN)

    def fresh(self, base: str) -> str:
        """A name that is not taken yet."""
        name, number = base, 1
        while name in self._taken:
            name, number = f"{base}_{number}", number + 1
        self._taken.add(name)
        return name

    def name(self, node: fx.Node) -> str:
        """The name of a node's result."""
        if node not in self.names:
            self.names[node] = self.fresh(identifier(node.name))
        return self.names[node]

    def stands_for(self, node: fx.Node, value: Any) -> None:
        """A node whose value is known, and written where it is used."""
        self._values[node] = value

    def spell(self, item: Any) -> str:
        """Any argument or result as an expression. Raises `TraceError` for what has none."""
        if isinstance(item, fx.Node):
            return self.spell(self._values[item]) if item in self._values else self.name(item)
        if isinstance(item, (list, tuple)):
            inner = ", ".join(map(self.spell, item))
            if isinstance(item, list):
                return f"[{inner}]"
            return f"({inner},)" if len(item) == 1 else f"({inner})"
        if isinstance(item, Mapping):
            return "{" + ", ".join(f"{k!r}: {self.spell(v)}" for k, v in item.items()) + "}"
        if isinstance(item, slice):
            return f"slice({', '.join(map(self.spell, (item.start, item.stop, item.step)))})"
        if item is Ellipsis:
            return "..."
        if item is None or isinstance(item, (bool, int, float, complex, str, torch.Size)):
            return repr(item)
        if isinstance(item, (torch.dtype, torch.layout, torch.memory_format)):
            return str(item)
        if isinstance(item, torch.device):
            return f"device({str(item)!r})"
        raise TraceError(f"a {type(item).__name__} cannot be written as Python")

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The arguments of a call."""
        return ", ".join(
            [*map(self.spell, args), *(f"{k}={self.spell(v)}" for k, v in kwargs.items())]
        )

    def method(self, node: fx.Node) -> str:
        """A call of a tensor's method."""
        owner, *rest = node.args
        return f"{self.spell(owner)}.{node.target}({self.arguments(tuple(rest), node.kwargs)})"

    def function(self, node: fx.Node) -> str:
        """A call of a function, found where a plain import finds it."""
        target = node.target
        if isinstance(target, HigherOrderOperator):
            return self._higher_order(node)
        if isinstance(target, (OpOverload, OpOverloadPacket)):
            where = f"torch.ops.{target}"
        else:
            where = _importable(target)
        return f"{where}({self.arguments(node.args, node.kwargs)})"

    def _higher_order(self, node: fx.Node) -> str:
        held = [self._values.get(a) for a in node.args if isinstance(a, fx.Node)]
        inner = next((h for h in held if isinstance(h, nn.Module)), None)
        name = getattr(node.target, "__name__", str(node.target))
        what = f"{name} around {type(inner).__name__}" if inner is not None else name
        raise TraceError(
            f"{what} cannot be written as Python",
            hint="a .pt2 holds it; another --tracer may find a graph without it",
        )


def _importable(function: Any) -> str:
    """The dotted name of a function of torch or of Python's operators."""
    name = getattr(function, "__name__", "")
    module = getattr(function, "__module__", None) or ""
    candidates = [module.replace("_operator", "operator"), "torch", "torch.nn.functional",
                  "torch._C._nn", "torch.functional", "torch.special", "torch._C", "operator"]  # fmt: skip
    for home in candidates:
        if home.split(".")[0] not in ("torch", "operator") or not name.isidentifier():
            continue
        found: Any = {"torch": torch, "operator": __import__("operator")}[home.split(".")[0]]
        for part in home.split(".")[1:]:
            found = getattr(found, part, None)
        if getattr(found, name, None) is function:
            return f"{home}.{name}"
    raise TraceError(f"{module}.{name} cannot be written as Python", hint="use --tracer export")
