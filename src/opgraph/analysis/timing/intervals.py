"""How far a predicted time may be off: an interval that holds nine of ten measured times.

It is split conformal prediction (Vovk, Gammerman and Shafer: "Algorithmic Learning in a Random World",
2005): the ratios of measured to predicted time of what the model was not fitted to, by the class of work
that most of the time goes to and by how far the device is from the measured ones, are kept in
`residuals.json`, which benchmarks/predict.py writes. The interval goes from their 5 % quantile to that of
95 %.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from math import exp, floor, log
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from opgraph.hardware import Device

if TYPE_CHECKING:
    from opgraph.analysis.timing.kernels import KernelCost
    from opgraph.analysis.timing.workload import Work

COVERAGE = 0.9
"""Of measured times, the share that an interval is to hold."""

FILE = Path(__file__).with_name("residuals.json")

UNKNOWN = 3.0
"""The factor by which a time may be off, either way, where nothing like it was measured: that is
a guess, and wide on purpose."""

WorkClass = Literal["host", "product", "convolution", "memory"]
"""What most of a run goes to: the host, or on the device products and attention, convolutions, or what
memory bounds."""

Distance = Literal["measured", "left out", "unmeasured"]
"""How far a device is from those that were measured: one of them; one of their kind, as each is when it is
left out of the fit; or one of a kind of which none was measured."""

_CLASSES: Mapping[str, WorkClass] = {
    "matmul": "product", "attention": "product", "recurrent": "product", "convolution": "convolution",
    "grouped_convolution": "convolution", "depthwise_convolution": "convolution",
}  # fmt: skip


def work_class(
    works: Sequence[Work], costs: Sequence[KernelCost], often: Sequence[int], *, host: bool
) -> WorkClass:
    """The class of work that most of a run goes to."""
    if host:
        return "host"
    spent: dict[WorkClass, float] = {"product": 0.0, "convolution": 0.0, "memory": 0.0}
    for work, cost, times in zip(works, costs, often, strict=True):
        spent[_CLASSES.get(work.task.category, "memory")] += cost.seconds * times
    return max(spent, key=lambda kind: spent[kind])


def distance(device: Device, kind: WorkClass) -> Distance:
    """How far a device is from those that were measured; for the host's time it is its host that counts."""
    figures = "host." if kind == "host" else "sustained."
    if any(key.startswith(figures) for key in device.figures):
        return "measured"
    return "left out" if device.kind == "gpu" else "unmeasured"


@cache
def residuals() -> Mapping[str, Mapping[str, Sequence[float]]]:
    """By distance and class of work the two ratios of measured to predicted time, and how many stand
    behind them."""
    found: Mapping[str, Mapping[str, Sequence[float]]] = json.loads(FILE.read_text("utf-8"))
    return found


def interval(kind: WorkClass, far: Distance, missing: int = 0) -> tuple[float, float]:
    """The ratios of measured to predicted time between which nine of ten are; wider by the square root of
    two for each figure that is `missing` of the device."""
    if kind in residuals().get(far, {}):
        low, high, _ = residuals()[far][kind]
    else:
        low, high = 1 / UNKNOWN, UNKNOWN
    wider = 2 ** (missing / 2)
    return low / wider, high * wider


def quantiles(ratios: Sequence[float], coverage: float = COVERAGE) -> tuple[float, float]:
    """The ratios between which the next one of their kind is with this probability; the smallest and the
    largest where they are too few to say more."""
    logs = sorted(map(log, ratios))
    out = (1 - coverage) / 2
    tail = floor(out * (len(logs) + 1) + 1e-9)
    low, high = tail - 1, len(logs) - tail
    return exp(logs[max(low, 0)]), exp(logs[min(high, len(logs) - 1)])
