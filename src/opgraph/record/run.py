"""`RunRecord`: what a run of a model really took, by events that are joined to the nodes of its graph.
It is measured here or read from a trace of others, and saved with its profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal

from msgspec import Meta

EventKind = Literal["kernel", "copy", "set", "communication", "operator", "python"]
DEVICE_KINDS: frozenset[EventKind] = frozenset({"kernel", "copy", "set", "communication"})
"""What runs on an accelerator; operators, and the Python between them, run on the host."""

Link = Literal[
    "", "mark", "alignment", "names", "sequence", "module", "fusion", "operand", "repeat", "kernels"
]  # fmt: skip
"""How the nodes of an event were found: by a mark around it; by aligning operators of one name and one set
of shapes, or of one name alone; by the sequence number of the forward call, by the module, by the names in
a compiled kernel; as a copy of what the next node reads; as the same kernel of another run, where its
launch is not in the trace; or by aligning the names of kernels, where no operator is in it."""
Seconds = Annotated[float, Meta(ge=0, lt=1e9)]
Index = Annotated[int, Meta(ge=0, le=2**63 - 1)]


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One kernel, or one operator of the host, at some nodes: all its occurrences in all steps.

    `seconds` and `count` are sums over them. Operators have their own time, without that of operators which
    they call. `nodes` are the ids of what it computes: none where that is not known, several where one
    kernel is several nodes fused. `link` says how they were found, `host` which operator launched it.
    """

    name: str
    seconds: Seconds
    nodes: tuple[Annotated[int, Meta(ge=1)], ...] = ()
    kind: EventKind = "kernel"
    link: Link = ""
    count: Index = 1
    host: str = ""
    stream: int = 0
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """One occurrence of an event in the step that the timeline shows: `event` is its position in
    `RunRecord.events`; times in seconds since the step began."""

    start: float
    seconds: Seconds
    event: Index
    stream: int = 0
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which an accelerator had nothing to do, what the host did then (`host`), and the node whose
    kernel ended the wait. `seconds` and `count` are sums over all like it; `start` is that of the first."""

    seconds: Seconds
    host: str = ""
    node: int | None = None
    count: Index = 1
    start: float = 0.0
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """What some nodes hold when most memory is allocated: `bytes` in `count` pieces. `name` is the operator
    that asked for it; `nodes` are none where they are not known."""

    bytes: Index
    nodes: tuple[Annotated[int, Meta(ge=1)], ...] = ()
    name: str = ""
    count: Index = 1


@dataclass(frozen=True, slots=True)
class Clock:
    """How many seconds the clock of a rank is ahead of the first one's, by the ends of so many collectives
    (`count`), half of which are within `spread` seconds of that: 0 on one host, and where it is less."""

    rank: int
    ahead: float
    spread: Seconds
    count: Index


@dataclass(frozen=True, slots=True)
class Exchange:
    """Collectives of one kind that all ranks took part in, `count` of them: the `seconds` from when the
    last rank began each, and those that a rank waited for that (`waiting`, the mean of the ranks), summed
    over them. `last` is the rank that was the last most often, in `times` of them."""

    name: str
    count: Index
    seconds: Seconds
    waiting: Seconds
    last: int
    times: Index


@dataclass(frozen=True)
class RunRecord:
    """A run: on what, how, how long, and where the time went.

    `repeats` are the seconds of each plain step (none in a trace of others), `profiled` those of each step
    under the profiler; `overhead` is what the profiler added to a step, in seconds, which is taken out of
    the events. `events` are sums over `steps` steps on `ranks` devices; `timeline` is one step of them.
    `memory` are the bytes that were allocated, since the first second of a step, and `memory_nodes` in
    which node (0 where that is not known); `held` is what the step itself had allocated of them at the
    peak, and `peak_nodes` whose allocation that was.
    `clocks` are those of other ranks against the first, on which all of the timeline is; `exchanges` what
    the ranks exchanged in the whole trace.
    """

    device: str
    device_name: str = ""
    source: str = "measure"
    how: str = "eager"
    events: tuple[RunEvent, ...] = ()
    timeline: tuple[Slice, ...] = ()
    gaps: tuple[Gap, ...] = ()
    memory: tuple[tuple[float, int], ...] = ()
    memory_nodes: tuple[Index, ...] = ()
    held: tuple[Held, ...] = ()
    peak_nodes: tuple[Annotated[int, Meta(ge=1)], ...] = ()
    clocks: tuple[Clock, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    repeats: tuple[Seconds, ...] = ()
    profiled: tuple[Seconds, ...] = ()
    overhead: Seconds = 0.0
    steps: Annotated[int, Meta(ge=1)] = 1
    ranks: Annotated[int, Meta(ge=1)] = 1
    threads: Index = 0
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    partial: tuple[RunEvent, ...] = ()
    """Work of steps that a trace holds only in part, which is in no sum."""

    @property
    def accelerated(self) -> bool:
        """Whether the work runs on an accelerator, and not on the host itself."""
        return self.device.partition(":")[0] != "cpu"

    def works(self, event: RunEvent) -> bool:
        """Whether an event is work of the device, and not of the host that launches it."""
        return event.kind in DEVICE_KINDS if self.accelerated else event.kind == "operator"

    @cached_property
    def seconds(self) -> float:
        """The median of the plain steps; of those under the profiler where there are none."""
        return median(self.repeats or self.profiled)

    @cached_property
    def spread(self) -> float:
        """Half of what lies between the quartiles of the steps, as a share of the median."""
        return spread(self.repeats or self.profiled)

    @property
    def uncertainty(self) -> float:
        """How far off the median of the steps may be, as a share of it."""
        return uncertainty(self.repeats or self.profiled)

    @property
    def peak_memory(self) -> int | None:
        """The most bytes that were allocated at a time; None where that was not written down. On a CPU that
        is what the step itself allocates, and on an accelerator all that is there."""
        return max((held for _, held in self.memory), default=None)

    @cached_property
    def work(self) -> float:
        """Seconds of work of one device in one step, summed over its events."""
        return sum(e.seconds for e in self.events if self.works(e)) / self.steps / self.ranks

    @cached_property
    def attributed(self) -> float:
        """The share of the work that is on nodes."""
        found = sum(e.seconds for e in self.events if self.works(e) and e.nodes)
        return found / self.steps / self.ranks / self.work if self.work else 0.0


def median(times: Sequence[float]) -> float:
    """The middle of some times; 0 where there are none."""
    return quantile(times, 0.5)


def spread(times: Sequence[float]) -> float:
    """Half of what lies between the quartiles of some times, as a share of the median."""
    middle = median(times)
    return (quantile(times, 0.75) - quantile(times, 0.25)) / 2 / middle if middle else 0.0


def uncertainty(times: Sequence[float]) -> float:
    """How far off the median of some times may be, as a share of it: 1.57 of what lies between the
    quartiles, over the root of their number.

    Source: McGill, Tukey, Larsen, "Variations of Box Plots", The American Statistician 32 (1978).
    """
    return 3.14 * spread(times) / len(times) ** 0.5 if times else 0.0


def quantile(times: Sequence[float], share: float) -> float:
    """What this share of some times is not above, between two of them in proportion; 0 of none."""
    ordered = sorted(times)
    if not ordered:
        return 0.0
    low, part = divmod(share * (len(ordered) - 1), 1)
    return ordered[int(low)] + part * (
        ordered[min(int(low) + 1, len(ordered) - 1)] - ordered[int(low)]
    )
