"""The figures by which whole profiles are compared, gated and swept: one line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opgraph import units
from opgraph.analysis.memory import memory
from opgraph.document import Profile

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


def quantity(name: str) -> Quantity | None:
    """The quantity of that name, or None."""
    return next((q for q in QUANTITIES if q.name == name), None)
