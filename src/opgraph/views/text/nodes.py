"""What lists of nodes show of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.selection import sources
from opgraph.record.graph import Node, Shape
from opgraph.record.kinds import Bound


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node. `cls` is the class of the module it stands in; `inputs` and `outputs` are shapes of
    tensors other than parameters; `reads` the nodes whose results it reads, and `users` those that read
    its own; `parameters` how many elements its parameters have; FLOPs, bytes and intensity as in
    `Node`; `seconds` the predicted time, where a device is named, `measured` the one that it took, where
    it was run."""

    id: int
    kind: str
    op: str
    name: str
    module: str
    cls: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    dtype: str
    reads: tuple[int, ...]
    users: tuple[int, ...]
    parameters: int
    flops: int
    other_flops: int
    bytes: int
    intensity: float | None
    bottleneck: Bound | None
    file: str | None
    line: int | None
    error: str | None
    seconds: float | None = None
    measured: float | None = None

    @property
    def place(self) -> str:
        """The source line as written: modeling_bert.py:203; or nothing."""
        return f"{PurePath(self.file).name}:{self.line}" if self.file else ""


def node_rows(
    costed: CostedRecord,
    nodes: Iterable[Node],
) -> list[NodeRow]:
    """The records of nodes, on a device with their seconds."""
    graph = costed.graph
    sizes = {p.name: p.numel for p in graph.parameters if p.kind == "parameter"}
    return [_row(costed, node, sizes) for node in nodes]


def _row(costed: CostedRecord, node: Node, sizes: dict[str, int]) -> NodeRow:
    graph = costed.graph
    value = graph.value
    read = [value[v] for v in node.inputs if value[v].kind not in ("parameter", "buffer")]
    made = [value[v] for v in node.outputs]
    users = dict.fromkeys(user.id for v in node.outputs for user in graph.users.get(v, ()))
    intensity = node.arithmetic_intensity
    return NodeRow(
        id=node.id,
        kind=node.kind,
        op=node.op,
        name=node.name,
        module=node.scope,
        cls=graph.scope[node.scope].cls,
        inputs=tuple(v.shape for v in read),
        outputs=tuple(v.shape for v in made),
        dtype=next((v.dtype for v in (*made, *read)), ""),
        reads=sources(graph, node),
        users=tuple(users),
        parameters=sum(sizes.get(name, 0) for name in node.parameters),
        flops=node.flops,
        other_flops=node.other_flops,
        bytes=node.bytes,
        intensity=intensity,
        bottleneck=costed.node_bounds.get(node.id),
        file=node.file,
        line=node.line,
        error=node.error,
        seconds=(costed.seconds_by_node or {}).get(node.id),
        measured=None if costed.measurement is None else costed.measurement.by_node.get(node.id),
    )
