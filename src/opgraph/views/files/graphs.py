"""Graphs for other programs: GraphML and Model Explorer.

GraphML is for networkx, Gephi, yEd and Cytoscape: nodes with the columns of the CSV view, and an
edge for each tensor that a node reads from another (http://graphml.graphdrawing.org/specification.html)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opgraph.analysis.cost.totals import ModuleCost
from opgraph.analysis.costed import CostedRecord
from opgraph.record import units
from opgraph.record.files import dumps
from opgraph.record.graph import Node, Value
from opgraph.views.files.records import to_networkx
from opgraph.views.picture.scene import LIGHT
from opgraph.views.terminal import readable


def to_graphml(costed: CostedRecord) -> str:
    """The graph as GraphML, by networkx. Raises `MissingDependency` without it."""
    graph = to_networkx(costed)
    about = [
        graph.graph,
        *(d for _, d in graph.nodes(data=True)),
        *(d for *_, d in graph.edges(data=True)),
    ]
    for data in about:
        data.update({k: str(readable(v)) for k, v in data.items() if isinstance(v, str)})
    from networkx import generate_graphml

    return "\n".join(generate_graphml(graph)) + "\n"


# The graph for Google's Model Explorer (https://github.com/google-ai-edge/model-explorer): modules are its
# layers, costs are attributes of nodes and layers; and a colour overlay of one cost as its node data.


Json = dict[str, Any]

OVERLAYS: dict[str, Callable[[Node], float]] = {
    "flops": lambda n: n.flops,
    "bytes": lambda n: n.bytes,
    "intensity": lambda n: n.arithmetic_intensity or 0.0,
}
GRAPH = "opgraph"


def to_model_explorer(costed: CostedRecord) -> str:
    """The graph as a graph collection in JSON."""
    layers = {_namespace(m.path): _module(m) for m in costed.module_tree.walk()}
    graph = {
        "id": GRAPH,
        "nodes": [_node(costed, node) for node in costed.graph.nodes],
        "groupNodeAttributes": layers,
    }
    collection = {"label": costed.profile.model.name, "graphs": [graph]}
    return dumps(collection, indent=1) + "\n"


def to_overlay(costed: CostedRecord, *, color_by: str = "flops") -> str:
    """Node data that colour the nodes by a cost: "flops", "bytes" or "intensity"."""
    values = {str(n.id): OVERLAYS[color_by](n) for n in costed.graph.nodes}
    data = {
        "name": f"opgraph {color_by}",
        "results": {node: {"value": value} for node, value in values.items() if value},
        "gradient": [{"stop": step / 4, "bgColor": LIGHT[f"s{step + 1}"],
                      "textColor": LIGHT[f"s{step + 1}-ink"]} for step in range(5)],
    }  # fmt: skip
    return dumps({GRAPH: data}, indent=1) + "\n"


def _node(costed: CostedRecord, node: Node) -> Json:
    graph = costed.graph
    incoming = []
    for number, value in enumerate(node.inputs):
        producer = graph.producer.get(value)
        if producer is not None:
            incoming.append({
                "sourceNodeId": str(producer.id),
                "sourceNodeOutputId": str(producer.outputs.index(value)),
                "targetNodeInputId": str(number),
            })  # fmt: skip
    return {
        "id": str(node.id),
        "label": node.op if node.kind not in ("input", "output") else node.name,
        "namespace": _namespace(node.scope),
        "attrs": _attributes(_about(costed, node)),
        "incomingEdges": incoming,
        "outputsMetadata": [
            {"id": str(number), "attrs": _attributes(_tensor(graph.value[value]))}
            for number, value in enumerate(node.outputs)
        ],
        **({"style": {"backgroundColor": LIGHT["error-card"], "borderColor": LIGHT["error"]}}
           if node.error else {}),
    }  # fmt: skip


def _about(costed: CostedRecord, node: Node) -> dict[str, str]:
    seconds, host = costed.seconds_by_node or {}, costed.host_by_node or {}
    return {
        "name": node.name,
        "class": costed.graph.scope[node.scope].cls,
        "target": node.target,
        "arguments": node.arguments,
        "parameters": ", ".join(node.parameters),
        "FLOPs": units.flops(node.flops) if node.kernels else "",
        "MACs": units.macs(node.macs) if node.kernels else "",
        "bytes moved": units.size(node.bytes) if node.kernels else "",
        "FLOPs/byte": units.intensity(node.arithmetic_intensity) if node.bytes else "",
        "bottleneck": costed.node_bounds.get(node.id, ""),
        "kernels": ", ".join(k.op for k in node.kernels),
        "predicted": units.seconds(seconds[node.id]) if node.id in seconds else "",
        "launched by the host in": units.seconds(host[node.id]) if node.id in host else "",
        "source": f"{node.file}:{node.line}" if node.file else "",
        "error": node.error or "",
    }


def _tensor(value: Value) -> dict[str, str]:
    # "tensor_shape" is the key that Model Explorer writes along edges.
    return {
        "tensor_shape": f"{value.dtype}{list(value.shape)}".replace("'", ""),
        "size": units.size(value.bytes),
    }


def _module(module: ModuleCost) -> dict[str, str]:
    facts = {
        "class": module.cls,
        "calls": str(module.calls),
        "parameters": units.integer(module.parameters),
        "FLOPs": units.flops(module.flops),
        "bytes moved": units.size(module.bytes),
        "FLOPs/byte": units.intensity(module.arithmetic_intensity),
    }
    return {key: value for key, value in facts.items() if value}


def _attributes(facts: dict[str, str]) -> list[Json]:
    return [{"key": key, "value": value} for key, value in facts.items() if value]


def _namespace(path: str) -> str:
    """A module's path, with a part for each level; Model Explorer separates them by slashes."""
    return "/".join(part.replace("/", "∕") for part in path.split(".")) if path else ""
