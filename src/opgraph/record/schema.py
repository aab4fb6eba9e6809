"""Graphs and runs to and from JSON-ready data. Records are objects without their default fields;
kernels are written once and referred to by position; storages and what happened in a run are rows.
Reading checks every type, since a file may come from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, asdict, fields
from typing import Annotated, Any, TypeVar, get_type_hints

from msgspec import Meta, convert, defstruct

from opgraph.record.graph import Graph, GraphBreak, Kernel, Node, Parameter, Scope, Storage, Value
from opgraph.record.profile import Begun, Pipeline, Sample
from opgraph.record.run import Clock, Exchange, Gap, Held, RunEvent, RunRecord, Slice
from opgraph.record.verify import verify

Json = Any
T = TypeVar("T")


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
        "kernels": [_kernel(k) for k in kernels],
        "nodes": nodes,
        "values": [_WRITE_VALUE(v) for v in graph.values],
        "storages": [[s.bytes, s.born, s.died, s.node] for s in graph.storages],
    }


def decode(record: Any) -> Graph:
    """The graph that `encode` wrote, read as a `GraphRecord`.

    Raises `Malformed` with the reason when the data is not a graph.
    """
    kernels = _made(tuple[Kernel, ...], record.kernels)
    for node in record.nodes:
        if not all(0 <= k < len(kernels) for k in node.kernels):
            raise Malformed(f"node {node.id} ran a kernel that is not there")
        node.kernels = tuple([kernels[k] for k in node.kernels])
    return Graph(
        nodes=_made(tuple[Node, ...], record.nodes),
        values=_made(tuple[Value, ...], record.values),
        scopes=_made(tuple[Scope, ...], record.scopes),
        parameters=_made(tuple[Parameter, ...], record.parameters),
        storages=_made(tuple[Storage, ...], record.storages),
        inputs=record.inputs,
        outputs=record.outputs,
        breaks=_made(tuple[GraphBreak, ...], record.breaks),
    )


def _made(records: type[T], found: Any) -> T:
    """Records of what was read. Their own constructors would take three times as long."""
    return convert(found, type=records, from_attributes=True)


def _record(cls: type, **other: Any) -> Any:
    """What a record of `cls` is in a file, some of its fields being of `other` types: for `msgspec`, which
    checks every type and refuses fields that there are not."""
    types = {**get_type_hints(cls, localns={"Shape": _SHAPE}, include_extras=True), **other}
    return defstruct(
        cls.__name__,
        [
            (f.name, types[f.name], *(() if (default := _default(f)) is MISSING else (default,)))
            for f in fields(cls)
        ],
        forbid_unknown_fields=True,
        array_like=cls in _ROWS,
        gc=False,
    )


def _default(field: Field[Any]) -> Any:
    """What a field holds where nothing is said, or `MISSING`."""
    return field.default if field.default_factory is MISSING else field.default_factory()


_ROWS = (Storage, RunEvent, Slice, Gap, Held, Clock, Exchange)
_SHAPE = tuple[Annotated[int, Meta(ge=0, le=2**63 - 1)] | str, ...]
_IDS = tuple[int, ...]

GraphRecord: Any = defstruct(
    "Graph",
    [
        ("nodes", list[_record(Node, kernels=_IDS)]),  # type: ignore[misc]
        ("values", list[_record(Value)]),  # type: ignore[misc]
        ("scopes", list[_record(Scope)]),  # type: ignore[misc]
        ("kernels", list[_record(Kernel)], []),  # type: ignore[misc]
        ("parameters", list[_record(Parameter)], []),  # type: ignore[misc]
        ("storages", list[_record(Storage)], []),  # type: ignore[misc]
        ("inputs", _IDS, ()),
        ("outputs", _IDS, ()),
        ("breaks", list[_record(GraphBreak)], []),  # type: ignore[misc]
    ],
    forbid_unknown_fields=True,
)
"""A graph in a file, as `encode` writes it."""

RunFile: Any = _record(
    RunRecord,
    events=tuple[_record(RunEvent), ...],  # type: ignore[misc]
    timeline=tuple[_record(Slice), ...],  # type: ignore[misc]
    gaps=tuple[_record(Gap), ...],  # type: ignore[misc]
    held=tuple[_record(Held), ...],  # type: ignore[misc]
    clocks=tuple[_record(Clock), ...],  # type: ignore[misc]
    exchanges=tuple[_record(Exchange), ...],  # type: ignore[misc]
    partial=tuple[_record(RunEvent), ...],  # type: ignore[misc]
)
"""A run in a file, as `encode_run` writes it."""


PipelineFile: Any = _record(
    Pipeline,
    samples=tuple[_record(Sample, graph=GraphRecord), ...],  # type: ignore[misc]
)
"""What the ranks of a pipeline do, in a file, as `encode_pipeline` writes it."""


def encode_pipeline(found: Pipeline) -> dict[str, Json]:
    """What the ranks of a pipeline do, as JSON-ready data."""
    begun = [asdict(b) for b in found.begun]
    samples = [
        {"graph": encode(s.graph), "begun": [asdict(b) for b in s.begun]} for s in found.samples
    ]
    return {"rank": found.rank, "orders": found.orders, "begun": begun, "samples": samples,
            "like": found.like, "batch": found.batch}  # fmt: skip


def decode_pipeline(record: Any) -> Pipeline:
    """What `encode_pipeline` wrote, read as a `PipelineFile`.

    Raises `Malformed` where ranks are like samples that there are not.
    """
    if record.rank >= len(record.orders) or not all(record.orders):
        raise Malformed("its pipeline has no such rank")
    if record.like and (len(record.like) != len(record.orders)
                        or not all(-1 <= at < len(record.samples) for at in record.like)):  # fmt: skip
        raise Malformed("a rank of its pipeline is like none that there is")
    read = _made(tuple[Begun, ...], record.begun)
    samples = tuple([Sample(verify(decode(s.graph)), _made(tuple[Begun, ...], s.begun))
                     for s in record.samples])  # fmt: skip
    begun = (*read, *(b for s in samples for b in s.begun))
    kinds = {a[0] for row in (*record.orders, [b.action for b in begun]) for a in row}
    if not kinds <= {"F", "B", "I", "W"}:
        raise Malformed("its pipeline does what there is not")
    return Pipeline(record.rank, record.orders, read, samples, record.like, record.batch)


def encode_run(run: RunRecord) -> dict[str, Json]:
    """A run as JSON-ready data; `decode_run` gives an equal run back."""
    record = _WRITE_RUN(run)
    for name in ("events", "timeline", "gaps", "held", "clocks", "exchanges", "partial"):
        if name in record:
            record[name] = [[getattr(r, f) for f in r.__slots__] for r in record[name]]
    return record


def decode_run(record: Any, nodes: int) -> RunRecord:
    """The run of a graph of so many `nodes` that `encode_run` wrote, read as a `RunFile`.

    Raises `Malformed` where it is not of these nodes, or its timeline not of its events.
    """
    run = _made(RunRecord, record)
    ids = (
        *(i for e in run.events for i in e.nodes),
        *(g.node for g in run.gaps if g.node is not None),
        *(i for h in run.held for i in h.nodes),
        *run.peak_nodes,
        *filter(None, run.memory_nodes),
    )
    if not all(1 <= i <= nodes for i in ids):
        raise Malformed("what was measured is not of its nodes")
    if not all(s.event < len(run.events) for s in run.timeline):
        raise Malformed("the timeline of what was measured is not of its events")
    return run


def _writer(cls: type, skip: str | None = None) -> Callable[[Any], dict[str, Json]]:
    """A function from a record to an object without the fields that hold their defaults."""
    names = [(f.name, _default(f)) for f in fields(cls) if f.name != skip]

    def write(record: Any) -> dict[str, Json]:
        return {
            name: value
            for name, default in names
            if (value := getattr(record, name)) != default or default is MISSING
        }

    return write


def _kernel(kernel: Kernel) -> dict[str, Json]:
    record = _WRITE_KERNEL(kernel)
    if kernel.collective is None:
        return record
    collective = asdict(kernel.collective)
    if not kernel.collective.members:
        del collective["members"]
    return record | {"collective": collective}


_WRITE_NODE = _writer(Node, skip="kernels")
_WRITE_KERNEL = _writer(Kernel)
_WRITE_VALUE = _writer(Value)
_WRITE_PARAMETER = _writer(Parameter)
_WRITE_SCOPE = _writer(Scope)
_WRITE_BREAK = _writer(GraphBreak)
_WRITE_RUN = _writer(RunRecord)
