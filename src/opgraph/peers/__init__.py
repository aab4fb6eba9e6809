"""Other counters of FLOPs, run on the same model and inputs as we are, so that their figures can be read
beside ours. Each needs real weights, and is run on a copy, since some leave things behind in the model."""

from __future__ import annotations

import copy
import io
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import nn

from opgraph.analysis.differences import Reading
from opgraph.errors import TraceError
from opgraph.inputs.base import Example
from opgraph.peers import counters
from opgraph.sources.base import Model
from opgraph.tracing.base import arguments
from opgraph.tracing.eager import materialized
from opgraph.tracing.recorder import first_line

LARGEST = 2 * 2**30
"""Bytes of weights above which no copy is made."""

Counter = Callable[[nn.Module, tuple[Any, ...], Mapping[str, Any]], counters.Count]

PEERS: dict[str, tuple[Literal["MACs", "FLOPs"], Counter]] = {
    "fvcore": ("MACs", counters.fvcore),
    "torchinfo": ("MACs", counters.torchinfo),
    "ptflops": ("MACs", counters.ptflops),
    "thop": ("MACs", counters.thop),
    "calflops": ("FLOPs", counters.calflops),
}
"""The counters by the name of their package, with what they count in."""


def readings(model: Model, example: Example) -> tuple[Reading, ...]:
    """The figures of all counters that are installed."""
    installed = [name for name in PEERS if find_spec(name) is not None]
    if not installed:
        return ()
    size = sum(p.numel() * p.element_size() for p in model.module.parameters())
    if size > LARGEST:
        why = f"needs the weights in memory ({size / 2**30:.1f} GiB; up to {LARGEST / 2**30:.0f} are tried)"
        return tuple(Reading(n, _version(n), PEERS[n][0], error=why) for n in installed)
    try:
        module = materialized(model)
    except TraceError as error:
        return tuple(Reading(n, _version(n), PEERS[n][0], error=str(error)) for n in installed)
    return tuple(_reading(name, module, example) for name in installed)


def _reading(name: str, module: nn.Module, example: Example) -> Reading:
    unit, counter = PEERS[name]
    args, kwargs = arguments(example, None)
    start = time.perf_counter()
    try:
        with (
            torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings(),
            redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()),
        ):  # fmt: skip
            warnings.simplefilter("ignore")
            count = counter(copy.deepcopy(module).eval(), args, kwargs)
    except Exception as error:  # noqa: BLE001  (another tool may raise anything)
        return Reading(name, _version(name), unit, error=first_line(error),
                       seconds=time.perf_counter() - start)  # fmt: skip
    return Reading(
        name, _version(name), unit, value=count.value, parameters=count.parameters,
        uncounted=count.uncounted, seconds=time.perf_counter() - start,
    )  # fmt: skip


def _version(name: str) -> str:
    try:
        return version(packages_distributions().get(name, [name])[0])
    except PackageNotFoundError:
        return "?"
