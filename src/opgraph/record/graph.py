"""The intermediate representation: plain frozen data, no torch, no layout, no colour.

Everything to the right of tracing (analysis, views, files) reads only what stands here. Edges go
through `Value` ids: a node lists the values it reads and the values it makes. The same kernel, seen in
many layers, is one shared `Kernel` object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any, Literal, ParamSpec, TypeVar

from opgraph.record.kinds import TRANSFERS, CollectiveKind
from opgraph.record.units import plural, size

Dim = int | str
"""A size: a number, or a name where the size is symbolic."""

Shape = tuple[Dim, ...]
NodeKind = Literal["input", "call", "constant", "control", "output"]
ValueKind = Literal["input", "parameter", "buffer", "constant", "activation"]
CostKind = Literal["formula", "zero", "unknown"]


@dataclass(frozen=True, slots=True)
class Collective:
    """What ranks exchange in one call.

    `bytes` are those of the whole buffer: all that is gathered, scattered, summed or sent on. The group has
    so many `ranks`, whose numbers are `stride` apart (0 where they are not evenly spaced: those are its
    `members`), and is called `group`, as the dimension of the mesh that it belongs to.
    """

    kind: CollectiveKind
    bytes: int
    ranks: int
    stride: int = 1
    group: str = ""
    members: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.kind in TRANSFERS:
            return f"{self.kind} of {size(self.bytes)}"
        of = f" ({self.group})" if self.group else ""
        return f"{self.kind} of {size(self.bytes)} between {self.ranks:,} ranks{of}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One ATen operator that the dispatcher ran.

    `flops` are those of contractions (1 MAC = 2 FLOPs); `other_flops` those of element-wise work,
    reductions and the like. `read` and `written` are bytes of memory traffic. `category` is the class
    of work ("matmul", "convolution", "attention", "elementwise", "view" …). `cost` says where the
    figures come from: a formula, zero by nature (views), or unknown. `collective` is what it exchanges with
    other ranks.

    Where a device updates the weights of many modules in one kernel, each has its part: `share` is that
    of its bytes, and of all parts one has `launches` 1, the others 0.

    Products of float32 are computed in `compute_dtype` where one is given ("tfloat32", which torch takes
    for convolutions) and the device has units for it.

    Attention is `causal` where its mask leaves the keys up to a query alone; None is not known.
    """

    op: str
    category: str = "other"
    dtype: str = ""
    flops: int = 0
    other_flops: int = 0
    read: int = 0
    written: int = 0
    cost: CostKind = "formula"
    shapes: tuple[Shape, ...] = ()
    out_shapes: tuple[Shape, ...] = ()
    collective: Collective | None = None
    share: float = 1.0
    launches: int = 1
    causal: bool | None = None
    compute_dtype: str = ""

    @property
    def multiplied(self) -> str:
        """The dtype of its products on a device that has units for it."""
        return self.compute_dtype if self.compute_dtype and self.dtype == "float32" else self.dtype

    @property
    def macs(self) -> int:
        return self.flops // 2

    @property
    def bytes(self) -> int:
        return self.read + self.written


def elements(shape: Shape) -> int:
    """How many numbers a tensor of a shape has; a dimension that is a symbol counts once."""
    return prod(n for n in shape if isinstance(n, int))


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor at one moment: what a node made, or what came in.

    `alias_of` is the value whose memory this one shares when it is a view or an in-place result;
    `storage` indexes `Graph.storages`. `name` is the path of a parameter or buffer, or the argument's
    name of an input. `strides` (in elements) are only given where the tensor is not contiguous.
    """

    id: int
    shape: Shape
    dtype: str
    bytes: int
    kind: ValueKind = "activation"
    name: str | None = None
    alias_of: int | None = None
    storage: int | None = None
    strides: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """A piece of memory that lived during the run, in bytes.

    `born` and `died` are positions in the sequence of kernels (0-based): it is live from the kernel
    `born` up to, and not including, the kernel `died`; None means that it outlived the run. `node` is
    the id of the node that made it.
    """

    bytes: int
    born: int
    died: int | None
    node: int | None = None


P = ParamSpec("P")
T = TypeVar("T")


def maker(cls: Callable[P, T]) -> Callable[P, T]:
    """What makes records of a frozen class by the thousand, in a fifth of the time: it sets the fields as
    those of a class that is not frozen. The class has no `__post_init__`."""
    known: Any = cls

    def freeze(made: Any) -> None:
        made.__class__ = cls

    spec = [(f.name, Any, field(default=f.default)) for f in fields(known)]
    space = {"__post_init__": freeze}
    thawed: Any = make_dataclass(known.__name__, spec, namespace=space, slots=True)
    return thawed  # type: ignore[no-any-return]


GRADIENT = "gradient"
"""The name of a value that is the gradient of a weight from a step before."""


LOSS = "Loss"
"""What the class of the scope of a loss begins with, before its name: "Loss (cross-entropy)"."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter or buffer of the model, once, however many names it has."""

    name: str
    shape: Shape
    dtype: str
    numel: int
    bytes: int
    scope: str
    kind: Literal["parameter", "buffer"] = "parameter"
    trainable: bool = True
    tied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """A module of the model: its path ("" is the root), class, and how often it was called."""

    path: str
    cls: str
    calls: int = 0
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    doc: str = ""

    @property
    def is_loss(self) -> bool:
        """Whether it is what a step of training makes small, which is no module."""
        return self.cls.startswith(f"{LOSS} (")


@dataclass(frozen=True, slots=True)
class Node:
    """One operator call, as the tracer saw it, in execution order. Ids are 1-based.

    `op` is canonical (the same whichever tracer found it), `target` is as the tracer spelled it,
    `arguments` are the arguments that are not tensors, `scope` the path of the module that made the
    call, `file` and `line` the user's source. `phase` is "forward", "backward", "recompute" (what a
    backward runs again of the forward) or "optimizer". `forward` is the id of the node whose gradient a
    node of the backward computes, in whose module it then is.
    """

    id: int
    kind: NodeKind
    op: str
    name: str
    scope: str = ""
    target: str = ""
    arguments: str = ""
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    file: str | None = None
    line: int | None = None
    fragment: int = 0
    phase: str = "forward"
    error: str | None = None
    forward: int | None = None

    @property
    def flops(self) -> int:
        return sum(k.flops for k in self.kernels)

    @property
    def macs(self) -> int:
        return self.flops // 2

    @property
    def other_flops(self) -> int:
        return sum(k.other_flops for k in self.kernels)

    @property
    def bytes(self) -> int:
        return sum(k.read + k.written for k in self.kernels)

    @property
    def arithmetic_intensity(self) -> float | None:
        """All FLOPs per byte of traffic; None where nothing is moved."""
        flops = traffic = 0
        for k in self.kernels:
            flops += k.flops + k.other_flops
            traffic += k.read + k.written
        return flops / traffic if traffic else None

    @property
    def part(self) -> str:
        """The part of a run that it is of, in words."""
        return _PARTS.get(self.phase, "forward")

    @property
    def failure(self) -> str | None:
        """Where and why the model failed here; an error of a layer that a size does not fit says itself
        where ("fc1: Linear takes 16 features, got 8x17")."""
        named = self.error is None or (self.scope and self.error.startswith(f"{self.scope}: "))
        where = self.scope if self.op == "raise" else self.name  # no operator, but the code there
        return self.error if named or not where else f"{where}: {self.error}"


_PARTS = {"backward": "backward", "recompute": "backward", "optimizer": "step of the optimizer"}


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A seam between two fragments: the fragment that ends here, why, and where in the source."""

    fragment: int
    reason: str
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class OnHost:
    """What of a graph is in the host's memory: parameters by name, storages by their index; and the nodes
    that run there, by their id."""

    parameters: frozenset[str] = frozenset()
    storages: frozenset[int] = frozenset()
    nodes: frozenset[int] = frozenset()


def around(path: str) -> Iterator[str]:
    """The path of a module and those of the modules around it, the root ("") at last."""
    yield path
    while path:
        path = path.rpartition(".")[0]
        yield path


@dataclass(frozen=True)
class Graph:
    """An operator graph: nodes in execution order, the values between them, the tree of modules.

    Fragments of a broken trace are stitched into one graph: `Node.fragment` tells them apart and
    `breaks` holds the seams.
    """

    nodes: tuple[Node, ...]
    values: tuple[Value, ...]
    scopes: tuple[Scope, ...]
    parameters: tuple[Parameter, ...] = ()
    storages: tuple[Storage, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    breaks: tuple[GraphBreak, ...] = field(default=())

    @cached_property
    def value(self) -> dict[int, Value]:
        """Values by id."""
        return {v.id: v for v in self.values}

    @cached_property
    def scope(self) -> dict[str, Scope]:
        """Modules by path."""
        return {s.path: s for s in self.scopes}

    @cached_property
    def producer(self) -> dict[int, Node]:
        """The node that made a value, by value id."""
        return {v: n for n in self.nodes for v in n.outputs}

    @cached_property
    def users(self) -> dict[int, tuple[Node, ...]]:
        """The nodes that read a value, by value id, in execution order."""
        found: dict[int, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                found.setdefault(value, []).append(node)
        return {value: tuple(nodes) for value, nodes in found.items()}

    @cached_property
    def parameter(self) -> dict[str, Parameter]:
        """Parameters and buffers by name, and by those that are tied to it."""
        return {name: p for p in self.parameters for name in (p.name, *p.tied)}

    @cached_property
    def inside(self) -> dict[str, tuple[Node, ...]]:
        """The nodes that stand directly in each module that has any, by its path."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            found.setdefault(node.scope, []).append(node)
        return {path: tuple(nodes) for path, nodes in found.items()}

    @cached_property
    def on_host(self) -> OnHost:
        """What is not on the device. A kernel has all that it reads and writes in one place (numbers
        aside), and what goes from one to the other is a node of its own, so that places follow from
        these."""
        if not any(
            k.collective and k.collective.kind in TRANSFERS for n in self.nodes for k in n.kernels
        ):
            return OnHost()
        there, nodes = set[int | str](), set[int]()

        def places(values: Iterable[int]) -> Iterator[int | str]:
            for root in map(self.root, values):
                if root.storage is not None:
                    yield root.storage
                elif root.name in self.parameter:
                    yield self.parameter[root.name].name

        calls = [
            (n, {k.collective.kind for k in n.kernels if k.collective is not None},
             {*places(v for v in n.inputs if self.value[v].shape)}, {*places(n.outputs)})
            for n in self.nodes if n.kind not in ("input", "output")
        ]  # fmt: skip
        before = -1
        while before < len(there):  # until nothing new is found of what comes before
            before = len(there)
            for node, kinds, given, made in calls:
                if CollectiveKind.UPLOAD in kinds:
                    there.update(given)
                elif CollectiveKind.DOWNLOAD in kinds:
                    there.update(made)
                elif not there.isdisjoint(given):
                    nodes.add(node.id)
                    there.update(given | made)
        starts = accumulate((len(n.kernels) for n in self.nodes), initial=0)
        runs = {at for n, start in zip(self.nodes, starts, strict=False) if n.id in nodes
                for at in range(start, start + len(n.kernels))}  # fmt: skip
        owned = {i for i, s in enumerate(self.storages)
                 if s.node in nodes or (s.node is None and s.born in runs)}  # fmt: skip
        owned.update(p for p in there if isinstance(p, int))
        names = frozenset(p for p in there if isinstance(p, str))
        return OnHost(names, frozenset(owned), frozenset(nodes))

    @cached_property
    def on_device(self) -> tuple[Storage, ...]:
        """The storages, those in the host's memory without any bytes."""
        away = self.on_host.storages
        if not away:
            return self.storages
        return tuple(replace(s, bytes=0) if i in away else s for i, s in enumerate(self.storages))

    def reads(self, node: Node) -> tuple[int, ...]:
        """The ids of the nodes whose results a node reads."""
        producer = self.producer
        return tuple(dict.fromkeys(producer[v].id for v in node.inputs if v in producer))

    def root(self, value: int) -> Value:
        """The value whose memory a value shows: itself, if it is no view."""
        found = self.value[value]
        while found.alias_of is not None:
            found = self.value[found.alias_of]
        return found

    def node(self, id: int) -> Node:  # noqa: A002 - the field's own name
        """The node with this (1-based) id."""
        return self.nodes[id - 1]

    @cached_property
    def _first(self) -> int | None:
        return next((n.id for n in self.nodes if n.kernels), None)

    def was_there(self, storage: Storage) -> bool:
        """Whether memory was there before the run, as inputs and an optimizer's state are."""
        return storage.born == 0 and storage.node not in (None, self._first)

    def __repr__(self) -> str:
        parts = {"node": self.nodes, "value": self.values, "module": self.scopes}
        return f"<Graph: {', '.join(plural(len(part), noun) for noun, part in parts.items())}>"

    @property
    def failed(self) -> Node | None:
        """The node at which the model's forward raised, if it did."""
        return next((n for n in reversed(self.nodes) if n.error is not None), None)
