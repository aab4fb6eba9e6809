"""The queues of a device that exchanges something with others: kernels run one after the other in one, and
the collectives of each group in another, which starts one when what it reads is there. What a kernel waits
for is exposed; what runs beside others is not.

The order is the one in which a program launched the work, and the waits are those of its data, so that
prefetching and resharding are as the program does them. What torch's `fully_shard` packs for a gather is
packed beside the kernels, when what was gathered before has been taken apart; gradients are packed when
those before have been reduced (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opgraph.analysis.timing.workload import Work
from opgraph.record.graph import Graph
from opgraph.record.kinds import CollectiveKind

PACKED = "fsdp.all_gather_copy_in"
TAKEN_APART = "fsdp.split_with_sizes_copy"
GRADIENTS_PACKED = frozenset({"fsdp.chunk_cat", "fsdp.chunk_cat_mixed_dtype"})


@dataclass(frozen=True, slots=True)
class Communication:
    """The seconds of all collectives of a run, those in which nothing else runs, and those of collectives
    between nodes. `ratios` are those of the interval to the seconds."""

    seconds: float
    exposed: float
    far: float = 0.0
    ratios: tuple[float, float] = (1.0, 1.0)

    @property
    def hidden(self) -> float:
        """The share of it that runs beside kernels."""
        return 1 - self.exposed / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "seconds": self.seconds,
            "interval": [self.seconds * ratio for ratio in self.ratios],
            "exposed": self.exposed,
            "hidden": self.hidden,
            "between_nodes": self.far,
        }


def exchanges_something(works: Sequence[Work]) -> bool:
    """Whether there is a collective among some work."""
    return any(w.task.collective is not None for w in works)


def alone_in_time(works: Sequence[Work]) -> bool:
    """Whether some work runs beside the kernels: what it adds to the time hangs on where it is."""
    return any(w.task.collective is not None or w.task.kernel == PACKED for w in works)


def sources(graph: Graph) -> Mapping[int, tuple[int, ...]]:
    """The nodes that made what each node reads, by its id."""
    producer = graph.producer
    return {
        n.id: tuple({producer[v].id: None for v in n.inputs if v in producer}) for n in graph.nodes
    }


def overlapped(
    works: Sequence[Work], seconds: Sequence[float], made_by: Mapping[int, Sequence[int]]
) -> tuple[list[float], Communication]:
    """What each piece of work adds to the time of the run, in order: its own seconds in the queue of
    kernels, and beside it those that others wait for it. They add up to the time of the run."""
    queues: dict[Hashable, float] = {}
    ends: dict[int, float] = {}
    causes: dict[int, int] = {}
    adds = [0.0] * len(works)
    last = {"apart": 0.0, "reduced": 0.0}
    reduced = latest = -1
    clock = end_of_all = total = 0.0
    for i, (work, taken) in enumerate(zip(works, seconds, strict=True)):
        task = work.task
        ready, cause = 0.0, -1
        for node in made_by.get(work.node, ()):
            if node != work.node and ends.get(node, 0.0) > ready:
                ready, cause = ends[node], causes[node]
        if task.collective is not None or task.kernel == PACKED:
            if task.kernel == PACKED:
                ready = max(ready, last["apart"])
            each = task.collective
            queue = PACKED if each is None else (each.ranks, each.stride, each.group)
            end = queues[queue] = max(queues.get(queue, 0.0), ready) + taken
            cause = i
            if each is not None:
                total += taken
                if each.kind is CollectiveKind.REDUCE_SCATTER:
                    last["reduced"], reduced = end, i
        elif taken or task.kernel:
            if task.kernel in GRADIENTS_PACKED and last["reduced"] > ready:
                ready, cause = last["reduced"], reduced
            if ready > clock:
                adds[cause] += ready - clock
                clock = ready
            clock += taken
            adds[i] += taken
            end, cause = clock, i
            if task.kernel == TAKEN_APART:
                last["apart"] = end
        else:
            end = ready
        if end >= ends.get(work.node, 0.0):
            ends[work.node], causes[work.node] = end, cause
        if end > end_of_all:
            end_of_all, latest = end, cause
    if end_of_all > clock:
        adds[latest] += end_of_all - clock
    beside = sum(a for a, w in zip(adds, works, strict=True) if w.task.collective is not None)
    return adds, Communication(total, beside)
