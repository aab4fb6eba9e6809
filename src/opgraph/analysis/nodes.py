"""A node, and some nodes together, with what stands around them at hand: tensors, neighbours, time and what
bounds them. The rows of modules, operators and subgraphs are these."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from opgraph.analysis.cost.totals import CONSTANTS, Cost, WithCost, cost_of, total_seconds
from opgraph.analysis.tree import Metric
from opgraph.record import units
from opgraph.record.graph import Kernel, Node, Shape, Value
from opgraph.record.kinds import Bound

if TYPE_CHECKING:
    from opgraph.analysis.costed import CostedRecord
    from opgraph.analysis.fusion.partition import Subgraph


@dataclass(frozen=True, eq=False, repr=False)
class NodeView:
    """A node of a graph.

    `record` is the node as it is saved: its inputs and outputs are ids of values.
    """

    costed: CostedRecord
    record: Node

    @property
    def id(self) -> int:
        """Its number, from 1 on."""
        return self.record.id

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def op(self) -> str:
        """The canonical operator."""
        return self.record.op

    @property
    def kind(self) -> str:
        return self.record.kind

    @property
    def module(self) -> str:
        """The path of the module in which it runs; "" is the root."""
        return self.record.scope

    @property
    def phase(self) -> str:
        return self.record.phase

    @property
    def forward(self) -> int | None:
        """The number of the node whose gradient it computes; None outside of a backward."""
        return self.record.forward

    @property
    def fragment(self) -> int:
        """The fragment of a broken graph that it is in, from 1 on; 0 is between them."""
        return self.record.fragment

    @property
    def error(self) -> str | None:
        """Why the forward stopped here; None where it did not."""
        return self.record.error

    @property
    def flops(self) -> int:
        return self.record.flops

    @property
    def macs(self) -> int:
        return self.record.macs

    @property
    def other_flops(self) -> int:
        return self.record.other_flops

    @property
    def bytes(self) -> int:
        return self.record.bytes

    @property
    def arithmetic_intensity(self) -> float | None:
        return self.record.arithmetic_intensity

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return self.record.kernels

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that it uses."""
        return self.record.parameters

    @property
    def arguments(self) -> str:
        """What is not a tensor, as it was passed."""
        return self.record.arguments

    @property
    def cls(self) -> str:
        """The class of the module in which it runs."""
        return self.costed.graph.scope[self.module].cls

    @property
    def elements(self) -> int:
        """How many elements its parameters have, buffers apart."""
        known = self.costed.graph.parameter
        own = (known[name] for name in self.parameters if name in known)
        return sum(p.numel for p in own if p.kind == "parameter")

    @property
    def place(self) -> str:
        """The source line as written: modeling_bert.py:203; or nothing."""
        return f"{PurePath(self.record.file).name}:{self.record.line}" if self.record.file else ""

    @property
    def source(self) -> str | None:
        """The user's source line, as "file:line"; None where it is not known."""
        return f"{self.record.file}:{self.record.line}" if self.record.file else None

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The tensors that it reads: parameters, buffers and activations."""
        return tuple(self.costed.graph.value[v] for v in self.record.inputs)

    @property
    def read(self) -> tuple[Value, ...]:
        """The tensors that it reads, but for parameters and buffers."""
        return tuple(v for v in self.inputs if v.kind not in ("parameter", "buffer"))

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The tensors that it makes."""
        return tuple(self.costed.graph.value[v] for v in self.record.outputs)

    @property
    def shape(self) -> Shape | None:
        """The shape of its first output; None where it makes none."""
        return self.outputs[0].shape if self.outputs else None

    @property
    def dtype(self) -> str | None:
        """The dtype of its first output; None where it makes none."""
        return self.outputs[0].dtype if self.outputs else None

    @cached_property
    def sources(self) -> tuple[NodeView, ...]:
        """The nodes whose results it reads."""
        graph = self.costed.graph
        return tuple(NodeView(self.costed, graph.node(i)) for i in graph.reads(self.record))

    @cached_property
    def users(self) -> tuple[NodeView, ...]:
        """The nodes that read its results."""
        graph = self.costed.graph
        found = (u for v in self.record.outputs for u in graph.users.get(v, ()))
        return tuple(NodeView(self.costed, n) for n in dict.fromkeys(found))

    @property
    def seconds(self) -> float | None:
        """The predicted seconds; None without a device."""
        times = self.costed.seconds_by_node
        return None if times is None else times.get(self.id, 0.0)

    @property
    def host_seconds(self) -> float | None:
        """Those in which the host launches it; None without a device."""
        times = self.costed.host_by_node
        return None if times is None else times.get(self.id, 0.0)

    @property
    def measured(self) -> float | None:
        """The measured seconds; None where nothing was measured."""
        found = self.costed.measurement
        return None if found is None else found.by_node.get(self.id, 0.0)

    @property
    def bound(self) -> Bound | None:
        """What it waits for; None where it moves nothing."""
        return self.costed.node_bounds.get(self.id)

    def __repr__(self) -> str:
        shape = "" if self.shape is None else f" {units.shape(self.shape)}"
        return f"<Node {self.id} {self.op} {self.name!r}{shape}: {units.flops(self.flops)}>"


@dataclass(frozen=True, eq=False, repr=False)
class Row(WithCost):
    """What some nodes cost together.

    They are those of a module with all below it, or those of an operator. `count` is how often the module
    was called, or how many nodes there are; `parameters` is None for operators; `class_name` is that of the
    module.
    """

    costed: CostedRecord
    name: str
    class_name: str
    count: int
    parameters: int | None
    cost: Cost
    records: tuple[Node, ...]

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """The nodes, in order of execution."""
        return tuple(NodeView(self.costed, n) for n in sorted(self.records, key=lambda n: n.id))

    @property
    def module(self) -> str:
        """The path of the innermost module that all of them are in: "" for the model itself."""
        paths = sorted(n.scope.split(".") for n in self.records)
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(paths[0], paths[-1], strict=False))
        return ".".join(part for part, _ in shared)

    @property
    def seconds(self) -> float | None:
        """The predicted seconds; None without a device."""
        return total_seconds(self.records, self.costed.seconds_by_node)

    @property
    def host_seconds(self) -> float | None:
        """Those in which the host launches them; None without a device."""
        return total_seconds(self.records, self.costed.host_by_node)

    @property
    def measured(self) -> float | None:
        """The measured seconds; None where nothing was measured."""
        found = self.costed.measurement
        return None if found is None else total_seconds(self.records, found.by_node)

    @property
    def share(self) -> float:
        """The share of the whole, by `CostedRecord.metric`."""
        costed, whole = self.costed, self.costed.totals
        of: tuple[float, float] = (self.bytes, whole.bytes)
        if costed.measurement is not None:
            of = (self.measured or 0.0, sum(costed.measurement.by_node.values()))
        elif costed.metric is Metric.SECONDS:
            every = total_seconds(costed.graph.nodes, costed.seconds_by_node)
            of = (self.seconds or 0.0, every or 0.0)
        elif costed.metric is Metric.FLOPS:
            of = (self.flops, whole.flops)
        return of[0] / of[1] if of[1] else 0.0

    @property
    def bound(self) -> Bound | None:
        """What they wait for; None where nothing is moved."""
        return self.costed.bound_of(self.records, self.cost)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "class": self.class_name, "count": self.count, "parameters": self.parameters,
            "flops": self.flops, "macs": self.macs, "other_flops": self.other_flops,
            "bytes": self.bytes, "arithmetic_intensity": self.arithmetic_intensity,
            "seconds": self.seconds, "host_seconds": self.host_seconds, "measured": self.measured,
            "share": self.share, "bound": self.bound,
        }  # fmt: skip

    def __repr__(self) -> str:
        time = "" if self.seconds is None else f", {units.seconds(self.seconds)}"
        cls = f" {self.class_name}" if self.class_name else ""
        return f"<{self.name or 'the model'}{cls}: {units.flops(self.flops)}{time}>"


@dataclass(frozen=True, eq=False, repr=False)
class Part(Row):
    """A subgraph of the partition: its nodes with what they cost one by one.

    `part` is the record, with the `rule` that made it, the `reason`, and the bytes that it would move as
    one kernel.
    """

    part: Subgraph

    @property
    def rule(self) -> str:
        """The rule that made it one."""
        return self.part.rule

    @property
    def fused_bytes(self) -> int:
        """The bytes that it moves as one kernel."""
        return self.part.fused_bytes

    @property
    def barrier(self) -> str | None:
        """Why it goes no further; None where nothing stands beside it."""
        return self.costed.barriers.get(self.part.id)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return super().to_dict() | self.part.to_dict() | {"module": self.module}


def operator(node: Node) -> str:
    """The operator that a node is counted with: what is made of constants is together."""
    return CONSTANTS if node.kind == "constant" else node.op


def by_op(costed: CostedRecord, *, measured: bool = False) -> tuple[Row, ...]:
    """What each canonical operator costs, the costliest first.

    By the seconds of nodes on a device or, where `measured`, those that they took; by FLOPs, by bytes, by
    name. What only steers (grad mode, autocast) is none, and what is made of constants is one entry.
    """
    groups: dict[str, list[Node]] = {}
    for node in costed.graph.nodes:
        if node.kind not in ("input", "output", "control"):
            groups.setdefault(operator(node), []).append(node)
    rows = (Row(costed, op, "", len(n), None, cost_of(n), tuple(n)) for op, n in groups.items())

    def order(row: Row) -> tuple[float, int, int, str]:
        taken = row.measured if measured else row.seconds
        return -(taken or 0.0), -row.flops, -row.bytes, row.name

    return tuple(sorted(rows, key=order))
