"""The figures by which whole profiles are compared, gated and swept: one line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opgraph.record import units
from opgraph.record.graph import around
from opgraph.record.kinds import DEVICE_BOUNDS, Bound

if TYPE_CHECKING:
    from opgraph.analysis.costed import CostedRecord
    from opgraph.hardware import Device

FORMATS: dict[str, Callable[[float], str]] = {
    "count": units.count,
    "integer": lambda number: units.integer(round(number)),
    "flops": units.flops,
    "macs": units.macs,
    "bytes": units.size,
    "share": units.percent,
    "intensity": units.intensity,
    "seconds": units.seconds,
}
"""How a quantity of each kind is written for a person."""


def peak_memory_by_module(costed: CostedRecord) -> dict[str, int]:
    """The peak memory of every module that runs something: its own weights and buffers with those of what
    is below it, and the most bytes of activations and inputs live while it runs; the whole is ""."""
    from opgraph.analysis.memory import peaks

    held: dict[str, int] = {}
    for parameter in costed.graph.parameters:
        for scope in around(parameter.scope):
            held[scope] = held.get(scope, 0) + parameter.bytes
    most = {path: held.get(path, 0) + live for path, live in peaks(costed.graph).items()}
    return {**most, "": costed.peak_memory}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure of a profile: the name that scripts and gates use, the one people read, its kind (a key
    of `FORMATS`), and how it is found. None where a profile does not have it."""

    name: str
    label: str
    kind: str
    of: Callable[[CostedRecord], float | None]

    def format(self, value: float | None) -> str:
        return "—" if value is None else FORMATS[self.kind](value)


def _measured(costed: CostedRecord) -> float | None:
    return None if costed.measurement is None else costed.measurement.run.seconds


QUANTITIES = (
    Quantity("parameters", "Parameters", "count", lambda c: c.totals.parameters),
    Quantity("weight_bytes", "Weights", "bytes", lambda c: c.totals.weight_bytes),
    Quantity("flops", "FLOPs", "flops", lambda c: c.totals.flops),
    Quantity("macs", "MACs", "macs", lambda c: c.totals.macs),
    Quantity("other_flops", "Other FLOPs", "flops", lambda c: c.totals.other_flops),
    Quantity("bytes", "Bytes", "bytes", lambda c: c.totals.bytes),
    Quantity("peak_memory", "Peak memory", "bytes", lambda c: c.peak_memory),
    Quantity("intensity", "FLOPs/byte", "intensity", lambda c: c.totals.arithmetic_intensity),
    Quantity("nodes", "Nodes", "integer", lambda c: c.totals.nodes),
    Quantity("kernels", "Kernels", "integer", lambda c: c.totals.kernels),
    Quantity("coverage", "Coverage", "share", lambda c: c.totals.coverage),
)


def _latency(costed: CostedRecord) -> float | None:
    return None if costed.prediction is None else costed.prediction.seconds


def _throughput(costed: CostedRecord) -> float | None:
    return None if costed.prediction is None else costed.prediction.throughput


def _memory_share(costed: CostedRecord) -> float | None:
    return None if costed.fit is None else costed.fit.needed / costed.fit.capacity


def _bound(bound: Bound) -> Quantity:
    def share(costed: CostedRecord) -> float | None:
        known = any(b.bound is bound for b in costed.bounds)
        return costed.waits.get(bound, 0.0) if known else None

    return Quantity(f"{bound.value}_bound", f"Bound by {bound.label}", "share", share)


TIMED = (
    Quantity("latency", "Latency", "seconds", _latency),
    Quantity("throughput", "Items/s", "count", _throughput),
    Quantity("memory_share", "Of its memory", "share", _memory_share),
    Quantity("ridge", "Ridge point", "intensity", lambda c: c.ridge),
    *map(_bound, DEVICE_BOUNDS),
)
"""On a device: the predicted latency of a run, items of the batch a second, the share of its memory that
is needed (above one, it does not fit), the ridge point, and the shares of the time by what it is bound
by (launches alone where the host is the limit)."""


MEASURED = Quantity("measured", "Measured", "seconds", _measured)
"""The median seconds of a step that was run."""


def quantities(device: Device | None = None) -> tuple[Quantity, ...]:
    """All quantities, on a device those of time as well."""
    return QUANTITIES if device is None else QUANTITIES + TIMED
