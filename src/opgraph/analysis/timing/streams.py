"""The queues of a device that exchanges something with others: kernels run one after the other in one, and
the collectives of each group in another, which starts one when what it reads is there. What a kernel waits
for is exposed, in the queue that is busy with it at the time: of a gather that itself waits for its shards,
these first. What runs beside kernels is not exposed.

The order is the one in which a program launched the work, and the waits are those of its data, so that
prefetching and resharding are as the program does them. What torch's `fully_shard` packs for a gather is
converted and packed beside the kernels, when what was gathered before has been taken apart, and so is what
comes from the host's memory for it; gradients are packed when those before have been reduced, and go to the
host behind that (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, and _fsdp_collectives.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeAlias

from opgraph.analysis.timing.workload import Work
from opgraph.record.graph import Collective, Graph
from opgraph.record.kinds import TRANSFERS, CollectiveKind

SENT = (CollectiveKind.SEND, CollectiveKind.RECEIVE)
"""What stages of a pipeline exchange."""

REDUCED = (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER)
"""What gradients are added up by."""

PACKED = "fsdp.all_gather_copy_in"
CONVERTED = ("aten._foreach_copy_", "aten._to_copy")
TAKEN_APART = "fsdp.split_with_sizes_copy"
GRADIENTS_PACKED = frozenset({"fsdp.chunk_cat", "fsdp.chunk_cat_mixed_dtype"})


@dataclass(frozen=True, slots=True)
class Communication:
    """The seconds of all collectives of a run, those in which nothing else runs, those of collectives
    between nodes, and those in which other stages of a pipeline are waited for. `ratios` are those of the
    interval to the seconds."""

    seconds: float
    exposed: float
    far: float = 0.0
    bubble: float = 0.0
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
            "bubble": self.bubble,
        }


def exchanges_something(works: Sequence[Work]) -> bool:
    """Whether there is a collective among some work."""
    return any(w.task.collective is not None for w in works)


def alone_in_time(works: Sequence[Work]) -> bool:
    """Whether some work runs beside the kernels: what it adds to the time hangs on where it is."""
    return any(
        w.task.collective is not None or w.task.kernel in (PACKED, *CONVERTED) for w in works
    )


def sources(graph: Graph) -> Mapping[int, tuple[int, ...]]:
    """The nodes that made what each node reads, by its id. The optimizer begins when all gradients are
    reduced, whichever it goes over first: torch waits for them at the end of the backward
    (`finalize_backward` in the file above, and in torch/csrc/distributed/c10d/reducer.cpp)."""
    found = {n.id: graph.reads(n) for n in graph.nodes}
    first = next((n.id for n in graph.nodes if n.phase == "optimizer"), None)
    if first is not None:
        found[first] += tuple(
            n.id for n in graph.nodes if n.phase == "backward"
            and any(k.collective is not None and k.collective.kind in (*REDUCED, CollectiveKind.DOWNLOAD)
                    for k in n.kernels)
        )  # fmt: skip
    return found


def _that_run(
    made_by: Mapping[int, Sequence[int]], works: Sequence[Work]
) -> Mapping[int, Sequence[int]]:
    """The same through nodes that run nothing: waits for an exchange, and views of a backward. Gradients
    that are reduced for the optimizer are added up beside the kernels (`foreach_reduce` in the file
    above): views of them are waited for by nobody."""
    running = {w.node for w in works}
    reduced = {w.node for w in works if w.task.collective is not None
               and w.task.collective.kind in REDUCED and w.task.kernel.startswith("c10d.")}  # fmt: skip
    found: dict[int, tuple[int, ...]] = {}
    for node in sorted(made_by):
        makers = ((i,) if i in running else found.get(i, ()) for i in made_by[node])
        through = dict.fromkeys(chain.from_iterable(makers))
        found[node] = tuple(i for i in through if node in running or i not in reduced)
    return found


@dataclass(frozen=True, slots=True)
class Slot:
    """When a piece of work runs, in seconds from the beginning: in the queue of kernels, in that of a
    group, or in none, while kernels wait for what `node` gives them; in a `bubble`, until another stage of
    a pipeline lets it go on."""

    node: int
    kernel: str
    queue: str
    begin: float
    end: float
    collective: Collective | None = None
    bubble: bool = False


KERNELS, PACKING, WAITING, ON_HOST = "kernels", "packing", "waiting", "on the host"
"""The queues that are no group's. No kernel runs beside what the host computes."""


def group_of(each: Collective) -> str:
    """What the queue of a group is called: by its dimension and its size; or of what goes to the device
    and from it."""
    if each.kind in TRANSFERS:
        return f"{each.kind}s"
    return f"{each.group or 'group'} of {each.ranks:,}" + (
        f" every {each.stride:,}" if each.stride > 1 and not each.group else ""
    )


_End: TypeAlias = tuple[float, int]
"""When something ends, and the place of the work that does."""

_START: _End = 0.0, -1


def overlapped(
    works: Sequence[Work],
    seconds: Sequence[float],
    made_by: Mapping[int, Sequence[int]],
    begins: Mapping[int, float] | None = None,
    until: float = 0.0,
    launched: Mapping[int, float] = MappingProxyType({}),
) -> tuple[list[float], Communication, list[Slot]]:
    """What each piece of work adds to the time of the run, in order: its own seconds in the queue of
    kernels, and beside it those that others wait for it. They add up to the time of the run. The slots say
    when each runs, and when kernels wait. In a pipeline other stages let nodes run when it `begins`, and
    are done at the end, `until` when the rank waits. Work that is slower to launch than to run holds up
    what follows until it is `launched`, by its place."""
    queues: dict[Hashable, _End] = {}
    ends: dict[int, _End] = {}
    began: dict[int, _End] = {}  # beside kernels: when, and what it waited for until then
    adds = [0.0] * len(works)
    slots: list[Slot] = []
    apart = reduced = latest = _START
    arrived = -1
    bubble = 0.0
    clock = total = 0.0

    made_by = _that_run(made_by, works)
    packed = set[int]()
    for w in reversed(works):
        if w.task.kernel == PACKED or (w.task.kernel in CONVERTED and w.node in packed):
            packed.update(made_by.get(w.node, ()))
    link: Hashable = None  # of what was reduced last, on which gradients go to the host

    def wait(begin: float, until: float, cause: int, *, bubble: bool = False) -> None:
        adds[cause] += until - begin
        node, task = works[cause][:2]
        slots.append(Slot(node, task.kernel, WAITING, begin, until, task.collective, bubble))

    def wait_for(until: float, cause: int) -> None:
        """Kernels wait from now on, and first for what the cause itself waits for."""
        chain = []
        while until > clock:
            begin, before = began[cause]
            if until > begin:
                chain.append((max(begin, clock), until, cause))
            until, cause = begin, before
        for each in reversed(chain):
            wait(*each)

    for i, (work, taken) in enumerate(zip(works, seconds, strict=True)):
        task = work.task
        allowed = begins.get(work.node, 0.0) if begins else 0.0
        if allowed > clock and arrived >= 0:
            bubble += allowed - clock
            wait(clock, allowed, arrived, bubble=True)
            clock = allowed
        ready = max((ends[n] for n in made_by.get(work.node, ()) if n != work.node and n in ends),
                    default=_START)  # fmt: skip
        each = task.collective
        packs = task.kernel == PACKED or (task.kernel in CONVERTED and work.node in packed)
        packs |= task.beside and each is not None and each.kind is CollectiveKind.UPLOAD
        if task.beside or packs:
            if packs:
                ready = max(ready, apart)
            queue: Hashable = PACKED
            if each is not None and each.kind is CollectiveKind.DOWNLOAD:
                queue = link
            elif each is not None and not packs:
                queue = (each.ranks, each.stride, each.group, each.kind in SENT)
                link = queue if each.kind in REDUCED else link
            begin, _ = began[i] = max(queues.get(queue, _START), ready)
            end = queues[queue] = begin + taken, i
            name = PACKING if each is None else group_of(each)
            slots.append(Slot(work.node, task.kernel, name, begin, begin + taken, each))
            if each is not None:
                total += taken
                if each.kind in SENT:
                    arrived = i
                if each.kind is CollectiveKind.REDUCE_SCATTER:
                    reduced = end
        elif taken or task.kernel:
            if task.kernel in GRADIENTS_PACKED:
                ready = max(ready, reduced)
            wait_for(*ready)
            clock = max(clock, ready[0])
            held = launched.get(i, taken)
            name = ON_HOST if task.on_host else KERNELS if each is None else group_of(each)
            slots.append(Slot(work.node, task.kernel, name, clock, clock + min(taken, held), each))
            clock += held
            end = clock, i
            adds[i] += held
            total += 0.0 if each is None or task.flops else taken
            if task.kernel == TAKEN_APART:
                apart = end
        else:  # what is but launched waits for nothing
            end = ready
            clock += launched.get(i, 0.0)
            adds[i] += launched.get(i, 0.0)
        ends[work.node] = max(end, ends.get(work.node, _START))
        latest = max(latest, end)
    wait_for(*latest)
    clock = max(clock, latest[0])
    if until > clock and arrived >= 0:
        bubble += until - clock
        wait(clock, until, arrived, bubble=True)
    beside = sum(a for a, w in zip(adds, works, strict=True)
                 if w.task.collective is not None and not w.task.flops)  # fmt: skip
    exposed = min(max(0.0, beside - bubble), total)  # but for rounding it is between the two
    return adds, Communication(total, exposed, bubble=bubble), slots
