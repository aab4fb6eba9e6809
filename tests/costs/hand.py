"""Calls of single operators whose cost is worked out by hand.

A case names an operator, its arguments on the meta device and the figures that a reader can check: FLOPs of
contractions, other FLOPs, and bytes where they are more than "all that goes in and all that comes out". The
operator really runs (on meta tensors), unless it needs another device: then the case says what it `gives`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

import opgraph
from opgraph.costs.count import cost, describe
from opgraph.record.graph import Kernel


def floats(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


def ints(*sizes: int) -> torch.Tensor:
    return floats(*sizes, dtype=torch.int64)


def bools(*sizes: int) -> torch.Tensor:
    return floats(*sizes, dtype=torch.bool)


def whole(*sizes: int) -> torch.Tensor:
    return floats(*sizes, dtype=torch.int8)


def complexes(*sizes: int) -> torch.Tensor:
    return floats(*sizes, dtype=torch.complex64)


_REGISTERING = {"bitsandbytes": "bitsandbytes", "fsdp": "torch.distributed.fsdp"}
"""The modules that register the operators of a namespace."""


@dataclass(frozen=True)
class Case:
    """A call of an operator, and what it costs."""

    operator: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    gives: Any
    flops: int
    other: int
    bytes: tuple[int, int] | None
    cost: str = "formula"

    def __str__(self) -> str:
        return self.operator

    def exists(self) -> bool:
        """Whether this torch has the operator."""
        namespace, _, name = self.operator.partition(".")
        return hasattr(getattr(torch.ops, namespace), name)

    def kernel(self) -> Kernel:
        namespace, _, name = self.operator.partition(".")
        if namespace in _REGISTERING:
            import_module(_REGISTERING[namespace])
        packet = getattr(getattr(torch.ops, namespace), name)
        overloads = packet.overloads()
        overload = overloads[0]
        if len(overloads) > 1:
            overload = torch._C._jit_resolve_packet(
                packet._qualified_op_name, *self.args, **self.kwargs
            )
        function = getattr(packet, overload or "default")
        out = self.gives if self.gives is not None else function(*self.args, **self.kwargs)
        return cost(describe(function), self.args, self.kwargs, out)


def case(
    operators: str,
    *args: Any,
    flops: int = 0,
    other: int = 0,
    bytes: tuple[int, int] | None = None,  # noqa: A002  (as in the tables)
    gives: Any = None,
    **kwargs: Any,
) -> list[Case]:
    """The same call of one or several operators ("sum mean"), ATen's if they have no namespace."""
    names = [name if "." in name else f"aten.{name}" for name in operators.split()]
    return [Case(name, args, kwargs, gives, flops, other, bytes) for name in names]


def free(operators: str, *args: Any, gives: Any = None, **kwargs: Any) -> list[Case]:
    """A call that costs nothing, and not even bytes, by its nature."""
    names = [name if "." in name else f"aten.{name}" for name in operators.split()]
    return [Case(name, args, kwargs, gives, 0, 0, (0, 0), "zero") for name in names]


class Calls(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


def kernels(function, *tensors) -> list[Kernel]:
    """What a function runs, by the capture that all tracers share."""
    profile = opgraph.profile(Calls(function), inputs=tensors)
    assert profile.graph.failed is None, profile.graph.failed
    return [k for n in profile.nodes for k in n.kernels]
