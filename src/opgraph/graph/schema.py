"""Graphs to and from JSON-ready data. Records are objects without their default fields; kernels are
written once and referred to by position; storages are rows. Reading checks every type, since a file may
come from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_args

from opgraph.graph.ir import (
    CostKind,
    Graph,
    GraphBreak,
    Kernel,
    Node,
    NodeKind,
    Parameter,
    Scope,
    Storage,
    Value,
    ValueKind,
)

Json = Any
T = TypeVar("T")
Reader = Callable[[Json], Any]


class Malformed(ValueError):
    """Data that is not a graph."""


def encode(graph: Graph) -> dict[str, Json]:
    """A graph as JSON-ready data; `decode` gives an equal graph back."""
    kernels: dict[Kernel, int] = {}
    nodes = []
    for node in graph.nodes:
        record = _WRITE_NODE(node)
        if node.kernels:
            record["kernels"] = [kernels.setdefault(k, len(kernels)) for k in node.kernels]
        nodes.append(record)
    return {
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "breaks": [_WRITE_BREAK(b) for b in graph.breaks],
        "scopes": [_WRITE_SCOPE(s) for s in graph.scopes],
        "parameters": [_WRITE_PARAMETER(p) for p in graph.parameters],
        "kernels": [_WRITE_KERNEL(k) for k in kernels],
        "nodes": nodes,
        "values": [_WRITE_VALUE(v) for v in graph.values],
        "storages": [[s.bytes, s.born, s.died, s.node] for s in graph.storages],
    }


def decode(data: Json) -> Graph:
    """The graph that `encode` wrote.

    Raises `Malformed` with the place and the reason when the data is not a graph.
    """
    if not isinstance(data, dict):
        raise Malformed("the graph is not an object")
    kernels = tuple(_records(data, "kernels", _READ_KERNEL))

    def kernel(index: Json) -> Kernel:
        if type(index) is not int or not 0 <= index < len(kernels):
            raise Malformed(f"there is no kernel {index!r}")
        return kernels[index]

    read_node = _reader(Node, {**_NODE, "kernels": _tuple_of(kernel)})
    return Graph(
        nodes=tuple(_records(data, "nodes", read_node)),
        values=tuple(_records(data, "values", _READ_VALUE)),
        scopes=tuple(_records(data, "scopes", _READ_SCOPE)),
        parameters=tuple(_records(data, "parameters", _READ_PARAMETER)),
        storages=tuple(_records(data, "storages", _storage)),
        inputs=_ids(data.get("inputs", [])),
        outputs=_ids(data.get("outputs", [])),
        breaks=tuple(_records(data, "breaks", _READ_BREAK)),
    )


def _records(data: dict[str, Json], key: str, read: Callable[[Json], T]) -> Iterable[T]:
    rows = data.get(key, [])
    if not isinstance(rows, list):
        raise Malformed(f"{key!r} is not a list")
    for position, row in enumerate(rows):
        try:
            yield read(row)
        except Malformed as error:
            raise Malformed(f"{key}[{position}]: {error}") from None


_MOST = 10**24


def _integer(value: Json) -> int:
    if type(value) is not int or not -_MOST <= value <= _MOST:
        raise Malformed(f"{_short(value)} is not a number in range")
    return value


def _string(value: Json) -> str:
    if type(value) is not str:
        raise Malformed(f"{_short(value)} is not a text")
    return value


def _boolean(value: Json) -> bool:
    if type(value) is not bool:
        raise Malformed(f"{_short(value)} is neither true nor false")
    return value


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _optional(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


def _tuple_of(read: Reader) -> Reader:
    def read_tuple(value: Json) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Malformed(f"{_short(value)} is not a list")
        return tuple(map(read, value))

    return read_tuple


def _one_of(kind: Any) -> Reader:
    allowed = frozenset(get_args(kind))

    def read(value: Json) -> str:
        if type(value) is not str or value not in allowed:
            raise Malformed(f"{_short(value)} is not one of {', '.join(sorted(allowed))}")
        return value

    return read


def _dim(value: Json) -> int | str:
    if type(value) is int and 0 <= value < 2**63:
        return value
    return _string(value)


def _storage(row: Json) -> Storage:
    if type(row) is not list or len(row) != 4:
        raise Malformed(f"{_short(row)} is not a storage")
    size, born, died, node = row
    return Storage(_integer(size), _integer(born), _maybe(died), _maybe(node))


_maybe = _optional(_integer)
_ids = _tuple_of(_integer)
_strings = _tuple_of(_string)
_shape = _tuple_of(_dim)


def _reader(cls: Callable[..., T], readers: dict[str, Reader]) -> Callable[[Json], T]:
    """A function from an object to a record of `cls`; unknown fields are refused."""
    record: Any = cls
    required = {
        f.name for f in fields(record) if f.default is MISSING and f.default_factory is MISSING
    }

    def read(row: Json) -> T:
        if type(row) is not dict:
            raise Malformed(f"{_short(row)} is not an object")
        if not required <= row.keys():
            raise Malformed(f"{min(required - row.keys())!r} is missing")
        try:
            return cls(**{key: readers[key](value) for key, value in row.items()})
        except KeyError as error:
            raise Malformed(f"unknown field {_short(error.args[0])}") from None

    return read


def _writer(cls: type, skip: str | None = None) -> Callable[[Any], dict[str, Json]]:
    """A function from a record to an object without the fields that hold their defaults."""
    names = [
        (f.name, () if f.default_factory is not MISSING else f.default)
        for f in fields(cls)
        if f.name != skip
    ]

    def write(record: Any) -> dict[str, Json]:
        return {
            name: value
            for name, default in names
            if (value := getattr(record, name)) != default or default is MISSING
        }

    return write


_NODE: dict[str, Reader] = {
    "id": _integer,
    "kind": _one_of(NodeKind),
    "op": _string,
    "name": _string,
    "scope": _string,
    "target": _string,
    "arguments": _string,
    "inputs": _ids,
    "outputs": _ids,
    "parameters": _strings,
    "file": _optional(_string),
    "line": _optional(_integer),
    "fragment": _integer,
    "phase": _string,
    "error": _optional(_string),
}

_READ_KERNEL = _reader(
    Kernel,
    {
        "op": _string,
        "category": _string,
        "dtype": _string,
        "flops": _integer,
        "other_flops": _integer,
        "read": _integer,
        "written": _integer,
        "cost": _one_of(CostKind),
        "shapes": _tuple_of(_shape),
        "out_shapes": _tuple_of(_shape),
    },
)
_READ_VALUE = _reader(
    Value,
    {
        "id": _integer,
        "shape": _shape,
        "dtype": _string,
        "bytes": _integer,
        "kind": _one_of(ValueKind),
        "name": _optional(_string),
        "alias_of": _optional(_integer),
        "storage": _optional(_integer),
        "strides": _optional(_ids),
    },
)
_READ_PARAMETER = _reader(
    Parameter,
    {
        "name": _string,
        "shape": _shape,
        "dtype": _string,
        "numel": _integer,
        "bytes": _integer,
        "scope": _string,
        "kind": _one_of(ValueKind),
        "trainable": _boolean,
        "tied": _strings,
    },
)
_READ_SCOPE = _reader(
    Scope,
    {
        "path": _string,
        "cls": _string,
        "calls": _integer,
        "inputs": _ids,
        "outputs": _ids,
        "doc": _string,
    },
)
_READ_BREAK = _reader(
    GraphBreak,
    {
        "fragment": _integer,
        "reason": _string,
        "file": _optional(_string),
        "line": _optional(_integer),
    },
)
_WRITE_NODE = _writer(Node, skip="kernels")
_WRITE_KERNEL = _writer(Kernel)
_WRITE_VALUE = _writer(Value)
_WRITE_PARAMETER = _writer(Parameter)
_WRITE_SCOPE = _writer(Scope)
_WRITE_BREAK = _writer(GraphBreak)
