"""Which dimension of which value tensor parallelism splits, found from the graph.

Linear layers are split as Megatron splits them (Shoeybi et al.: "Megatron-LM: training multi-billion
parameter language models using model parallelism", 2019, section 3): a *column-parallel* one splits its
weight along the output and leaves a split result; what is split flows through views, element-wise work
and attention (by heads) to a *row-parallel* one, whose results are partial sums, which an all-reduce
adds up. Where something needs a whole result (a normalization over it), the layer stays whole on every
device; where the result is the model's (the logits), it is gathered. Tables of embeddings that inputs
are looked up in are split by rows, and those that are tied to a split layer.

What is found holds for any number of devices; `Sharding.sizes` says into which the model divides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import ceil, gcd, prod
from typing import Literal

from opgraph.analysis.cost.conventions import is_causal
from opgraph.analysis.fusion.grouping import Role, role_of
from opgraph.record.errors import InputError, RenderError
from opgraph.record.graph import Graph, Kernel, Node, Parameter, Storage, Value
from opgraph.record.layout import SIZED, Counted

# Where dimensions of a value are in a result: what a view, a copy, element-wise work or a sum makes of
# them.

Dims = frozenset[int]
"""The dimensions of a value that come from the split one; empty where every device has the whole."""


def sizes(value: Value) -> list[int]:
    """The sizes of all dimensions."""
    return [size(n) for n in value.shape]


def size(n: int | str) -> int:
    """The size of a dimension; 0 of one that is a symbol."""
    return n if isinstance(n, int) else 0


def _strides(value: Value, *, logical: bool) -> list[int]:
    if value.strides is not None and not logical:
        return list(value.strides)
    shape = sizes(value)
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def moved(source: Value, out: Value, dims: Dims, *, alias: bool, copied: bool) -> set[int]:
    """Where split dimensions are in a result.

    In a view a dimension is where its memory is: between its stride and its stride times its size. (A
    copy that reshapes keeps the logical order instead.) In other work dimensions are aligned from the
    right; one that changes its size (joined along it) is no longer one piece.
    """
    if not alias:
        shift = len(out.shape) - len(source.shape)
        return {
            d + shift for d in dims if d + shift >= 0 and out.shape[d + shift] == source.shape[d]
        }
    before, after = _strides(source, logical=copied), _strides(out, logical=copied)
    spans = [(before[d], before[d] * size(source.shape[d])) for d in dims]
    return {
        d
        for d, (stride, n) in enumerate(zip(after, sizes(out), strict=True))
        if n > 1 and any(max(stride, low) < min(stride * n, high) for low, high in spans)
    }


def reduced(source: Value, shape: tuple[int | str, ...]) -> Dims | None:
    """The dimensions that are summed up, from what became of them; None where that is not clear."""
    if shape == source.shape:
        return frozenset({len(shape) - 1})
    if len(shape) == len(source.shape):
        return frozenset(
            d for d, (a, b) in enumerate(zip(source.shape, shape, strict=True)) if a != b
        )
    if shape == source.shape[:-1]:
        return frozenset({len(shape)})
    return None


def attends_causally(graph: Graph) -> bool:
    """Whether tokens see those before them alone, of a forward whose tokens see each other in attention.

    Raises `InputError` where they do so by other work, or in some attention and not in other.
    """
    found = set()
    for node in graph.nodes:
        for kernel in node.kernels:
            if kernel.category == "attention":
                found.add(is_causal(node) if len(node.inputs) == 3 else None)
            elif kernel.category in _AMONG_TOKENS or (
                kernel.category == "matmul"
                and kernel.flops
                and _of_activations(graph, node, kernel)
            ):
                raise InputError(
                    f"tokens see each other in {node.op} of {node.scope or 'a model'}",
                    hint="context_parallel is for scaled_dot_product_attention",
                )
    if found not in ({True}, {False}):
        raise InputError("torch's ring (context_parallel) goes over attention without a mask, all of it "
                         "causal or none of it, which it is not here")  # fmt: skip
    return found == {True}


_AMONG_TOKENS = frozenset({"convolution", "grouped_convolution", "depthwise_convolution", "recurrent",
                           "fft", "pooling", "interpolation"})  # fmt: skip


def _of_activations(graph: Graph, node: Node, kernel: Kernel) -> bool:
    """Whether a product sums up over more than one number of what was computed, on both sides."""
    sums = kernel.shapes[0][-1] if kernel.shapes and kernel.shapes[0] else 1
    return sums != 1 and all(graph.root(v).kind == "activation" for v in node.inputs)


Style = Literal["column", "row", "gathered", "vocabulary"]
_WHOLE: Dims = frozenset()
_LOOKUPS = frozenset({"embedding"})


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective of one forward: after the node `node`, over a result of `bytes` (whole)."""

    kind: Literal["all-reduce", "all-gather"]
    node: int
    bytes: int


@dataclass(frozen=True)
class Sharding:
    """What is split: values by id with their dimensions, weights by name, nodes that do a part of their
    work, and the collectives. `styles` are the ways of linear layers and tables by node.
    `sizes` are what the number of devices must divide, with the node that says so. `gathered` are the
    results that are put together again."""

    values: dict[int, Dims] = field(default_factory=dict)
    weights: frozenset[str] = frozenset()
    nodes: frozenset[int] = frozenset()
    styles: dict[int, Style] = field(default_factory=dict)
    exchanges: tuple[Exchange, ...] = ()
    sizes: dict[int, str] = field(default_factory=dict)
    gathered: frozenset[int] = frozenset()


def sharding(graph: Graph) -> Sharding:
    """How tensor parallelism splits the forward of a graph."""
    whole: frozenset[int] = frozenset()
    while True:
        found = _Flow(graph, whole)
        found.run()
        if not found.refused - whole:
            return found.result()
        whole |= found.refused


class _Flow:
    """One walk over the nodes; `whole` are the linear layers that may not be split."""

    def __init__(self, graph: Graph, whole: frozenset[int]) -> None:
        self.graph, self.whole = graph, whole
        self.dims: dict[int, Dims] = {}
        self.origins: dict[int, frozenset[int]] = {}
        self.refused: set[int] = set()
        self.weights: set[str] = set()
        self.styles: dict[int, Style] = {}
        self.exchanges: list[Exchange] = []
        self.tables: list[tuple[Node, Value]] = []
        self.sizes: dict[int, str] = {}
        self.gathered: set[int] = set()

    def run(self) -> None:
        for node in self.graph.nodes:
            if node.kind == "call" and node.outputs:
                self._visit(node, role_of(node))
        self._lookups()
        for value in self.graph.outputs:
            self._gather(value)

    def result(self) -> Sharding:
        self._narrow()
        split = frozenset(v for v, d in self.dims.items() if d)
        nodes = frozenset(
            n.id for n in self.graph.nodes if n.id in self.styles or split & {*n.inputs, *n.outputs}
        )
        return Sharding(
            {v: d for v, d in self.dims.items() if d}, frozenset(self.weights), nodes, self.styles,
            tuple(sorted(self.exchanges, key=lambda e: e.node)), self.sizes,
            frozenset(self.gathered),
        )  # fmt: skip

    def _narrow(self) -> None:
        """Of dimensions any of which may be the split one (three projections in one, before they are taken
        apart), leave those that what reads them has split."""
        for node in reversed(self.graph.nodes):
            product = role_of(node) in ("contraction", "attention")
            for v in map(self.graph.value.__getitem__, node.inputs):
                dims, found = self._of(v), set[int]()
                if len(dims) < 2:
                    continue
                for out in map(self.graph.value.__getitem__, node.outputs):
                    alias = out.alias_of is not None or node.op == "reshape"
                    copied = node.op == "reshape" and out.alias_of is None
                    found |= moved(out, v, self._of(out), alias=alias, copied=copied)
                if product:
                    found = {d for d in dims if d < len(v.shape) - 2}
                self.dims[v.id] = dims & found or dims

    def _visit(self, node: Node, role: Role) -> None:
        values = [self.graph.value[v] for v in node.inputs]
        weight = next(
            (w for v in values if (w := self._weight(v)) is not None and len(w.shape) > 1), None
        )
        split = [v for v in values if self._of(v)]
        if weight is not None and role == "contraction" and "conv" not in node.op:
            self._linear(node, [v for v in values if self._weight(v) is None])
        elif weight is not None and node.op in _LOOKUPS:
            self.tables.append((node, weight))
        elif not split:
            return
        elif role in ("contraction", "attention"):
            self._product(node, values)
        elif role in ("normalization", "softmax", "reduction"):
            self._reduce(node, split)
        else:
            self._carry(node, values)

    def _linear(self, node: Node, others: list[Value]) -> None:
        x = max((v for v in others if len(v.shape) > 1), key=lambda v: v.bytes, default=None)
        out = self.graph.value[node.outputs[0]]
        if x is None or not out.shape:
            return
        dims = self._of(x)
        last = len(out.shape) - 1
        if dims and len(x.shape) - 1 in dims:
            self._split_weights(node, bias=False)
            self.styles[node.id] = "row"
            self.exchanges.append(Exchange("all-reduce", node.id, out.bytes))
            self._divides(size(x.shape[-1]), node)
        elif dims:
            self._set(out, frozenset(d for d in dims if d != last), self.origins[x.id])
        elif node.id not in self.whole:
            self._split_weights(node, bias=True)
            self.styles[node.id] = "column"
            self._set(out, frozenset({last}), frozenset({node.id}))

    def _lookups(self) -> None:
        """Tables in which an input of the model is looked up, and which are larger than what comes out, and
        those that are split elsewhere (tied weights)."""
        for node, weight in self.tables:
            given = any(self.graph.root(v).kind == "input" for v in node.inputs)
            if given and weight.bytes > self.graph.value[node.outputs[0]].bytes and weight.name:
                self.weights.add(weight.name)
        for node, weight in self.tables:
            if weight.name in self.weights:
                out = self.graph.value[node.outputs[0]]
                self.styles[node.id] = "vocabulary"
                self.exchanges.append(Exchange("all-reduce", node.id, out.bytes))

    def _product(self, node: Node, values: list[Value]) -> None:
        """A product of two activations: split by its batch dimensions, which are heads."""
        factors = [v for v in values if len(v.shape) >= 3]
        out = self.graph.value[node.outputs[0]]
        batch: Dims = _WHOLE
        for v in factors:
            dims = frozenset(d for d in self._of(v) if d < len(v.shape) - 2)
            if self._of(v) and not dims:
                self._refuse(v)
            for d in dims:
                self._divides(size(v.shape[d]), node)
            batch |= dims
        if batch and len(out.shape) >= 3:
            self._set_all(node, batch, [v for v in factors if self._of(v)])

    def _reduce(self, node: Node, split: list[Value]) -> None:
        """Something over a dimension: that one has to be whole, unless another one is split, too."""
        for v in split:
            shape = self.graph.value[node.outputs[0]].shape
            gone = reduced(v, shape)
            left = None if gone is None else self._of(v) - gone
            if gone is None or not left:
                self._refuse(v)
            elif len(shape) == len(v.shape):
                self._set_all(node, left, [v])
            else:
                kept = [d for d in range(len(v.shape)) if d not in gone]
                self._set_all(node, frozenset(kept.index(d) for d in left), [v])

    def _carry(self, node: Node, values: list[Value]) -> None:
        """Views, element-wise work and copies: the split dimensions wherever they are in the result."""
        split = [v for v in values if self._of(v)]
        for number in node.outputs:
            out = self.graph.value[number]
            dims: set[int] = set()
            for v in split:
                found = moved(v, out, self._of(v), alias=out.alias_of is not None or node.op == "reshape",
                               copied=node.op == "reshape" and out.alias_of is None)  # fmt: skip
                if not found and prod(sizes(out)) > 1:
                    self._refuse(v)
                dims |= found
            self._set(out, frozenset(dims), self._origins(split))
            for v in values:
                self._slice(v, out, frozenset(dims))
        for v in values:
            weight = self._weight(v)
            if weight is not None and weight.name and self._along(weight, node):
                self.weights.add(weight.name)

    def _slice(self, value: Value, out: Value, dims: Dims) -> None:
        """An input that is joined with something split (what is cached of earlier tokens) comes split."""
        same = len(value.shape) == len(out.shape)
        if value.kind == "input" and same and dims:
            kept = frozenset(d for d in dims if value.shape[d] == out.shape[d])
            if kept:
                self._set(value, kept, frozenset())

    def _along(self, weight: Value, node: Node) -> bool:
        """Whether a weight of element-wise work lies along a split dimension."""
        out = self.graph.value[node.outputs[0]]
        shift = len(out.shape) - len(weight.shape)
        dims = self._of(out)
        last = len(out.shape) - 1
        return any(
            d >= shift and weight.shape[d - shift] == out.shape[d] != 1
            for d in dims
            if not (d == last and len(dims) > 1)
        )

    def _gather(self, value: int) -> None:
        """A result of the model whose last dimension is split, as it came out of a linear layer."""
        found = self.graph.value[value]
        if self._of(found) == {len(found.shape) - 1}:
            for node in self.origins[value]:
                self.styles[node] = "gathered"
            self.gathered.add(value)
            self.exchanges.append(Exchange("all-gather", max(self.origins[value]), found.bytes))

    def _split_weights(self, node: Node, *, bias: bool) -> None:
        for v in node.inputs:
            weight = self._weight(self.graph.value[v])
            if weight is not None and weight.name and (bias or len(weight.shape) > 1):
                self.weights.add(weight.name)

    def _weight(self, value: Value) -> Value | None:
        root = self.graph.root(value.id)
        return root if root.kind == "parameter" else None

    def _of(self, value: Value) -> Dims:
        return self.dims.get(value.id, _WHOLE)

    def _set(self, value: Value, dims: Dims, origins: frozenset[int]) -> None:
        self.dims[value.id] = dims
        self.origins[value.id] = origins

    def _set_all(self, node: Node, dims: Dims, sources: list[Value]) -> None:
        for number in node.outputs:
            out = self.graph.value[number]
            self._set(out, frozenset(d for d in dims if d < len(out.shape)), self._origins(sources))

    def _origins(self, values: list[Value]) -> frozenset[int]:
        return frozenset().union(*(self.origins.get(v.id, frozenset()) for v in values))

    def _refuse(self, value: Value) -> None:
        self.refused |= self.origins.get(value.id, frozenset())

    def _divides(self, size: int, node: Node) -> None:
        self.sizes.setdefault(size, node.name)


# What the code of a model says itself of sizes that are split.


def is_turned(graph: Graph, node: Node) -> bool:
    """Whether a linear layer keeps its weight as inputs x outputs, and multiplies by it as it is."""
    return (
        role_of(node) == "contraction"
        and node.op != "linear"
        and any(
            graph.value[v].kind == "parameter" and len(graph.value[v].shape) == 2
            for v in node.inputs
        )
    )


def counted_by_code(graph: Graph, found: Sharding) -> dict[str, dict[str, tuple[Counted, ...]]]:
    """By modules and what these call: of each call, in order, what differs on the share of a device. What
    a module calls without a difference is left out; what is made of a gathered result is whole."""
    calls: dict[str, dict[str, list[Counted]]] = defaultdict(lambda: defaultdict(list))
    gathered: set[int] = set()
    for node in graph.nodes:
        split = {v for v in node.inputs if v in found.values}
        if found.styles.get(node.id) == "gathered" or (split and split <= gathered):
            gathered.update(node.outputs)
            if node.id not in found.styles:
                calls[node.scope][node.target].append(Counted())
            continue
        if not node.outputs or node.id in found.styles:
            continue
        out = graph.value[node.outputs[0]]
        dims = found.values.get(out.id, _WHOLE)
        said: dict[int, int] = {}
        beside: dict[int, int] = {}
        if len(dims) == 1 and node.target.rpartition(".")[2] in SIZED:
            said = {d: size(out.shape[d]) for d in dims}
        elif len(dims) == 1:
            last = next(iter(dims)) - len(out.shape)
            whole = (graph.value[v] for v in node.inputs if v not in found.values)
            if any(len(v.shape) >= -last and v.shape[last] == out.shape[last] != 1 for v in whole):
                beside = {last: size(out.shape[last])}
        calls[node.scope][node.target].append(Counted(said, beside))
    return {
        scope: kept for scope, by in calls.items()
        if (kept := {t: tuple(c) for t, c in by.items() if any(x.said or x.beside for x in c)})
    }  # fmt: skip


# The graph that one of the devices of a tensor-parallel group runs: the same operators on its share of
# the data. What is said of a graph (memory over time, predicted time, the roofline) is then said of it.


def divisors(found: Sharding) -> list[int]:
    """The numbers of devices that heads and features divide into."""
    common = gcd(*found.sizes)
    return [n for n in range(1, common + 1) if common % n == 0]


def sharded(graph: Graph, devices: int, found: Sharding | None = None) -> Graph:
    """The share of one of some devices. Rows of tables (of the vocabulary) are padded up where they do
    not divide; heads and features must divide.

    Raises `RenderError` with the numbers that do, and where there is nothing to split.
    """
    found = found or sharding(graph)
    if devices == 1:
        return graph
    if not found.sizes:
        raise RenderError(
            "tensor parallelism finds nothing to split here: no pair of linear layers",
            hint="--data-parallel and --pipeline-parallel do not need one",
        )
    fitting = divisors(found)
    if devices not in fitting:
        size = next(s for s in sorted(found.sizes) if s % devices)
        raise RenderError(
            f"{found.sizes[size]}: {size:,} heads or features do not divide into {devices}",
            hint=f"tensor-parallel sizes that fit: {', '.join(map(str, fitting))}",
        )
    return _Share(graph, found, devices).graph()


class _Share:
    def __init__(self, graph: Graph, found: Sharding, devices: int) -> None:
        self.whole, self.found, self.devices = graph, found, devices
        self.split_storages = {
            graph.value[v].storage for v in found.values if graph.value[v].storage is not None
        }
        self.known = {v.storage for v in graph.values if v.storage is not None}

    def graph(self) -> Graph:
        values = tuple(
            replace(v, bytes=ceil(v.bytes / self.devices)) if v.id in self.found.values else v
            for v in self.whole.values
        )
        return replace(
            self.whole,
            nodes=tuple(map(self._node, self.whole.nodes)),
            values=values,
            parameters=tuple(map(self._parameter, self.whole.parameters)),
            storages=tuple(self._storage(i, s) for i, s in enumerate(self.whole.storages)),
        )

    def _parameter(self, p: Parameter) -> Parameter:
        if p.name not in self.found.weights:
            return p
        return replace(p, numel=ceil(p.numel / self.devices), bytes=ceil(p.bytes / self.devices))

    def _storage(self, number: int, s: Storage) -> Storage:
        # What is no node's result is a temporary of the node that made it.
        temporary = number not in self.known and s.node in self.found.nodes
        split = number in self.split_storages or temporary
        return replace(s, bytes=ceil(s.bytes / self.devices)) if split else s

    def _node(self, node: Node) -> Node:
        if node.id not in self.found.nodes:
            return node
        style = self.found.styles.get(node.id)
        read = self._share(node.inputs)
        written = self._share(node.outputs)
        kernels = []
        for k in node.kernels:
            shapes = k.out_shapes
            if style in ("column", "gathered") and shapes and isinstance(shapes[0][-1], int):
                shapes = ((*shapes[0][:-1], ceil(shapes[0][-1] / self.devices)), *shapes[1:])
            kernels.append(
                replace(
                    k,
                    flops=k.flops // self.devices,
                    other_flops=k.other_flops // self.devices,
                    read=int(k.read * read),
                    written=int(k.written * written),
                    out_shapes=shapes,
                )
            )
        return replace(node, kernels=tuple(kernels))

    def _share(self, values: Iterable[int]) -> float:
        """The part of the bytes of some values that one device has."""
        whole = part = 0
        for number in values:
            value = self.whole.value[number]
            split = number in self.found.values or self._weight(number) in self.found.weights
            whole += value.bytes
            part += value.bytes // self.devices if split else value.bytes
        return part / whole if whole else 1.0

    def _weight(self, number: int) -> str | None:
        value = self.whole.root(number)
        return value.name if value.kind == "parameter" else None
