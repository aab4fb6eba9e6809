"""Gates: conditions under which a comparison fails, such as `flops > +2%`.

    flops > +2%              the change against the first profile, in percent of it
    peak_memory > +100MiB    the change, in the quantity's own unit
    coverage < 100%          the value itself
    parameters > 120M

A number with a sign is a change, one without is a value. Counts take the suffixes k, M, G (or B), T and P,
bytes B, kB to TB and KiB to TiB, and times s, ms and us.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.quantities import MEASURED, TIMED, Quantity, quantities
from opgraph.hardware import Device
from opgraph.record.errors import RenderError, did_you_mean

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_COUNTS = {"k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
_UNITS = {
    "bytes": {
        "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
        "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
    },
    "seconds": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6},
    "share": {},
}  # fmt: skip
"""The units of the kinds of quantities, beside none and %; all other kinds are counts."""
_GATE = re.compile(
    r"\s*(\w+)\s*(>=|<=|==|!=|>|<)\s*([+-]?)\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(%|[^\W\d]*)\s*",
    re.IGNORECASE,
)


class GateError(RenderError):
    """A gate that cannot be read."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition: a quantity, a comparison, and a limit on its value or its change, which is absolute
    or in shares of the first profile's value."""

    text: str
    quantity: Quantity
    sign: str
    limit: float
    change: bool
    relative: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a gate says of one profile (by its position) against the first: the two values, and whether
    it is broken. A value that a profile does not have breaks the gate: it must not pass because nobody
    looked. Of what was measured, `noise` is how far off it may be: a difference within that breaks no
    gate."""

    gate: Gate
    position: int
    before: float | None
    after: float | None
    broken: bool
    noise: float | None = None


def parse_gate(text: str, device: Device | None = None) -> Gate:
    """A gate from its text; on a device it may be on the latency, too. Raises `GateError` saying what is
    wrong with it."""
    found = _GATE.fullmatch(text)
    if found is None:
        raise GateError(f"{text!r} is not a gate: write it like 'flops > +2%'")
    name, sign, direction, number, unit = found.groups()
    known = {q.name: q for q in (*quantities(device), MEASURED)}
    what = known.get(name.lower())
    if what is None:
        timed = name.lower() in {q.name for q in TIMED}
        hint = "--hardware DEVICE predicts it" if timed else did_you_mean(name.lower(), known, 1)
        raise GateError(f"{name!r} is no quantity: one of {', '.join(known)}", hint=hint)
    value = float(number) * (-1 if direction == "-" else 1)
    if unit == "%":
        if not direction and what.kind != "share":
            raise GateError(f"{text!r}: percent of what? Write +{number}% for a change")
        share = bool(direction)
        return Gate(text.strip(), what, sign, value / 100, change=share, relative=share)
    limit = value * _factor(unit, what, text)
    return Gate(text.strip(), what, sign, limit, change=bool(direction), relative=False)


def _factor(unit: str, what: Quantity, text: str) -> float:
    """What a unit, in any case, makes of a number. Raises `GateError` for one that the quantity has not."""
    units = _UNITS.get(what.kind, _COUNTS)
    factors = {"": 1.0, **{name.lower(): factor for name, factor in units.items()}}
    if unit.lower() not in factors:
        raise GateError(f"{text!r}: {unit!r} is no unit of {what.name}",
                        hint=f"{what.name} takes {', '.join([*units, '%'])}, or none")  # fmt: skip
    return factors[unit.lower()]


def judge(gates: Sequence[Gate], models: Sequence[CostedRecord]) -> tuple[Verdict, ...]:
    """The verdict of every gate on every profile after the first, against the first."""
    first = models[0]
    return tuple(
        _verdict(gate, position, first, model)
        for gate in gates
        for position, model in enumerate(models[1:], start=1)
    )


def _noise(gate: Gate, first: CostedRecord, model: CostedRecord) -> float | None:
    """How far off what a gate looks at may be, in seconds; None where that is no measurement."""
    if gate.quantity is not MEASURED:
        return None
    runs = [m.profile.measured for m in (first, model)[0 if gate.change else 1 :]]
    return hypot(*(run.uncertainty * run.seconds for run in runs if run is not None))


def _verdict(gate: Gate, position: int, first: CostedRecord, model: CostedRecord) -> Verdict:
    before, after = gate.quantity.of(first), gate.quantity.of(model)
    if after is None or (gate.change and before is None):
        return Verdict(gate, position, before, after, broken=True)
    measured = after - (before or 0.0) if gate.change else after
    # Against the limit times the first value, not a quotient: it may be zero, and integers stay exact.
    limit = gate.limit * (before or 0.0) if gate.relative else gate.limit
    broken, noise = _COMPARE[gate.sign](measured, limit), _noise(gate, first, model)
    if broken and noise:
        broken = abs(measured if gate.change else measured - limit) > noise
    return Verdict(gate, position, before, after, broken, noise)
