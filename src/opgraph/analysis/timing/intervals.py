"""How far a predicted time may be off: an interval that holds nine of ten measured times.

It is split conformal prediction with normalized residuals (Vovk, Gammerman and Shafer: "Algorithmic
Learning in a Random World", 2005; Papadopoulos and others, 2002). How hard a run is to predict is known
beforehand, from what it spends its time on: the variance of its logarithm is taken to be

    spread^2 = base^2 + sum over limits (share x its spread)^2 + sum over tasks (share x one task)^2

since what all kernels of a kind have in common is wrong together, and what each has alone evens out. A
device file that was fitted says by how much kernels that the fit had not seen were off, by class of work:
that is a spread of its own (`opgraph.analysis.timing.fitting.left_over`). The
logarithms of measured by predicted time of what the model was not fitted to, in that spread, have quantiles
by kind of run and by how far the device is from the measured ones: the interval goes from that of 5 % to
that of 95 %. `residuals.json` has both; benchmarks/predict.py writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from opgraph.analysis.timing.collectives import crosses
from opgraph.analysis.timing.kernels import LARGE_WINDOW, KernelCost, traffic_class
from opgraph.hardware import Device
from opgraph.record.kinds import Bound, Run

if TYPE_CHECKING:
    from opgraph.analysis.timing.workload import Task, Work

COVERAGE = 0.9
"""Of measured times, the share that an interval is to hold."""

FILE = Path(__file__).with_name("residuals.json")

UNKNOWN = 3.0
"""The factor by which a time may be off, either way, where nothing like it was measured: that is
a guess, and wide on purpose."""

WorkClass = Literal["host", "training", "product", "convolution", "memory"]
"""The kind of a run: one in which the host is the limit, one with gradients, or what most of another goes
to on the device: products and attention, convolutions, or what memory bounds."""

Distance = Literal["measured", "left out", "unmeasured"]
"""How far a device is from those that were measured: one of them; one of their kind, as each is when it is
left out of the fit; or one of a kind of which none was measured."""

_CLASSES: Mapping[str, WorkClass] = {
    "matmul": "product", "attention": "product", "recurrent": "product", "convolution": "convolution",
    "grouped_convolution": "convolution", "depthwise_convolution": "convolution",
}  # fmt: skip


def class_of(category: str) -> WorkClass:
    """What a kernel of a category does: a product (or attention), a convolution, or else it moves data."""
    return _CLASSES.get(category, "memory")


HOST: Literal["host"] = "host"
"""The limit of a run that waits for the host."""


EXCHANGE, FAR = "exchange", "exchange between nodes"
"""The limits of what ranks exchange, over the link of a node and over a network."""

_GUESSED = {FAR: log(UNKNOWN) / 1.645, "own": 1.0}
"""The spreads of what was never measured: 1.645 of them is the factor `UNKNOWN`, in nine of ten cases.
The square of what the fit of a device left over is one already."""


def limit_of(task: Task, cost: KernelCost, device: Device) -> str:
    """What a kernel's time depends on: the gap between kernels, the share of the peak or of the bandwidth
    that its class of work reaches, the link or the network."""
    if task.collective is not None:
        return FAR if crosses(task.collective, device) else EXCHANGE
    if cost.bound is Bound.LAUNCH:
        return "gap"
    if cost.bound is Bound.MEMORY or not task.flops:
        return f"traffic {traffic_class(task)}"
    if task.kernel.endswith("_backward"):
        return "compute gradient"
    sizes = task.contraction
    large = sizes is not None and sizes.window > LARGE_WINDOW and task.layout != "channels-last"
    if task.category == "depthwise_convolution" and large:
        return "compute large_window"
    return f"compute {task.category}"


def difficulty(
    works: Sequence[Work],
    costs: Sequence[KernelCost],
    often: Sequence[int],
    device: Device,
    *,
    host: bool,
) -> tuple[WorkClass, Mapping[str, float]]:
    """The kind of a run, and the squares of the shares of its time by limit; under "one task", the sum
    of those by task, and under "own", of those by class of work times what the fit of the device left."""
    apart: dict[tuple[int, Bound], float] = {}
    first: dict[tuple[int, Bound], tuple[Task, KernelCost]] = {}
    for work, cost, times in zip(works, costs, often, strict=True):
        key = (id(work.task), cost.bound)
        if key not in apart:
            apart[key], first[key] = 0.0, (work.task, cost)
        apart[key] += cost.seconds * times
    spent: dict[WorkClass, float] = {"product": 0.0, "convolution": 0.0, "memory": 0.0}
    limits: dict[str, float] = {}
    tasks: dict[int, float] = {}
    trains = any(task.kernel.endswith("_backward") for task, _ in first.values())
    for key, taken in apart.items():
        task, cost = first[key]
        limit = limit_of(task, cost, device)
        spent[class_of(task.category)] += taken
        limits[limit] = limits.get(limit, 0.0) + taken
        tasks[id(task)] = tasks.get(id(task), 0.0) + taken
    whole = sum(limits.values())
    if host or not whole:
        return HOST, {HOST: 1.0}
    squares = {limit: (taken / whole) ** 2 for limit, taken in limits.items()}
    squares["one task"] = sum((taken / whole) ** 2 for taken in tasks.values())
    own = sum(
        (spent[kind] / whole * (device.figure(f"spread.{kind}") or 0.0)) ** 2 for kind in spent
    )
    squares |= {"own": own} if own else {}
    return "training" if trains else max(spent, key=lambda kind: spent[kind]), squares


def spread(squares: Mapping[str, float], spreads: Mapping[str, float] | None = None) -> float:
    """How far the logarithm of a run's time is thought to be off, by what it spends its time on."""
    known = residuals()["spread"] if spreads is None else spreads
    rest = sum(
        square * known.get(limit, _GUESSED.get(limit, 0.0)) ** 2
        for limit, square in squares.items()
    )
    return float((known["base"] ** 2 + rest) ** 0.5)


def distance(device: Device, kind: WorkClass) -> Distance:
    """How far a device is from those that were measured; for the host's time it is its host that counts."""
    figures = ("host.call", "host.module") if kind == "host" else "sustained."
    if any(k.startswith(figures) and not f.derived for k, f in device.figures.items()):
        return "measured"
    return "left out" if device.kind == "gpu" else "unmeasured"


@cache
def residuals() -> Mapping[str, Any]:
    """The spreads by limit, and under "quantiles", by distance and kind of run, the two of residuals in
    spreads, and how many stand behind them."""
    found: Mapping[str, Any] = json.loads(FILE.read_text("utf-8"))
    return found


def interval(
    kind: WorkClass, squares: Mapping[str, float], far: Distance, missing: int = 0, run: Run = Run.EAGER
) -> tuple[float, float]:  # fmt: skip
    """The ratios of measured to predicted time between which nine of ten are; wider by the square root of
    two for each figure that is `missing` of the device, and for kernels of a compiler, of which none were
    measured. A device that was not measured has an interval no narrower than one that was, and what an
    engine runs none narrower than its own residuals."""
    known = residuals()["quantiles"]
    rows = [known[d][kind] for d in ("measured", far) if kind in known.get(d, {})]
    rows += [residuals()["engine"]] if run is Run.ENGINE else []
    missing += run.compiled
    low, high = -log(UNKNOWN), log(UNKNOWN)
    if far != "unmeasured" and kind in known.get(far, {}):
        scale = spread(squares)
        low, high = scale * min(r[0] for r in rows), scale * max(r[1] for r in rows)
    wider = 2 ** (missing / 2)
    return exp(low) / wider, exp(high) * wider


def exchange_ratios(far: float) -> tuple[float, float]:
    """The ratios of measured to predicted time between which nine of ten collectives are, a share `far` of
    whose time is spent between nodes: where nothing was measured."""
    low, high, _ = residuals()["exchange"]
    return exp(low) * (1 - far) + far / UNKNOWN, exp(high) * (1 - far) + far * UNKNOWN
