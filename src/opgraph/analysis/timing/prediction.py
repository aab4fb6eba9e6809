"""Predicted time of a run: what the device needs for every kernel, and what the host needs to launch it.

A run takes the longer of the two queues. What a part of it takes is what the device needs for it,
whichever queue is longer: that the host is the limit is said of the run, and of no part. Where the device
is a CPU, host and device are one, and a run takes both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from opgraph.analysis.cost.totals import longest
from opgraph.analysis.timing.collectives import collective_seconds, crosses
from opgraph.analysis.timing.intervals import (
    UNKNOWN,
    WorkClass,
    difficulty,
    distance,
    exchange_ratios,
    interval,
)
from opgraph.analysis.timing.kernels import (
    FITTED,
    KernelCost,
    Reach,
    composed,
    kernel_cost,
    overlap,
    traffic,
)
from opgraph.analysis.timing.streams import (
    Communication,
    Slot,
    exchanges_something,
    overlapped,
    sources,
)
from opgraph.analysis.timing.workload import Task, Work, workload
from opgraph.hardware import Device
from opgraph.record.graph import Graph
from opgraph.record.kinds import Bound, Run
from opgraph.record.profile import Pipeline
from opgraph.record.units import between, percent, seconds

if TYPE_CHECKING:
    from opgraph.analysis.fusion.partition import Subgraph
    from opgraph.analysis.timing.pipeline import Course, Done

_CHANNELS = (1, 3, 4)
"""Channels of an image: grey, in colour, and with transparency or depth."""

Queue = Literal["device", "host"]


class KernelTime(NamedTuple):
    """One kernel's predicted seconds, what bounds it, and the node that runs it. On a CPU an operator that
    launches nothing has the time of its call under an empty name."""

    node: int
    kernel: str
    seconds: float
    bound: Bound


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a whole graph, `batch` items in it: the seconds that the device is busy, and
    those that the host needs to launch its kernels. `kernels` share out those of the device, `by_queue` has
    those of both by node. `work` is what most of the run goes to, and `ratios` are those of
    the interval to the seconds. `communication` are the seconds of what ranks exchange; `by_queue` has
    those that are exposed, and `slots` say when what runs on the device, and when kernels wait; `stages`
    when each rank of a pipeline does what."""

    device: str
    kernels: tuple[KernelTime, ...]
    batch: int = 1
    device_seconds: float = 0.0
    host_seconds: float = 0.0
    run: Run = Run.EAGER
    work: WorkClass = "memory"
    ratios: tuple[float, float] = (1.0, 1.0)
    by_queue: Mapping[Queue, Mapping[int, float]] = field(default_factory=dict)
    communication: Communication | None = None
    slots: tuple[Slot, ...] = ()
    stages: tuple[tuple[Done, ...], ...] = ()

    @property
    def by_node(self) -> Mapping[int, float]:
        """Seconds that the device needs for each node, by its id."""
        return self.by_queue.get("device", {})

    @property
    def by_limit(self) -> Mapping[int, float]:
        """Seconds of each node in the longer queue, by its id: they add up to the run."""
        return self.by_queue.get(self.limit, {})

    @property
    def seconds(self) -> float:
        """Seconds of the run: those of the longer queue."""
        return max(self.device_seconds, self.host_seconds)

    @property
    def interval(self) -> tuple[float, float]:
        """Seconds between which nine of ten measured runs are."""
        low, high = self.ratios
        return self.seconds * low, self.seconds * high

    def unmeasured(self) -> Prediction:
        """The same with the interval of what nothing like was measured, if that is not its own."""
        low, high = self.ratios
        return replace(self, ratios=(min(low, 1 / UNKNOWN), max(high, UNKNOWN)))

    def without_knowing(
        self, nodes: Collection[int], otherwise: Collection[int] = (),
        often: Mapping[int, int] = MappingProxyType({}),
    ) -> Prediction:  # fmt: skip
        """The same with a wider interval, where the kernels of some nodes are not those that will run:
        their time may be off like that of what was never measured. What is bound by launches of those that
        are spelled `otherwise` there may be one of all, too, as an optimizer's of all weights is, where
        each had its own. `often` is how many nodes a node stands for, where that is not one."""
        taken = {n: seconds * often.get(n, 1) for n, seconds in self.by_limit.items()}
        whole = sum(taken.values()) or 1.0
        share = sum(taken.get(n, 0.0) for n in nodes) / whole
        hosted = self.limit == "host"
        launches = [n for n in otherwise if hosted or self.bounds.get(n) is Bound.LAUNCH]
        launched = sum(taken.get(n, 0.0) for n in launches) / whole
        fewest = 1 / max(UNKNOWN, sum(often.get(n, 1) for n in launches))
        low, high = self.ratios
        least = (share - launched) / UNKNOWN + launched * fewest
        wider = (low * (1 - share + least), high * (1 - share + share * UNKNOWN))
        return replace(self, ratios=wider)

    @property
    def written(self) -> str:
        """The seconds with their interval: "1.42 ms (1.3-1.6)"."""
        return between(self.seconds, *self.interval)

    @property
    def said(self) -> str:
        """The same, with how much of it waits for other ranks: "1.42 ms (1.3-1.6), 0.2 ms of it exposed
        exchange"."""
        waits = 0.0 if self.communication is None else self.communication.exposed
        beside = f", {seconds(waits)} of it exposed exchange"
        return self.written + (beside if waits and self.limit == "device" else "")

    @property
    def limit(self) -> Queue:
        """The queue that a run waits for."""
        return "host" if self.host_seconds > self.device_seconds else "device"

    @property
    def idle(self) -> float:
        """The share of a run in which the device waits for the host."""
        return 1 - self.device_seconds / self.seconds if self.limit == "host" else 0.0

    @property
    def limiting(self) -> str:
        """The longer queue in words."""
        if self.limit == "device":
            return "the device is the limit"
        return (f"the host is the limit: the device works for {seconds(self.device_seconds)}, and waits "
                f"for launches {percent(self.idle)} of the time")  # fmt: skip

    @cached_property
    def bounds(self) -> Mapping[int, Bound]:
        """What each node waits for, by its id: where most of its kernels' time on the device goes."""
        rows: dict[int, list[tuple[Bound, float]]] = {}
        for kernel in self.kernels:
            rows.setdefault(kernel.node, []).append((kernel.bound, kernel.seconds))
        found = ((node, longest(spent)) for node, spent in rows.items())
        return {node: bound for node, bound in found if bound is not None}

    @property
    def throughput(self) -> float:
        """Items of the batch a second."""
        return self.batch / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "device": self.device,
            "run": str(self.run),
            "seconds": self.seconds,
            "interval": list(self.interval),
            "device_seconds": self.device_seconds,
            "host_seconds": self.host_seconds,
            "limit": self.limit,
            "batch": self.batch,
            "throughput": self.throughput,
            "by_node": {str(k): v for k, v in self.by_node.items()},
            "host_by_node": {str(k): v for k, v in self.by_queue.get("host", {}).items()},
            **(
                {}
                if self.communication is None
                else {"communication": self.communication.to_dict()}
            ),
        }


def predict(
    graph: Graph, device: Device, run: Run = Run.EAGER, reach: Reach = FITTED,
    works: Sequence[Work] | None = None, pipeline: Pipeline | None = None,
) -> Prediction:  # fmt: skip
    """The time of one run of a graph on a device, in the dtypes the graph has; its `works` where they are
    known. As a rank of a `pipeline` it takes until all ranks are done.

    For mixed precision, predict `autocast(graph)`. The batch is taken to be the first size of the first
    input, or the number of images where they come in a list, times the micro-batches of the step.
    """
    works = workload(graph) if works is None else works
    made_by = sources(graph) if exchanges_something(works) else None
    if pipeline is None or made_by is None or device.kind == "cpu":
        return predict_work(
            works, device, run, reach, batch=batch_of(graph, pipeline), made_by=made_by
        )

    from opgraph.analysis.timing.pipeline import course

    def taken(part: Graph) -> Sequence[Mapping[int, float]]:
        here = works if part is graph else workload(part)
        found = predict_work(here, device, run, reach, made_by=sources(part)).by_queue
        return found["device"], found["host"]

    found = course(pipeline, graph, taken, partial(collective_seconds, device=device))
    alone = predict_work(works, device, run, reach, batch=batch_of(graph, pipeline), made_by=made_by,
                         course=found)  # fmt: skip
    return replace(alone, stages=found.rows)


def predict_work(
    works: Sequence[Work], device: Device, run: Run = Run.EAGER, reach: Reach = FITTED, *,
    batch: int = 1, times: Sequence[int] | None = None,
    made_by: Mapping[int, Sequence[int]] | None = None, course: Course | None = None,
    known: Known | None = None,
) -> Prediction:  # fmt: skip
    """The time of some work on a device; `times` says how often each is done in the run. What ranks
    exchange runs beside it, as far as what each node reads was `made_by` others before; the `course` of a
    pipeline says when other stages let it go on."""
    communication, slots = None, list[Slot]()
    costs = device_costs(works, device, reach, known)
    hosts = host_seconds(works, device, run)
    if device.kind != "cpu" and any(
        w.task.on_host for w in works
    ):  # the host does it itself, and launches nothing meanwhile
        hosts = [
            c.seconds if w.task.on_host else h for w, c, h in zip(works, costs, hosts, strict=True)
        ]
    often = times or [1] * len(works)
    busy = sum(c.seconds * n for c, n in zip(costs, often, strict=True))
    host = sum(h * n for h, n in zip(hosts, often, strict=True))
    adds = [c.seconds for c in costs]
    if made_by is not None and device.kind != "cpu":
        begins, until = ({}, 0.0) if course is None else (course.begins, course.end)
        paced = {i: hosts[i] for i, w in enumerate(works)
                    if course and w.node in course.hosted and w.task.collective is None}  # fmt: skip
        adds, exchanged, slots = overlapped(works, adds, made_by, begins, until, paced)
        busy = sum(adds)
        far = sum(
            c.seconds
            for c, w in zip(costs, works, strict=True)
            if w.task.collective is not None and crosses(w.task.collective, device)
        )
        share = far / exchanged.seconds if exchanged.seconds else 0.0
        communication = replace(exchanged, far=far, ratios=exchange_ratios(share))
        bubbles = dict[int, float]()
        for slot in slots:
            if slot.bubble:
                bubbles[slot.node] = bubbles.get(slot.node, 0.0) + slot.end - slot.begin
        costs = [
            KernelCost(
                added,
                Bound.LAUNCH
                if i in paced
                else Bound.BUBBLE
                if c.bound is Bound.EXPOSED and bubbles.get(w.node, 0.0) > added / 2
                else c.bound,
            )
            for i, (c, added, w) in enumerate(zip(costs, adds, works, strict=True))
        ]
    kind, squares = difficulty(
        works, costs, often, device, host=host > busy and device.kind != "cpu"
    )
    if device.kind == "cpu":
        costs = _called(costs, hosts)
        adds = [c.seconds for c in costs]
        hosts, busy, host = [0.0] * len(works), busy + host, 0.0
    kernels = tuple(
        KernelTime(work.node, work.task.kernel, cost.seconds, cost.bound)
        for work, cost in zip(works, costs, strict=True)
        if cost.seconds or work.task.kernel
    )
    queues: dict[Queue, dict[int, float]] = {
        "device": _by_node(works, adds),
        "host": _by_node(works, hosts),
    }
    ratios = interval(kind, squares, distance(device, kind), len(device.missing), run)
    return Prediction(device.id, kernels, batch, busy, host, run, kind, ratios, queues,
                      communication, tuple(slots))  # fmt: skip


def _by_node(works: Sequence[Work], seconds: Sequence[float]) -> dict[int, float]:
    sums: dict[int, float] = {}
    for work, taken in zip(works, seconds, strict=True):
        if taken or work.task.kernel:
            sums[work.node] = sums.get(work.node, 0.0) + taken
    return sums


def device_costs(
    works: Iterable[Work], device: Device, reach: Reach = FITTED, known: Known | None = None
) -> list[KernelCost]:
    """What each piece of work takes of a device; tasks that many nodes run are costed once, and those that
    are `known` are not costed again."""
    known = {} if known is None else known
    cache = device.cache * reach.kept
    found = []
    for work in works:
        if not work.task.kernel:
            found.append(_NOTHING)
            continue
        near = work.near(cache)
        key = (id(work.task), near)
        cost = known.get(key)
        if cost is None:
            cost = known[key] = kernel_cost(work.task, near, device, reach)
        found.append(cost)
    return found


_NOTHING = KernelCost(0.0, Bound.LAUNCH)

Known: TypeAlias = dict[tuple[int, int], KernelCost]
"""What tasks take, by their identity and the bytes that are near, as long as they are there."""


def host_seconds(works: Iterable[Work], device: Device, run: Run) -> list[float]:
    """What the host needs until it has launched each kernel. A recorded graph is launched at once."""
    call, module = (0.0, 0.0) if run.recorded else (device.host_call, device.host_module)
    return [work.calls * call + work.modules * module for work in works]


def _called(costs: Iterable[KernelCost], hosts: Iterable[float]) -> list[KernelCost]:
    """Kernels behind the calls that start them, where host and device are one."""
    return [cost.started(host) for cost, host in zip(costs, hosts, strict=True)]


def batch_of(graph: Graph, pipeline: Pipeline | None = None) -> int:
    """Items in a run, all micro-batches together; those of all stages on each rank of a `pipeline`."""
    if pipeline is not None:
        return pipeline.batch or _batch(graph)
    turns = pairwise(n.phase for n in graph.nodes)
    backwards = sum(a == "forward" and b in ("backward", "recompute") for a, b in turns)
    return _batch(graph) * max(1, backwards)


def _batch(graph: Graph) -> int:
    """Items in the inputs: images [channels, height, width] in a list have no dimension for them."""
    inputs = [graph.value[i] for i in graph.inputs]
    if not inputs:
        return 1
    shape = inputs[0].shape
    argument, _, position = (inputs[0].name or "").rpartition(".")
    if position == "0" and len(shape) == 3 and shape[0] in _CHANNELS:
        return sum((v.name or "").rpartition(".")[0] == argument for v in inputs)
    return shape[0] if shape and isinstance(shape[0], int) and shape[0] > 0 else 1


def predict_parts(
    work_of_nodes: Iterable[Work], parts: Sequence[Subgraph], device: Device, run: Run = Run.EAGER,
    reach: Reach = FITTED, known: Known | None = None,
) -> tuple[KernelCost, ...]:  # fmt: skip
    """The time on the device of each subgraph of nodes with this work, and what bounds it. Fused it is a
    kernel (or as many as it is launched as) of all their arithmetic, waiting, conversion and packing, of
    the traffic that is left, and of one start, composed as any kernel is. It takes what its kernels take
    one by one where that is less, where it has no more of them, or exchanges something with other ranks.

    No measurement stands behind the fused times, unlike those of `predict`: they are what the same
    formula gives for less traffic and fewer launches.
    """
    works = tuple(work_of_nodes)
    costs, start = device_costs(works, device, reach, known), device.launch_overhead
    if device.kind == "cpu":
        start = 0.0 if run.recorded else device.host_call
        costs = _called(costs, host_seconds(works, device, run))
    by_node: dict[int, list[tuple[Task, KernelCost]]] = {}
    for work, cost in zip(works, costs, strict=True):
        by_node.setdefault(work.node, []).append((work.task, cost))
    found = []
    for part in parts:
        rows = [row for node in part.nodes for row in by_node.get(node, ())]
        spent = [(cost.bound, cost.seconds) for _, cost in rows]
        time = KernelCost(sum(s for _, s in spent), longest(spent) or Bound.MEMORY)
        kernels = [(task, cost) for task, cost in rows if task.kernel]
        if len(kernels) > part.launches and not any(task.collective for task, _ in kernels):
            main = max((task for task, _ in kernels), key=lambda t: (t.flops, t.bytes))
            moving = traffic(main, part.fused_bytes, 0.0, device, reach)
            hides = min(overlap(task, device, reach) for task, _ in kernels)
            computing, waiting, copying = (
                sum(getattr(c, of) for _, c in kernels)
                for of in ("computing", "waiting", "copying")
            )
            fused = composed(computing, waiting, moving, copying, hides).started(
                start * part.launches
            )
            time = min(time, fused, key=lambda c: c.seconds)
        found.append(time)
    return tuple(found)
