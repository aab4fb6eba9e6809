"""Energy of a run: what a device draws while nothing runs, for as long as the run takes, and what its work
draws beside that.

    joules = idle x seconds + (limit - idle) x (arithmetic + STREAM x traffic)

*Arithmetic* are the seconds in which the sustained peak would do all arithmetic, *traffic* those in which
the sustained bandwidth would move all bytes: a FLOP and a byte cost what they cost, however long they take
(Choi, Bedard, Fowler and Vuduc: "A roofline model of energy", IPDPS 2013). A device at its sustained peak
draws its limit, and nothing draws more. docs/prediction.md says what stands behind that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opgraph.analysis.timing.kernels import FITTED
from opgraph.analysis.timing.prediction import Prediction
from opgraph.analysis.timing.workload import Task, Work
from opgraph.hardware import Device
from opgraph.record import units

STREAM = 0.35
"""What a full memory bandwidth draws, as a share of what a full arithmetic does: decoding draws at most 300
of an H200's 700 W, of which 80 are idle (arXiv 2605.11999)."""

APART = 1.5
"""The factor by which the power may be off, either way. No measured power is among the files that the model
is fitted to, so it is a guess."""


@dataclass(frozen=True, slots=True)
class Energy:
    """The joules of a run, those between which it is thought to be, and the mean power in watts."""

    joules: float
    interval: tuple[float, float]
    watts: float

    @property
    def written(self) -> str:
        """The joules with their interval: "1.40 kJ (0.92–2.10)"."""
        return units.spread(self.joules, "J", self.interval)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {"joules": self.joules, "interval": list(self.interval), "watts": self.watts}


def energy(works: Sequence[Work], found: Prediction, device: Device) -> Energy | None:
    """The energy of work whose time was predicted on a device; None where no power limit is known of it.
    What its host draws is not in it.

    The interval is that of the time, times `APART` either way, and no more than the limit all the time.
    """
    limit, idle = device.power_limit, device.idle_power
    if limit is None or not found.seconds:
        return None
    known: dict[int, float] = {}
    cache, bandwidth, drawn = device.cache * FITTED.kept, device.sustained_bandwidth, 0.0
    for work in works:
        if work.task.on_host:
            continue
        arithmetic = known.get(id(work.task))
        if arithmetic is None:
            arithmetic = known[id(work.task)] = _arithmetic(work.task, device)
        far = work.task.bytes - work.near(cache)
        drawn += arithmetic + STREAM * far / bandwidth
    watts = min(limit, idle + (limit - idle) * drawn / found.seconds)
    low, high = found.interval
    between = (low * max(idle, watts / APART), high * min(limit, watts * APART))
    return Energy(watts * found.seconds, between, watts)


def _arithmetic(task: Task, device: Device) -> float:
    """The seconds of a task's arithmetic at the sustained peaks."""
    dtype = device.multiplies(task.products)
    matrix = task.category != "depthwise_convolution" and device.has_matrix(dtype)
    peak = device.matrix_peak(dtype) if matrix else device.vector_peak(dtype)
    sustained = device.sustained_matrix if matrix else device.sustained_vector
    other = device.vector_peak("float32") * device.sustained_vector
    return task.flops / (peak * sustained) + task.other_flops / other


@dataclass(frozen=True, slots=True)
class Price:
    """What a run costs, of a device that costs so much `per_hour`, in its currency; the interval is that of
    the time."""

    per_hour: float
    run: float
    interval: tuple[float, float]
    per_item: float

    @property
    def written(self) -> str:
        """The price with its interval: "0.0021 (0.0018–0.0026)"."""
        return f"{self.run:.3g} ({self.interval[0]:.3g}–{self.interval[1]:.3g})"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {"per_hour": self.per_hour, "run": self.run, "interval": list(self.interval),
                "per_item": self.per_item}  # fmt: skip


def price(found: Prediction, per_hour: float) -> Price:
    """What a run costs, whose time was predicted."""
    second = per_hour / 3600
    low, high = found.interval
    run = found.seconds * second
    return Price(per_hour, run, (low * second, high * second), run / found.batch)
