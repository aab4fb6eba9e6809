"""When an accelerator had nothing to do in a run: how long, what the host did then, which share of it was
waiting for launches, and how much of the communication ran beside other work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from opgraph.record.run import RunRecord

QUEUE = "queue"
"""What the host of a gap is called whose kernel had been launched before the gap began."""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Idle:
    """The time of one step in which a device had nothing to do between kernels, in seconds: because the
    next was not launched yet (`launching`), or although it was (`queued`: for another stream, or the start
    itself). `hosts` are what the host did while the device waited for a launch, the longest first."""

    launching: float
    queued: float
    hosts: tuple[tuple[str, float], ...]

    @property
    def seconds(self) -> float:
        return self.launching + self.queued


def idle(run: RunRecord) -> Idle:
    """How long one device of a run waited in one step, and for what."""
    each = 1 / run.steps / run.ranks
    hosts: dict[str, float] = {}
    for gap in run.gaps:
        hosts[gap.host] = hosts.get(gap.host, 0.0) + gap.seconds * each
    queued = hosts.pop(QUEUE, 0.0)
    ordered = sorted(hosts.items(), key=lambda item: -item[1])
    return Idle(sum(hosts.values()), queued, tuple(ordered))


@dataclass(frozen=True, slots=True)
class Overlap:
    """The communication of the step that the timeline shows, in seconds: all of it, and what of that ran
    while no other kernel did."""

    seconds: float
    exposed: float

    @property
    def hidden(self) -> float:
        """The share that ran beside other work."""
        return 1 - self.exposed / self.seconds if self.seconds else 0.0


def overlap(run: RunRecord) -> Overlap:
    """How much of the communication of one device ran beside its other kernels: the mean of those shown."""
    kinds = [e.kind for e in run.events]
    ranks: dict[int, tuple[list[Interval], list[Interval]]] = {}
    for piece in run.timeline:
        kind = kinds[piece.event]
        if kind in ("communication", "kernel" if run.accelerated else "operator"):
            sides = ranks.setdefault(piece.rank, ([], []))
            sides[kind == "communication"].append((piece.start, piece.start + piece.seconds))
    whole = exposed = 0.0
    for other, moving in ranks.values():
        whole += length(union(moving)) / len(ranks)
        exposed += (length(union([*moving, *other])) - length(union(other))) / len(ranks)
    return Overlap(whole, exposed)


def union(spans: Iterable[Interval]) -> list[Interval]:
    """Times that any of some intervals has, as intervals that do not touch."""
    found: list[Interval] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def length(spans: Iterable[Interval]) -> float:
    """The sum of some intervals that do not touch."""
    return sum(end - begin for begin, end in spans)
