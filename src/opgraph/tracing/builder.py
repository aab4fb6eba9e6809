"""From what a recorder wrote down to a verified `Graph`."""

from __future__ import annotations

from opgraph.graph import Graph, Node, Scope, verify
from opgraph.tracing.recorder import Recorder
from opgraph.tracing.values import Record


def build(
    recorder: Recorder,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
) -> Graph:
    """Make the graph of a finished run."""
    storages = recorder.capture.memory.close()
    kernels = recorder.capture.kernels
    names = _Names()
    nodes = tuple(
        Node(
            id=position,
            kind=record.kind,
            op=record.op,
            name=names.of(record),
            scope=record.call.path,
            target=record.target,
            arguments=record.arguments,
            inputs=tuple(record.inputs),
            outputs=tuple(record.outputs),
            parameters=_parameters(record, recorder),
            kernels=tuple(kernels[record.first : record.last]),
            file=record.place[0],
            line=record.place[1],
            fragment=record.fragment,
            phase=record.phase,
            error=record.error,
        )
        for position, record in enumerate(recorder.records, start=1)
    )
    numbered = tuple(
        s if s.node is None else type(s)(s.bytes, s.born, s.died, s.node + 1) for s in storages
    )
    return verify(
        Graph(
            nodes=nodes,
            values=tuple(recorder.table.values),
            scopes=_scopes(recorder),
            parameters=tuple(recorder.weights.parameters),
            storages=numbered,
            inputs=inputs,
            outputs=outputs,
            breaks=tuple(recorder.breaks),
        )
    )


def _parameters(record: Record, recorder: Recorder) -> tuple[str, ...]:
    values = (recorder.table.values[v] for v in record.inputs)
    return tuple(v.name for v in values if v.kind in ("parameter", "buffer") and v.name is not None)


def _scopes(recorder: Recorder) -> tuple[Scope, ...]:
    classes = {path: type(module).__name__ for path, module in recorder.weights.tree.items()}
    modules = recorder.modules
    classes |= modules.classes
    for record in recorder.records:
        classes.setdefault(record.call.path, "")
    return tuple(
        Scope(
            path=path,
            cls=cls,
            calls=modules.counts.get(path, 0),
            inputs=modules.inputs.get(path, ()),
            outputs=modules.outputs.get(path, ()),
        )
        for path, cls in classes.items()
    )


class _Names:
    """Names of nodes: the module's path where the call of a module is this one node, otherwise the path
    and the operator; a number behind it where that was there before."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def of(self, record: Record) -> str:
        call = record.call
        if record.name is not None:
            base = record.name
        elif call.path and call.nodes == 1 and call.children == 0:
            base = call.path
        else:
            base = f"{call.path}.{record.op}" if call.path else record.op
        number = self._taken.get(base)
        if number is None:
            self._taken[base] = 0
            return base
        while True:
            number += 1
            name = f"{base}_{number}"
            if name not in self._taken:
                self._taken[base] = number
                self._taken[name] = 0
                return name
