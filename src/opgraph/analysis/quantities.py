"""The figures by which whole profiles are compared, gated and swept: one line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opgraph.analysis.cost.bottleneck import GENERIC_RIDGE
from opgraph.analysis.memory import memory, peaks
from opgraph.analysis.timing.prediction import predict
from opgraph.hardware import Device
from opgraph.record import units
from opgraph.record.profile import Profile

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


def peak_memory(profile: Profile) -> int:
    """Weights, buffers, and the most bytes of activations and inputs live at a time."""
    totals = profile.totals
    return totals.weight_bytes + totals.buffer_bytes + memory(profile.graph).peak


def peak_memory_by_module(profile: Profile) -> dict[str, int]:
    """The same for every module that runs something: its own weights and buffers with those of what is
    below it, and the most bytes of activations and inputs live while it runs; the whole is ""."""
    held: dict[str, int] = {}
    for parameter in profile.graph.parameters:
        scope = parameter.scope
        held[scope] = held.get(scope, 0) + parameter.bytes
        while scope:
            scope = scope.rpartition(".")[0]
            held[scope] = held.get(scope, 0) + parameter.bytes
    most = {path: held.get(path, 0) + live for path, live in peaks(profile.graph).items()}
    return {**most, "": peak_memory(profile)}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure of a profile: the name that scripts and gates use, the one people read, its kind (a key
    of `FORMATS`), and how it is found. None where a profile does not have it."""

    name: str
    label: str
    kind: str
    of: Callable[[Profile], float | None]

    def format(self, value: float | None) -> str:
        return "—" if value is None else FORMATS[self.kind](value)


QUANTITIES = (
    Quantity("parameters", "Parameters", "count", lambda p: p.totals.parameters),
    Quantity("weight_bytes", "Weights", "bytes", lambda p: p.totals.weight_bytes),
    Quantity("flops", "FLOPs", "flops", lambda p: p.totals.flops),
    Quantity("macs", "MACs", "macs", lambda p: p.totals.macs),
    Quantity("other_flops", "Other FLOPs", "flops", lambda p: p.totals.other_flops),
    Quantity("bytes", "Traffic", "bytes", lambda p: p.totals.bytes),
    Quantity("peak_memory", "Peak memory", "bytes", peak_memory),
    Quantity("intensity", "FLOPs/byte", "intensity", lambda p: p.totals.arithmetic_intensity),
    Quantity("nodes", "Nodes", "integer", lambda p: p.totals.nodes),
    Quantity("kernels", "Kernels", "integer", lambda p: p.totals.kernels),
    Quantity("coverage", "Coverage", "share", lambda p: p.totals.coverage),
)


def quantities(device: Device | None = None) -> tuple[Quantity, ...]:
    """All quantities; on a device also the predicted latency of a run, items of the batch a second, and
    the share of its memory that is needed: above one, it does not fit."""
    if device is None:
        return QUANTITIES
    return (
        *QUANTITIES,
        Quantity("latency", "Latency", "seconds", lambda p: predict(p.graph, device).seconds),
        Quantity("throughput", "Items/s", "count", lambda p: predict(p.graph, device).throughput),
        Quantity(
            "memory_share", "Of its memory", "share", lambda p: peak_memory(p) / device.capacity
        ),
    )


def ridge_on(device: Device | None, profile: Profile) -> float:
    """The ridge point for a profile's contractions: the device's in their dtype, or the generic one."""
    if device is None:
        return GENERIC_RIDGE
    kernels = (k for n in profile.nodes for k in n.kernels)
    main = max(kernels, key=lambda k: k.flops, default=None)
    return device.ridge_point(main.dtype if main is not None and main.flops else "float32")
