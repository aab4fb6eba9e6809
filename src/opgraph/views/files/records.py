"""The graph as flat records, one a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from opgraph.analysis.nodes import NodeView
from opgraph.record import units
from opgraph.record.errors import MissingDependency
from opgraph.views.tables import csv_text, frame, parquet_bytes

if TYPE_CHECKING:
    from opgraph.analysis.costed import CostedRecord
    from opgraph.record.graph import Node

Record = dict[str, str | int | float | None]


def records(
    costed: CostedRecord, nodes: Iterable[Node] | None = None, *, subgraphs: bool | None = None
) -> list[Record]:
    """One record a node (of those given, or of all), in their order, with the same keys in all.

    Sizes are in bytes, `flops` are those of contractions, `arithmetic_intensity` is in FLOPs/byte;
    `parameters` counts the elements of the parameters a node uses, at every use. On a device there are
    the predicted times of the device (`seconds`) and of the host (`host_seconds`), where it was run the
    `measured` one, with `subgraphs` (if not given, where a partition was asked for) the subgraph of the
    partition that a node is in.
    """
    graph = costed.graph
    seconds, host, measured = costed.seconds_by_node, costed.host_by_node, costed.measurement
    parts = "partition" in costed.asked if subgraphs is None else subgraphs
    members = _subgraphs(costed) if parts else {}
    return [
        {
            **_record(NodeView(costed, node)),
            **({} if seconds is None else {"seconds": seconds.get(node.id)}),
            **({} if host is None else {"host_seconds": host.get(node.id)}),
            **({} if measured is None else {"measured": measured.by_node.get(node.id)}),
            **members.get(node.id, {}),
        }
        for node in (graph.nodes if nodes is None else nodes)
    ]


def _subgraphs(costed: CostedRecord) -> Mapping[int, Record]:
    """What is said of every node's subgraph, by its id."""
    said: dict[int, Record] = {
        part.id: {
            "subgraph": part.id,
            "fusion": part.rule,
            "fusion_reason": part.reason,
            "fusion_end": costed.barriers[part.id],
        }
        for part in costed.parts
    }
    return {node: said[part.id] for part in costed.parts for node in part.nodes}


def _record(node: NodeView) -> Record:
    own, intensity = node.record, node.arithmetic_intensity
    return {
        "id": node.id,
        "name": node.name,
        "kind": node.kind,
        "op": node.op,
        "module": node.module,
        "class": node.cls,
        "target": own.target,
        "arguments": node.arguments,
        "inputs": " ".join(str(n.id) for n in node.sources),
        "input_shapes": " ".join(units.shape(v.shape) for v in node.read),
        "output_shapes": " ".join(units.shape(v.shape) for v in node.outputs),
        "dtype": node.dtype or "",
        "parameters": node.elements,
        "flops": node.flops,
        "macs": node.macs,
        "other_flops": node.other_flops,
        "bytes_read": sum(k.read for k in node.kernels),
        "bytes_written": sum(k.written for k in node.kernels),
        "bytes": node.bytes,
        "arithmetic_intensity": None if intensity is None else round(intensity, 6),
        "bottleneck": node.bound or "",
        "kernels": len(node.kernels),
        "unknown_kernels": sum(k.cost == "unknown" for k in node.kernels),
        "file": own.file,
        "line": own.line,
        "fragment": node.fragment,
        "phase": node.phase,
        "forward": node.forward,
        "error": node.error,
    }  # fmt: skip


def to_csv(costed: CostedRecord) -> str:
    """The nodes as comma-separated values with a header, in UTF-8, with their subgraphs where a partition
    was asked for."""
    return csv_text(records(costed))


def to_parquet(costed: CostedRecord) -> bytes:
    """The same as a Parquet table; its metadata name the model. Raises `MissingDependency` without
    pyarrow."""
    model = costed.profile.model
    about = {"opgraph.model": model.name, "opgraph.class": model.cls}
    return parquet_bytes(records(costed), about)


# The graph in the hands of other Python libraries: a pandas DataFrame, a networkx graph.


def to_pandas(costed: CostedRecord) -> Any:
    """A `pandas.DataFrame` with one row a node, indexed by the node's number, with the columns of the
    CSV view. Raises `MissingDependency` without pandas."""
    return frame(records(costed), "id")


def to_networkx(costed: CostedRecord) -> Any:
    """A `networkx.MultiDiGraph` with the numbers of nodes as its nodes and one edge for each tensor that
    a node reads from another; nodes carry the columns of the CSV view, edges `value`, `shape`, `dtype`
    and `bytes`. Raises `MissingDependency` without networkx."""
    try:
        import networkx as nx
    except ImportError:
        raise MissingDependency("networkx", "data") from None
    graph = nx.MultiDiGraph(name=costed.profile.model.name)
    for record in records(costed):
        graph.add_node(
            record["id"], **{k: v for k, v in record.items() if k != "id" and v is not None}
        )
    producer = costed.graph.producer
    for node in costed.graph.nodes:
        for number in node.inputs:
            if number in producer:
                value = costed.graph.value[number]
                graph.add_edge(producer[number].id, node.id, value=number, bytes=value.bytes,
                               shape=units.shape(value.shape), dtype=value.dtype)  # fmt: skip
    return graph
