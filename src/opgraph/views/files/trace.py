"""The trace view: a run as a timeline in the Trace Event Format, for https://ui.perfetto.dev and
chrome://tracing. As it is predicted on a device, modules hold modules, these operators, these kernels, and
live memory is a counter. Where the host is the limit they are those of its launches, and kernels have a
thread of their own, beside the gaps in which the device waits. What ranks exchange has a thread for each
group, and what kernels wait for is a slice of its own among them. What was measured stands beside it as a
process of its own, with a thread for each stream, and each kernel with the node that it was for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.timing.prediction import KernelTime, Prediction
from opgraph.analysis.timing.streams import KERNELS, ON_HOST, WAITING, Slot
from opgraph.analysis.tree import Item, ItemKind
from opgraph.record import units
from opgraph.record.errors import RenderError
from opgraph.record.files import dumps
from opgraph.record.graph import Graph, Node
from opgraph.record.kinds import Bound
from opgraph.record.run import RunRecord

Event = dict[str, Any]
MICRO = 1e6


def to_trace(costed: CostedRecord) -> str:
    """The timeline as JSON, in microseconds. Raises `RenderError` where no device is named and nothing was
    measured."""
    profile, found, prediction = costed.profile, costed.device, costed.prediction
    run, events = profile.measured, list[Event]()
    if found is not None and prediction is not None:
        timeline = _Timeline(costed, prediction)
        rank = "" if profile.world is None else f", {profile.world}"
        name = f"{profile.model.name} on {found.name}{rank}, predicted"
        events += [_named("process", 1, 1, name)]
        lanes = ["host", KERNELS] if timeline.hosted else [KERNELS]
        events += [_named("thread", 1, lane, queue) for lane, queue in enumerate(lanes, 1)]
        events += [*timeline.item(costed.tree.root), *timeline.memory()]
        events += _exchanged(prediction.slots)
        events += _stages(prediction)
    elif run is None:
        raise RenderError(
            "a timeline needs a device, or a run that was measured",
            hint="--hardware h100-sxm (opgraph hardware lists them)",
        )
    if run is not None:
        events += _measured(profile.model.name, run, profile.graph)
    on = {} if found is None else {"device": found.name}
    ran = {} if run is None else {"measured on": run.device_name or run.device}
    data = {"displayTimeUnit": "ns", "otherData": {"model": profile.model.name, **on, **ran,
            "made by": f"opgraph {profile.versions.get('opgraph', '')}".strip()}}  # fmt: skip
    rows = ",\n".join(dumps(e) for e in events)
    head = dumps(data)[:-1]
    return f'{head}, "traceEvents": [\n{rows}\n]}}\n'


def _named(what: str, process: int, thread: int, name: str) -> Event:
    return {
        "ph": "M",
        "pid": process,
        "tid": thread,
        "name": f"{what}_name",
        "args": {"name": name},
    }


def _measured(model: str, run: RunRecord, graph: Graph) -> Iterator[Event]:
    """The step of a run that has a timeline: each rank as a process, each stream as a thread."""
    for rank, stream in sorted({(s.rank, s.stream) for s in run.timeline}):
        where = f"{run.device_name or run.device}" + (f", rank {rank}" if run.ranks > 1 else "")
        yield _named("process", 2 + rank, stream, f"{model} on {where}, measured")
        kind = "stream" if run.accelerated else "thread"
        yield _named("thread", 2 + rank, stream, f"{kind} {stream}")
    for part in run.timeline:
        event = run.events[part.event]
        nodes = [graph.node(i) for i in event.nodes]
        facts = {
            "node": ", ".join(str(n.id) for n in nodes),
            "module": ", ".join(dict.fromkeys(n.scope for n in nodes)),
            "operator": ", ".join(dict.fromkeys(n.op for n in nodes)),
            "launched by": event.host,
        }
        end = part.start + part.seconds
        slice_ = _slice(event.name, event.kind, max(part.start, 0.0), max(end, 0.0), facts)
        yield slice_ | {"pid": 2 + part.rank, "tid": part.stream}
    for seconds, held in run.memory:
        yield {"ph": "C", "pid": 2, "name": "allocated memory", "ts": _micro(seconds),
               "args": {"bytes": held}}  # fmt: skip


def _exchanged(slots: tuple[Slot, ...]) -> Iterator[Event]:
    """What runs in queues beside the kernels, a thread each, and what kernels wait for in a thread of its
    own: for what comes from another stage (a bubble), or for a collective (exposed)."""
    threads: dict[str, int] = {}
    for slot in slots:
        if slot.queue == KERNELS or slot.end <= slot.begin:
            continue
        thread = threads.get(slot.queue)
        if thread is None:
            thread = threads[slot.queue] = 2 + len(threads)
            yield _named("thread", 1, thread, slot.queue)
        waits, each = slot.queue == WAITING, slot.collective
        name = slot.kernel if each is None else str(each.kind)
        said = f"{'bubble' if slot.bubble else 'exposed'}: {name}" if waits else name
        facts = {"node": slot.node, "exchanges": "" if each is None else str(each)}
        color = {"cname": "terrible" if slot.bubble else "bad"} if waits else {}
        yield _slice(said, "waiting" if waits else "exchange", slot.begin, slot.end, facts) | {
            "tid": thread, **color
        }  # fmt: skip


_PIPELINE = 1_000_000
"""The process of the ranks of a pipeline, behind all ranks that were measured."""


def _stages(prediction: Prediction) -> Iterator[Event]:
    """What each rank of a pipeline does, a thread each."""
    names = {
        "F": "forward",
        "B": "backward",
        "I": "backward to the inputs",
        "W": "backward to the weights",
    }
    for rank, row in enumerate(prediction.stages):
        if not rank:
            yield _named("process", _PIPELINE, 1, "ranks of the pipeline, predicted")
        yield _named("thread", _PIPELINE, rank + 1, f"rank {rank}")
        for done in row:
            kind, stage, batch = done.action
            facts = {"stage": stage, "micro-batch": batch}
            yield _slice(f"{names[kind]} {batch}", "stage", done.begin, done.end, facts) | {
                "pid": _PIPELINE, "tid": rank + 1,
            }  # fmt: skip


class _Timeline:
    """When each node begins and ends: as its kernels run, where ranks exchange something beside them, else
    one kernel after the other, or where the host is the limit as it launches them."""

    def __init__(self, costed: CostedRecord, prediction: Prediction) -> None:
        self._costed = costed
        self._kernels: dict[int, list[KernelTime]] = {}
        self._begin: dict[int, float] = {}
        self._end: dict[int, float] = {}
        self._free = 0.0
        self.hosted = costed.hosted and not prediction.slots
        if prediction.slots:
            for slot in prediction.slots:
                if slot.queue in (KERNELS, ON_HOST):
                    self._begin.setdefault(slot.node, slot.begin)
                    self._end[slot.node] = slot.end
                    self._kernels.setdefault(slot.node, []).append(
                        KernelTime(slot.node, slot.kernel, slot.end - slot.begin,
                                   prediction.bounds.get(slot.node, Bound.MEMORY))
                    )  # fmt: skip
        else:
            for kernel in prediction.kernels:
                self._kernels.setdefault(kernel.node, []).append(kernel)
        at = 0.0
        for node in costed.graph.nodes:
            at = self._begin.setdefault(node.id, at)
            if self.hosted:
                at += prediction.by_limit.get(node.id, 0.0)
            else:
                at += sum(k.seconds for k in self._kernels.get(node.id, ()))
            at = self._end.setdefault(node.id, at)

    def item(self, item: Item) -> Iterator[Event]:
        """The slice of a module and all in it; of an operator and its kernels."""
        begin, end = self._begin.get(item.first, 0.0), self._end.get(item.last, 0.0)
        if end <= begin and not (item.node and self._kernels.get(item.node)):
            return
        holds = item.kind in (ItemKind.ROOT, ItemKind.PHASE, ItemKind.MODULE)
        if holds or (item.node and item.path):
            facts = {"class": item.cls} if item.cls else {}
            name = item.path or item.label or self._costed.profile.model.name
            yield _slice(name, "module", begin, end, facts)
        if item.node:
            yield from self._operator(self._costed.graph.node(item.node))
        for child in item.children:
            yield from self.item(child)

    def _operator(self, node: Node) -> Iterator[Event]:
        value = self._costed.graph.value
        facts = {
            "node": node.id,
            "output": ", ".join(units.shape(value[v].shape) for v in node.outputs),
            "flops": node.flops,
            "bytes": node.bytes,
            "source": f"{node.file}:{node.line}" if node.file else "",
        }
        yield _slice(node.op, "operator", self._begin[node.id], self._end[node.id], facts)
        begin = max(self._begin[node.id], self._free)
        for kernel in self._kernels.get(node.id, ()):
            if kernel.seconds > 0 and kernel.kernel:
                end = begin + kernel.seconds
                facts = {"bound": kernel.bound, **({"node": node.id} if self.hosted else {})}
                yield _slice(kernel.kernel, "kernel", begin, end, facts) | {"tid": 1 + self.hosted}
                begin = self._free = end

    def memory(self) -> Iterator[Event]:
        """Live bytes after each node that ran kernels."""
        live, at = self._costed.memory.live, 0
        for node in self._costed.profile.graph.nodes:  # it is that of an eager run
            if node.kernels:
                at += len(node.kernels)
                yield {"ph": "C", "pid": 1, "name": "live memory", "ts": _micro(self._end[node.id]),
                       "args": {"bytes": live[at - 1]}}  # fmt: skip


def _slice(name: str, category: str, begin: float, end: float, facts: dict[str, Any]) -> Event:
    start, stop = _micro(begin), _micro(end)
    args = {k: v for k, v in facts.items() if v != ""}
    return {"ph": "X", "pid": 1, "tid": 1, "name": name, "cat": category, "ts": start,
            "dur": round(stop - start, 4), "args": args}  # fmt: skip


def _micro(seconds: float) -> float:
    """Microseconds to a tenth of a nanosecond, so that slices that touch do so in the file too."""
    return round(seconds * MICRO, 4)
