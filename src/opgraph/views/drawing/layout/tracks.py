"""Tracks: the horizontal parts of the lines between two ranks, one below the other, so that no two lines
lie on each other and few cross."""

from __future__ import annotations

from dataclasses import dataclass

from opgraph.views.drawing.layout.cells import Hop, Net

NEAR = 3.0


@dataclass(slots=True)
class Run:
    """The part of a net in one gap: it comes from above at `start`, leaves below at `ends`, and has a
    horizontal part on a track in between, unless it is straight."""

    net: Net
    start: float
    ends: list[float]
    track: int = -1

    @property
    def low(self) -> float:
        return min(self.start, *self.ends)

    @property
    def high(self) -> float:
        return max(self.start, *self.ends)

    @property
    def straight(self) -> bool:
        return self.high - self.low < 0.5


def tracks(hops: list[Hop]) -> tuple[dict[int, Run], int]:
    """The runs of a gap by net id, and the number of tracks they need."""
    runs: dict[int, Run] = {}
    for hop in hops:
        run = runs.setdefault(hop.net.id, Run(hop.net, hop.start, []))
        run.ends.append(hop.end)
    bent = sorted(
        (r for r in runs.values() if not r.straight), key=lambda r: (r.low, r.high, r.net.id)
    )
    ordered: list[Run] = []
    for run in bent:
        _insert(run, ordered)
    count = 0
    for position, run in enumerate(ordered):
        run.track = 1 + max((o.track for o in ordered[:position] if _overlap(o, run)), default=-1)
        count = max(count, run.track + 1)
    return runs, count


def _overlap(a: Run, b: Run) -> bool:
    return a.low < b.high + NEAR and b.low < a.high + NEAR


def _insert(run: Run, ordered: list[Run]) -> None:
    """Put a run among others where it crosses the fewest lines."""
    cost = sum(_cost(run, other) for other in ordered)
    best, at = cost, 0
    for position, other in enumerate(ordered, start=1):
        cost += _cost(other, run) - _cost(run, other)
        if cost < best:
            best, at = cost, position
    ordered.insert(at, run)


def _cost(upper: Run, lower: Run) -> int:
    """Crossings where `upper` lies above `lower`; lines that would lie on each other count for many."""
    if not _overlap(upper, lower):
        return 0
    crossing = sum(lower.low - NEAR < end < lower.high + NEAR for end in upper.ends)
    crossing += upper.low - NEAR < lower.start < upper.high + NEAR
    shared = sum(abs(end - lower.start) < NEAR for end in upper.ends)
    return crossing + 20 * shared
