"""The graph as flat records, one a node: what CSV, Parquet and data frames hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from opgraph import units
from opgraph.analysis import GENERIC_RIDGE, classify
from opgraph.analysis.endings import endings
from opgraph.analysis.fusion import Subgraph
from opgraph.analysis.prediction import predict
from opgraph.document import Profile
from opgraph.graph import Node
from opgraph.hardware import Device

Record = dict[str, str | int | float | None]


def records(
    profile: Profile,
    nodes: Iterable[Node] | None = None,
    *,
    ridge: float = GENERIC_RIDGE,
    parts: Sequence[Subgraph] = (),
    device: Device | None = None,
) -> list[Record]:
    """One record a node (of those given, or of all), in their order, with the same keys in all.

    Sizes are in bytes, `flops` are those of contractions, `arithmetic_intensity` is in FLOPs/byte;
    `parameters` counts the elements of the parameters a node uses, at every use. With `device` there is
    the predicted time (`seconds`), with `parts` the subgraph of a partition that a node is in.
    """
    elements = {p.name: p.numel for p in profile.graph.parameters if p.kind == "parameter"}
    wanted = profile.nodes if nodes is None else nodes
    seconds = None if device is None else predict(profile.graph, device).by_node
    subgraphs = _subgraphs(profile, parts)
    return [
        {
            **_record(profile, node, elements, ridge),
            **({} if seconds is None else {"seconds": seconds.get(node.id)}),
            **subgraphs.get(node.id, {}),
        }
        for node in wanted
    ]


def _subgraphs(profile: Profile, parts: Sequence[Subgraph]) -> Mapping[int, Record]:
    """What is said of the subgraph of every node, by the node's id."""
    ends = endings(profile.graph, parts)
    said: dict[int, Record] = {
        part.id: {
            "subgraph": part.id,
            "fusion": part.rule,
            "fusion_reason": part.reason,
            "fusion_end": ends[part.id],
        }
        for part in parts
    }
    return {node: said[part.id] for part in parts for node in part.nodes}


def _record(profile: Profile, node: Node, elements: dict[str, int], ridge: float) -> Record:
    value = profile.graph.value
    intensity = node.arithmetic_intensity
    made = [value[v] for v in node.outputs]
    read = [value[v] for v in node.inputs if value[v].kind not in ("parameter", "buffer")]
    producers = (profile.graph.producer.get(v.id) for v in read)
    return {
        "id": node.id,
        "name": node.name,
        "kind": node.kind,
        "op": node.op,
        "module": node.scope,
        "class": profile.graph.scope[node.scope].cls,
        "target": node.target,
        "arguments": node.arguments,
        "inputs": " ".join(map(str, dict.fromkeys(p.id for p in producers if p is not None))),
        "input_shapes": " ".join(units.shape(v.shape) for v in read),
        "output_shapes": " ".join(units.shape(v.shape) for v in made),
        "dtype": made[0].dtype if made else "",
        "parameters": sum(elements.get(p, 0) for p in node.parameters),
        "flops": node.flops,
        "macs": node.macs,
        "other_flops": node.other_flops,
        "bytes_read": sum(k.read for k in node.kernels),
        "bytes_written": sum(k.written for k in node.kernels),
        "bytes": node.bytes,
        "arithmetic_intensity": None if intensity is None else round(intensity, 6),
        "bottleneck": classify(intensity, ridge) or "",
        "kernels": len(node.kernels),
        "unknown_kernels": sum(k.cost == "unknown" for k in node.kernels),
        "file": node.file,
        "line": node.line,
        "fragment": node.fragment,
        "phase": node.phase,
        "error": node.error,
    }  # fmt: skip
