"""What a device sustains, from measured kernels: of the machine at hand (`opgraph hardware --calibrate`),
or of any other from a CSV of measurements (`opgraph hardware DEVICE --measured FILE.csv`).

A line of the CSV is a kernel that was run again and again: `op` (product, convolution, attention, gelu
or copy), `dtype`, `batch`, `m`, `n`, `k` (of a product m x k by k x n; of gelu and a copy m elements),
`window` (positions of a convolution's kernel, 1 if not given), `seconds`, and `cold`, 1 where it found
nothing in a cache.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path

from opgraph.analysis.timing.intervals import class_of
from opgraph.analysis.timing.kernels import FITTED, kernel_cost
from opgraph.analysis.timing.workload import Contraction, Task
from opgraph.hardware import Device
from opgraph.hardware.devices import Figure
from opgraph.record.errors import OpgraphError
from opgraph.record.units import item_size


@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """A kernel and the seconds that it took. If not cold, it found in the cache what that can hold."""

    task: Task
    seconds: float
    cold: bool = False


_OPS = {"product": "matmul", "convolution": "convolution", "attention": "attention", "copy": "copy",
        "gelu": "elementwise"}  # fmt: skip
_GELU = 5
"""FLOPs an element, as the graph counts them."""
_ROUNDS = 12
_FOLDS = 5
_ELEMENTWISE = 0.1
"""Where the search for the share of element-wise functions begins: what is off by more than a factor of e
says no direction."""


def measured_of(row: Mapping[str, str | int | float]) -> MeasuredKernel:
    """The kernel of a line of the CSV.

    Raises `ValueError` or `KeyError` for what is not one.
    """
    seconds = float(row["seconds"])
    if not 0 < seconds < float("inf"):
        raise ValueError("seconds are not positive")
    return MeasuredKernel(_task(row), seconds, bool(int(row.get("cold") or 0)))


def _task(row: Mapping[str, str | int | float]) -> Task:
    op, dtype = str(row["op"]), str(row["dtype"])
    batch, m, n, k = (int(row.get(name) or 1) for name in ("batch", "m", "n", "k"))
    window, size = int(row.get("window") or 1), item_size(dtype)
    if op not in _OPS or min(batch, m, n, k, window) < 1:
        raise ValueError(f"{op!r:.40} of {batch} x {m} x {n} x {k} is not a kernel")
    if op == "gelu":
        return Task("aten.gelu", "elementwise", dtype, 0, _GELU * m, m * size, (m * size,))
    if op == "copy":
        return Task("aten.copy_", "copy", dtype, 0, 0, m * size, (m * size,))
    sizes = Contraction(batch, m, n, k, window)
    if op == "attention":
        read = (batch * m * k, batch * n * k, batch * n * k)
        operands = tuple(size * elements for elements in read)
        return Task("aten.attention", "attention", dtype, 4 * batch * m * n * k, 0,
                    size * batch * m * k, operands, sizes)  # fmt: skip
    operands = (size * (batch * m * k // window), size * batch * k * n)
    return Task(
        "aten.mm", _OPS[op], dtype, 2 * batch * m * n * k, 0, size * batch * m * n, operands, sizes
    )


def read_measured(path: Path) -> list[MeasuredKernel]:
    """The kernels of a CSV. Raises `OpgraphError` with the first line that is none."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            found = []
            for number, row in enumerate(csv.DictReader(file), start=2):
                try:
                    found.append(measured_of(row))
                except (ValueError, KeyError, TypeError) as error:
                    raise OpgraphError(
                        f"{path} line {number} is not a measured kernel: {error}",
                        hint="its columns are op, dtype, batch, m, n, k, window, seconds and cold",
                    ) from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise OpgraphError(f"cannot read {path}: {error}") from error
    if not found:
        raise OpgraphError(f"{path} has no measured kernels")
    return found


def fit_sustained(
    device: Device,
    measured: Sequence[MeasuredKernel],
    keys: Iterable[str] = ("matrix", "vector", "bandwidth"),
) -> dict[str, float]:
    """The shares of peaks and bandwidth (of it, those of a `product`'s operands), and the `gap` between
    kernels in seconds, that come nearest to what was measured: by a pattern search over the mean absolute
    logarithm of predicted by measured, where an error counts no more than a factor of e."""

    def loss(figures: Mapping[str, float]) -> float:
        errors = _errors(sustaining(device, figures), measured)
        return sum(map(abs, errors)) / len(measured)

    start = {
        "matrix": device.sustained_matrix, "vector": device.sustained_vector,
        "bandwidth": device.sustained_bandwidth / device.bandwidth, "gap": device.launch_overhead,
        "elementwise": device.figure("sustained.elementwise") or _ELEMENTWISE,
        "product": device.sustained_product or FITTED.traffic["matmul"],
    }  # fmt: skip
    at = {key: start[key] for key in keys}
    best, steps = loss(at), dict.fromkeys(at, 1.5)
    for _ in range(_ROUNDS):
        for key, step in steps.items():
            for factor in (step, 1 / step):
                value = at[key] * factor
                tried = {**at, key: value if key == "gap" else min(value, 1.0)}
                if (found := loss(tried)) < best - 1e-7:
                    best, at = found, tried
                    break
            else:
                steps[key] = step**0.5
    return at


def left_over(
    device: Device, measured: Sequence[MeasuredKernel], keys: Sequence[str]
) -> dict[str, float]:
    """By how much kernels are off that a fit of these figures had not seen: the root mean square of their
    logarithms by class of work (product, convolution, memory), each fifth being left out in turn."""
    squares: dict[str, list[float]] = {}
    for fold in range(_FOLDS):
        held = measured[fold::_FOLDS]
        others = [m for i, m in enumerate(measured) if i % _FOLDS != fold]
        if held and others:
            machine = sustaining(device, fit_sustained(device, others, keys))
            for one, error in zip(held, _errors(machine, held), strict=True):
                squares.setdefault(class_of(one.task.category), []).append(error**2)
    return {kind: (sum(found) / len(found)) ** 0.5 for kind, found in sorted(squares.items())}


def _errors(machine: Device, measured: Sequence[MeasuredKernel]) -> list[float]:
    """The logarithms of predicted by measured, none further from zero than one."""
    cache, found = machine.cache * FITTED.kept, []
    for one in measured:
        near = 0 if one.cold or one.task.bytes > cache else one.task.bytes
        error = log(kernel_cost(one.task, near, machine).seconds / one.seconds)
        found.append(max(-1.0, min(error, 1.0)))
    return found


def sustaining(device: Device, figures: Mapping[str, float], source: str = "fitted") -> Device:
    """The device with other sustained figures, or another `gap` between kernels."""
    names = {
        key: "execution.launch_overhead" if key == "gap" else f"sustained.{key}" for key in figures
    }
    added = {names[key]: Figure(value, source) for key, value in figures.items()}
    return replace(device, figures={**device.figures, **added})
