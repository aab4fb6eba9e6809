"""A node with what stands around it at hand: its tensors, its neighbours, its time and what bounds it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from opgraph.analysis.costed import CostedRecord
from opgraph.record import units
from opgraph.record.graph import Kernel, Node, Shape, Value
from opgraph.record.kinds import Bound


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
        found = (graph.producer.get(v) for v in self.record.inputs)
        return tuple(NodeView(self.costed, n) for n in dict.fromkeys(found) if n is not None)

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
