"""What requests saw of an engine at several rates: throughput against latency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil, inf
from typing import Any

from opgraph.analysis.serving.simulation import (
    Engine,
    Request,
    Run,
    Served,
    simulate,
)
from opgraph.analysis.serving.steps import Load, StepTimes
from opgraph.record import units
from opgraph.record.remarks import Remark

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds over requests or tokens: their mean, and the percentiles of `PERCENTILES`."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class ServingPoint:
    """What requests at a rate saw (a second; infinite where all come at once).

    `first_token` are the seconds to the first token, `per_token` those a token after it, request by
    request, `between` those between tokens, token by token; None where there are none. `occupancy` is the
    share of the cache that is held on average over the time, `fullest` at most; `running` the sequences in
    a step. `busy` and `exchanged` are the shares of the engines' time in which they are in a step, and in
    which their devices exchange something.
    """

    rate: float
    requests: int
    refused: int
    seconds: float
    requests_per_second: float
    output_tokens_per_second: float
    tokens_per_second: float
    first_token: Spread | None
    per_token: Spread | None
    between: Spread | None
    latency: Spread | None
    occupancy: float
    fullest: float
    running: float
    preemptions: int
    steps: int
    busy: float = 1.0
    exchanged: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data; an infinite rate is null."""
        return {**asdict(self), "rate": None if self.rate == inf else self.rate}


@dataclass(frozen=True)
class ServingRecord:
    """A model served on a machine, at some rates. `settings` say how it schedules, `room` how many tokens
    of one sequence the cache holds; `devices` are those of one engine in its `stages`, of which there are
    `engines`, and `held` are the bytes of one of them by what they are of. In a plan, `interval` is that
    of what is wanted: tokens a second, or the mean latency in seconds."""

    model: str
    device: str
    devices: int
    engines: int
    settings: Mapping[str, Any]
    weights: int
    room: int
    steps: Mapping[str, float]
    points: tuple[ServingPoint, ...]
    remarks: tuple[Remark, ...] = ()
    stages: int = 1
    held: Mapping[str, int] = field(default_factory=dict)
    interval: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "model": self.model, "device": self.device, "devices": self.devices, "stages": self.stages,
            "engines": self.engines, "settings": dict(self.settings), "weights": self.weights,
            "room": self.room, "held": dict(self.held), "steps": dict(self.steps),
            "points": [p.to_dict() for p in self.points],
            "remarks": [r.to_dict() for r in self.remarks],
        } | ({} if self.interval is None else {"interval": list(self.interval)})  # fmt: skip

    def records(self) -> list[dict[str, float | int | None]]:
        """One flat record a rate, for tables and files."""
        found = []
        for point in self.points:
            row: dict[str, float | int | None] = {}
            for name, value in point.to_dict().items():
                if isinstance(value, dict):
                    row |= {f"{name}_{k}": v for k, v in value.items()}
                elif name not in ("first_token", "per_token", "between", "latency"):
                    row[name] = value
            found.append(row)
        heads = dict.fromkeys(name for row in found for name in row)
        return [{name: row.get(name) for name in heads} for row in found]


@dataclass(frozen=True)
class ServingPlan:
    """The `best` ways to serve a model with so many devices, each with one rate of requests, by what was
    `wanted` ("latency" or "throughput") within the `limits` (milliseconds), of so many that were `tried`;
    the `refused` ones with the reason, and the `asked` one where there is one to explain."""

    model: str
    device: str
    devices: int
    wanted: str
    limits: Mapping[str, float]
    best: tuple[ServingRecord, ...]
    refused: tuple[str, ...] = ()
    tried: int = 0
    asked: ServingRecord | None = None

    @property
    def whys(self) -> tuple[str, ...]:
        """Of each way but the best, what most of the time goes to that it takes longer."""
        return tuple(self._difference(one) for one in self.best)

    @property
    def explained(self) -> str | None:
        """What the way that was asked for loses to the best."""
        return None if self.asked is None else self._difference(self.asked)

    def _difference(self, one: ServingRecord) -> str:
        parts, first = (_parts(each.points[0], self.wanted) for each in (one, self.best[0]))
        whole = sum(first.values())
        more = {n: seconds - first[n] for n, seconds in parts.items()}
        told = {n: v for n, v in more.items() if abs(v) > 0.005 * whole}
        if one is self.best[0]:
            return ""
        return ", ".join(
            f"{'+' if told[n] > 0 else '−'}{units.seconds(abs(told[n]))} {n}"
            for n in sorted(told, key=lambda n: -told[n])
        ) or "nothing to speak of"  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "model": self.model, "device": self.device, "devices": self.devices,
            "wanted": self.wanted, "limits": dict(self.limits), "tried": self.tried,
            "best": [s.to_dict() | {"why": w} for s, w in zip(self.best, self.whys, strict=True)],
            "refused": list(self.refused),
            "asked": None if self.asked is None else self.asked.to_dict(), "explained": self.explained,
        }  # fmt: skip

    def records(self) -> list[dict[str, Any]]:
        """One flat record a way to serve it."""
        return [
            {"engines": s.engines, "devices": s.devices, "stages": s.stages, "room": s.room}
            | s.records()[0] | dict(zip(("low", "high"), s.interval or (None, None), strict=True))
            | {f"held_{n}": b for n, b in s.held.items()} | {"why": why}
            for s, why in zip(self.best, self.whys, strict=True)
        ]  # fmt: skip


def _parts(point: ServingPoint, wanted: str) -> dict[str, float]:
    """What the seconds of a request go to, or those that all devices take for a thousand tokens."""
    if wanted == "latency":
        first, whole = (0.0 if s is None else s.mean for s in (point.first_token, point.latency))
        return {"to the first token": first, "for those after it": whole - first}
    thousand = 1000 / point.output_tokens_per_second if point.output_tokens_per_second else 0.0
    return {
        "exchanges between devices": thousand * point.exchanged,
        "engines that wait for requests": thousand * (1 - point.busy),
        "smaller steps, or reading weights more often": thousand * (point.busy - point.exchanged),
    }


def spread(values: Iterable[tuple[float, int]]) -> Spread | None:
    """The mean and the percentiles (nearest rank) of values that occur so often each."""
    ordered = sorted(values)
    count = sum(n for _, n in ordered)
    if not count:
        return None
    wanted = [ceil(count * p / 100) for p in PERCENTILES]
    found: list[float] = []
    seen = 0
    for value, n in ordered:
        seen += n
        while len(found) < len(wanted) and wanted[len(found)] <= seen:
            found.append(value)
    return Spread(sum(v * n for v, n in ordered) / count, *found)


def point_of(rate: float, runs: Sequence[Run], pages: int) -> ServingPoint:
    """What the requests of some engines side by side saw."""
    served = [s for run in runs for s in run.served]
    ran = [r for r in runs if r.steps] or runs  # an engine that nothing came to has no time
    start, end = min(r.start for r in ran), max(r.end for r in ran)
    seconds = end - start
    busy = sum(r.busy for r in runs) or 1.0
    out = sum(s.request.output for s in served)
    read = sum(s.request.prompt for s in served)
    per = [(s.per_token, 1) for s in served if s.per_token is not None]
    over = seconds or 1.0
    return ServingPoint(
        rate, len(served), sum(len(r.refused) for r in runs), seconds, len(served) / over, out / over,
        (out + read) / over,
        first_token=spread((s.first_token, 1) for s in served),
        per_token=spread((v, n) for v, n in per if v is not None),
        between=spread(gap for r in runs for gap in r.gaps),
        latency=spread((s.latency, 1) for s in served),
        occupancy=sum(r.filled for r in runs) / (pages * over * len(runs)),
        fullest=max(r.fullest for r in runs) / pages,
        running=sum(r.running for r in runs) / busy,
        preemptions=sum(r.preemptions for r in runs), steps=sum(r.steps for r in runs),
        busy=sum(r.busy for r in runs) / (over * len(runs)),
        exchanged=sum(r.exchanged for r in runs) / (over * len(runs)),
    )  # fmt: skip


def serve_at(
    rate: float, requests: Sequence[Request], engine: Engine, times: StepTimes, seed: int,
    apart: tuple[int, int] | None = None, moving: float = 0.0, copies: int = 1,
) -> ServingPoint:  # fmt: skip
    """Requests at a rate through `copies` of one engine, or, `apart`, through some that read prompts and
    some that give out tokens, between which a token of the cache takes `moving` seconds."""
    if apart is None:
        return point_of(rate, _dealt(requests, copies, engine, times, seed), engine.pages)
    readers, writers = apart
    first = _dealt(
        [replace(r, output=1) for r in requests], readers, replace(engine, drafts=None), times, seed
    )
    read: dict[Request, list[Served]] = {}  # requests may be alike, each is served once
    for run in first:
        for s in run.served:
            read.setdefault(s.request, []).append(s)
    asked: dict[Request, list[tuple[Request, Served]]] = {}
    later = []
    done: list[Served] = []
    for request in requests:
        alike = read.get(replace(request, output=1))
        if not alike:
            continue  # refused
        one = alike.pop()
        if request.output == 1:
            done.append(one)
            continue
        there = one.first + request.prompt * moving
        rest = Request(
            there, request.prompt + 1, request.output - 1, request.prompt, request.source
        )
        asked.setdefault(rest, []).append((request, one))
        later.append(rest)
    second = _dealt(later, writers, replace(engine, once=lambda _: 0.0), times, seed)
    for run in second:
        whole = []
        for s in run.served:
            request, one = asked[s.request].pop()
            run.gaps.append((s.first - one.first, 1))
            whole.append(Served(request, one.first, s.last, one.preemptions + s.preemptions))
        run.served = whole
    for run in first:
        run.served, run.gaps = [], []
    first[0].served = done
    return point_of(rate, [*first, *second], engine.pages)


def _dealt(
    requests: Sequence[Request], engines: int, engine: Engine, times: StepTimes, seed: int
) -> list[Run]:
    """Requests dealt out to some engines alike, in the order in which they arrive."""
    ordered = sorted(requests, key=lambda r: r.arrival)
    return [_heard(ordered[i::engines], engine, times, seed) for i in range(engines)]


def _heard(requests: Sequence[Request], engine: Engine, times: StepTimes, seed: int) -> Run:
    """A run of an engine that hears how long its devices exchange something."""
    exchanged = 0.0

    def seconds(load: Load) -> float:
        nonlocal exchanged
        exchanged += times.exchanging(load)
        return times.seconds(load)

    run = simulate(requests, engine, seconds, seed)
    run.exchanged = exchanged
    return run
