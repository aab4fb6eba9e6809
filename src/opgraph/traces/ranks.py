"""The traces of several ranks on one clock. A collective ends on all its ranks at about one time, whenever
each began: so the differences between ends say how far the clocks are apart, and the time between its
beginning on a rank and on the last one is what that rank waits for others."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from opgraph.record.run import Clock, Exchange, median, quantile
from opgraph.traces.events import Trace

HOST_COLLECTIVE = re.compile(r"^(?:gloo|mpi|ucc|xccl|nccl):\w+$")
"""What a process group calls a collective that it runs on the host: from its beginning to its end."""
_LEAST = 3
"""A clock is set by so many collectives at least."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """One collective on one rank, in microseconds of its own clock."""

    begin: float
    end: float


def together(
    traces: Sequence[Trace],
) -> tuple[tuple[Clock, ...], tuple[Exchange, ...], list[float]]:
    """The clocks of all ranks against the first, what they exchanged, and the microseconds by which the
    clock of each is ahead (0 where that is not known)."""
    pieces = [_pieces(trace) for trace in traces]
    clocks: list[Clock] = []
    ahead = [0.0] * len(traces)
    for i, (trace, own) in enumerate(zip(traces, pieces, strict=True)):
        if i == 0:
            continue
        ends = [
            b.end - a.end
            for name, first in pieces[0].items()
            for a, b in _pairs(first, own.get(name, []))
        ]
        if len(ends) >= _LEAST:
            off = (quantile(ends, 0.75) - quantile(ends, 0.25)) / 2
            apart = median(ends)
            one = trace.host and trace.host == traces[0].host
            ahead[i] = 0.0 if one or abs(apart) <= off else apart
            clocks.append(Clock(trace.rank, ahead[i] * 1e-6, off * 1e-6, len(ends)))
    known = [0, *(i for i, t in enumerate(traces) if any(c.rank == t.rank for c in clocks))]
    found = [] if len(known) < 2 else _exchanged(traces, pieces, ahead, known)
    return tuple(clocks), tuple(sorted(found, key=lambda e: -(e.seconds + e.waiting))), ahead


def _pieces(trace: Trace) -> dict[str, list[_Piece]]:
    """What a rank exchanges, by what it is, in order."""
    found: dict[str, list[_Piece]] = defaultdict(list)
    on_device = [w for w in trace.work if w.kind == "communication"]
    for work in sorted(on_device, key=lambda w: w.start):
        found[work.exchange or work.name].append(
            _Piece(work.start, work.start + work.seconds * 1e6)
        )
    if not on_device:
        for call in sorted(trace.calls, key=lambda c: c.start):
            if HOST_COLLECTIVE.match(call.name):
                sizes = " ".join("x".join(map(str, s)) for s in call.shapes or ())
                found[f"{call.name} {sizes}".strip()].append(_Piece(call.start, call.end))
    return found


def _pairs(first: Sequence[_Piece], other: Sequence[_Piece]) -> list[tuple[_Piece, _Piece]]:
    """The same collectives of two ranks, in order. Where one has more, its trace began sooner or ended
    later: then they stand so that their ends are the most evenly apart."""
    if not first or not other:
        return []
    more = len(other) - len(first)
    shifts = range(min(0, more), max(0, more) + 1)

    def paired(shift: int) -> list[tuple[_Piece, _Piece]]:
        return list(zip(first[max(0, -shift) :], other[max(0, shift) :], strict=False))

    def unevenness(shift: int) -> float:
        apart = [b.end - a.end for a, b in paired(shift)]
        middle = median(apart)
        return median([abs(d - middle) for d in apart])

    return paired(min(shifts, key=lambda s: (unevenness(s), abs(s))))


def _exchanged(
    traces: Sequence[Trace],
    pieces: Sequence[dict[str, list[_Piece]]],
    ahead: Sequence[float],
    known: Sequence[int],
) -> list[Exchange]:
    found = []
    for name, first in pieces[0].items():
        sides = {i: dict(_at(first, pieces[i].get(name, []))) for i in known}
        waiting, moving, late = 0.0, 0.0, Counter[int]()
        count = 0
        for piece in first:
            if not all(piece in sides[i] for i in known):
                continue
            both = {i: sides[i][piece] for i in known}
            begins = {i: p.begin - ahead[i] for i, p in both.items()}
            last = max(begins, key=lambda i: begins[i])
            waits = [min(begins[last] - begins[i], p.end - p.begin) for i, p in both.items()]
            waiting += sum(waits) / len(known) * 1e-6
            moving += (both[last].end - both[last].begin) * 1e-6
            late[traces[last].rank] += 1
            count += 1
        if count:
            rank, times = late.most_common(1)[0]
            found.append(Exchange(name, count, moving, waiting, rank, times))
    return found


def _at(first: Sequence[_Piece], other: Sequence[_Piece]) -> list[tuple[_Piece, _Piece]]:
    return [(p, p) for p in first] if other is first else _pairs(first, other)
