"""`Trace`: what one process did, as plain rows, whichever profiler wrote it: calls of the host (operators,
marks, modules), launches, and the work of the device. Times are in microseconds, as in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

CallKind = Literal["operator", "mark", "module"]
WorkKind = Literal["kernel", "copy", "set", "communication"]
Shapes: TypeAlias = tuple[tuple[int, ...], ...]
Thread: TypeAlias = int | str

COMMUNICATION = re.compile(
    r"nccl|rccl|oneccl|hccl|_all_?reduce_|_all_?gather_|reduce_?scatter|alltoall", re.IGNORECASE
)


FUSED = re.compile(r"^(?:triton|cpp)_(?:[a-z]+_)*?fused_(.+?)(?:_\d+)?$")
"""A compiled kernel, whose name has the operators that it was made from."""


def kind_of(name: str) -> CallKind:
    """Whether a name is that of an operator, or a mark around some: of the profiler, of autograd, of the
    user."""
    called = "::" in name and not name.startswith(("autograd::", "torch::autograd::", "## "))
    return "operator" if called or FUSED.match(name) else "mark"


class Call(msgspec.Struct, gc=False):
    """Something that began and ended on a thread of the host. `shapes` are those of its tensors, in order;
    None where the trace has none. `external` is the number by which kernels name it."""

    name: str
    start: float
    end: float
    thread: Thread
    kind: CallKind = "operator"
    shapes: Shapes | None = None
    external: int | None = None
    sequence: int | None = None


class Launch(msgspec.Struct, gc=False):
    """A call of the driver that gave the device something to do."""

    start: float
    end: float
    thread: Thread
    external: int | None = None
    name: str = ""


class Work(msgspec.Struct, gc=False):
    """A kernel, a copy or a filling of memory, on a stream of the device."""

    name: str
    start: float
    seconds: float
    stream: int
    kind: WorkKind = "kernel"
    correlation: int | None = None
    external: int | None = None
    exchange: str = ""
    """What a collective is (its kind, elements, type and group), where the trace says so."""


class Allocation(msgspec.Struct, gc=False):
    """Memory that was taken, or given back (`bytes` below 0), and the `total` after it. `operators` are
    those in the stack that asked for it, the innermost first, where the trace has it."""

    at: float
    bytes: int
    address: int | str
    total: int = 0
    thread: Thread = 0
    operators: tuple[str, ...] = ()


@dataclass
class Trace:
    """The rows of one rank. `cut` says that the file ends before the trace does."""

    rank: int = 0
    device: str = "cpu"
    device_name: str = ""
    source: str = "torch.profiler"
    host: str = ""
    calls: list[Call] = field(default_factory=list)
    launches: dict[int, Launch] = field(default_factory=dict)
    work: list[Work] = field(default_factory=list)
    memory: list[Allocation] = field(default_factory=list)
    host_memory: list[Allocation] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    notes: list[str] = field(default_factory=list)


def tensors(dims: Any) -> Iterator[tuple[int, ...]]:
    """The shapes in an operator's list of them, with those of lists of tensors; scalars have none."""
    for entry in dims if isinstance(dims, list) else ():
        if isinstance(entry, list) and entry:
            if all(isinstance(d, int) for d in entry):
                yield tuple(entry)
            else:
                yield from tensors(entry)
