"""The graph as a Chakra execution trace (https://github.com/mlcommons/chakra), which ASTRA-sim and others
read: one node a call that does work, with what it depends on, its FLOPs and its bytes. Of a rank of many,
what it exchanges are nodes of communication, with the ranks of the group."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.timing.streams import WAITING, group_of
from opgraph.record import units
from opgraph.record.errors import MissingDependency
from opgraph.record.graph import Collective, Graph, Node
from opgraph.record.kinds import TRANSFERS, CollectiveKind

VERSION = "0.0.4"
"""The version of the schema whose fields are written."""

LOAD, STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = 2, 3, 4, 5, 6, 7
"""Values of NodeType: MEM_LOAD_NODE, MEM_STORE_NODE, COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE,
COMM_COLL_NODE."""

KINDS = {CollectiveKind.SEND: SEND, CollectiveKind.RECEIVE: RECEIVE, CollectiveKind.UPLOAD: LOAD,
         CollectiveKind.DOWNLOAD: STORE}  # fmt: skip
"""Those of what is exchanged otherwise than by a collective."""

COLLECTIVES = {
    CollectiveKind.ALL_REDUCE: 0, CollectiveKind.REDUCE: 1, CollectiveKind.ALL_GATHER: 2,
    CollectiveKind.GATHER: 3, CollectiveKind.SCATTER: 4, CollectiveKind.BROADCAST: 5,
    CollectiveKind.ALL_TO_ALL: 6, CollectiveKind.PERMUTE: 6, CollectiveKind.REDUCE_SCATTER: 7,
    CollectiveKind.BARRIER: 9,
}  # fmt: skip
"""Values of CollectiveCommType."""

MICRO = 1e6

_GATHERED = (CollectiveKind.ALL_GATHER, CollectiveKind.GATHER)
_TEXT, _BOOL, _UINT64, _INT64, _MESSAGE = 9, 8, 4, 3, 11
_FIELDS = {
    "AttributeProto": (("name", 1, _TEXT), ("int64_val", 9, _INT64), ("bool_val", 27, _BOOL),
                       ("string_val", 29, _TEXT)),
    "GlobalMetadata": (("version", 1, _TEXT), ("attr", 2, "AttributeProto")),
    "IOInfo": (("values", 1, _TEXT), ("shapes", 2, _TEXT), ("types", 3, _TEXT)),
    "Node": (("id", 1, _UINT64), ("name", 2, _TEXT), ("type", 3, _UINT64), ("data_deps", 5, _UINT64),
             ("duration_micros", 7, _UINT64), ("inputs", 8, "IOInfo"), ("outputs", 9, "IOInfo"),
             ("attr", 10, "AttributeProto")),
}  # fmt: skip
"""The fields of the schema that are used, with their numbers and types; an enum is its number."""

_REPEATED = {("GlobalMetadata", "attr"), ("Node", "attr"), ("Node", "data_deps")}


def to_chakra(costed: CostedRecord) -> bytes:
    """The trace of one rank: `num_ops` are FLOPs of all kinds, `tensor_size` the bytes that are read and
    written, `duration_micros` the predicted time where there is a device. What is exchanged has
    `comm_type`, `comm_size` (the bytes that this rank gives) and `pg_name`, whose ranks are in the
    metadata; its time is all that it takes, whatever runs beside it.

    A call without work (a view) is no node: who reads its result depends on what it read. Raises
    `MissingDependency` without protobuf.
    """
    message = _messages()
    out = io.BytesIO()
    write = message["write"]
    world = costed.profile.world
    about = {"model": costed.profile.model.name}
    if world is not None:
        about |= {"rank": str(world.rank), "world_size": str(world.size)}
        groups = filter(None, map(_exchanged, costed.graph.nodes))
        about |= {group_of(g): str(list(group_ranks(g, world.rank)))
                  for g in groups if g.kind not in TRANSFERS}  # fmt: skip
    if costed.device is not None:
        about["device"] = costed.device.name
    attributes = [message["AttributeProto"](name=k, string_val=_text(v)) for k, v in about.items()]
    write(message["GlobalMetadata"](version=VERSION, attr=attributes), out)
    seconds = dict(costed.seconds_by_node or {})
    for slot in () if costed.prediction is None else costed.prediction.slots:
        if slot.collective is not None and slot.queue != WAITING:
            seconds[slot.node] = slot.end - slot.begin
    for node, needed in _work(costed.graph):
        write(_node(message, costed.graph, node, needed, seconds.get(node.id)), out)
    return out.getvalue()


def _work(graph: Graph) -> list[tuple[Node, list[int]]]:
    """The nodes that do work, with the ids of those that made what they read, through all views."""
    made: dict[int, frozenset[int]] = {}  # by value
    found = []
    for node in graph.nodes:
        needed = frozenset[int]().union(*(made.get(v, frozenset()) for v in node.inputs))
        if node.flops or node.other_flops or node.bytes or _exchanged(node):
            found.append((node, sorted(needed)))
            needed = frozenset({node.id})
        for value in node.outputs:
            made[value] = needed
    return found


def _exchanged(node: Node) -> Collective | None:
    return next((k.collective for k in node.kernels if k.collective is not None), None)


def group_ranks(each: Collective, rank: int) -> tuple[int, ...]:
    """The ranks of the group of a collective in which this rank is."""
    if each.members:
        return each.members
    first = rank - rank // each.stride % each.ranks * each.stride
    return tuple(range(first, first + each.ranks * each.stride, each.stride))


def _node(
    message: dict[str, Any], graph: Graph, node: Node, needed: list[int], seconds: float | None
) -> Any:
    numbers = {"num_ops": node.flops + node.other_flops, "tensor_size": node.bytes,
               "contraction_ops": node.flops}  # fmt: skip
    attribute = message["AttributeProto"]
    there = node.id in graph.on_host.nodes
    attributes = [attribute(name="is_cpu_op", bool_val=there)]
    attributes += [attribute(name=k, int64_val=v) for k, v in numbers.items()]
    words = {"op": node.op, "phase": node.phase}
    kind = COMPUTE
    if (each := _exchanged(node)) is not None:
        kind = KINDS.get(each.kind, COLLECTIVE)
        given = each.bytes // each.ranks if each.kind in _GATHERED else each.bytes
        exchanged = {"comm_size": given}
        if kind == COLLECTIVE:
            exchanged["comm_type"] = COLLECTIVES[each.kind]
        if each.kind not in TRANSFERS:
            attributes += [attribute(name=k, int64_val=v) for k, v in exchanged.items()]
            words["pg_name"] = group_of(each)
    attributes += [attribute(name=k, string_val=_text(v)) for k, v in words.items()]
    return message["Node"](
        id=node.id,
        name=_text(f"{node.scope}.{node.op}".lstrip(".")),
        type=kind,
        data_deps=needed,
        duration_micros=0 if seconds is None else max(1, round(seconds * MICRO)),
        inputs=_operands(message, graph, node.inputs),
        outputs=_operands(message, graph, node.outputs),
        attr=attributes,
    )


def _text(text: str) -> str:
    """A text as protobuf takes it: without halves of characters."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _operands(message: dict[str, Any], graph: Graph, ids: tuple[int, ...]) -> Any:
    values = [graph.value[i] for i in ids]
    return message["IOInfo"](
        values=str(list(ids)),
        shapes=_text(str([units.shape(v.shape) for v in values])),
        types=_text(str([v.dtype for v in values])),
    )


@cache
def _messages() -> dict[str, Any]:
    """The classes of the messages, and how one is written: its length before it."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.proto import serialize_length_prefixed
    except ImportError:
        raise MissingDependency("protobuf", "onnx") from None
    file = descriptor_pb2.FileDescriptorProto(
        name="opgraph/chakra.proto", package="opgraph.chakra", syntax="proto3"
    )
    for name, fields in _FIELDS.items():
        described = file.message_type.add(name=name)
        if name == "AttributeProto":
            described.oneof_decl.add(name="value")
        for field, number, kind in fields:
            repeated = (name, field) in _REPEATED
            added = described.field.add(name=field, number=number, label=3 if repeated else 1)
            if isinstance(kind, str):
                added.type, added.type_name = _MESSAGE, f".opgraph.chakra.{kind}"
            else:
                added.type = kind
            if name == "AttributeProto" and field != "name":
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"opgraph.chakra.{name}"))
        for name in _FIELDS
    }
    return {**classes, "write": serialize_length_prefixed}
