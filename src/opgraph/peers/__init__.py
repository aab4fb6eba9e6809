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
        count = _counted(counter, copy.deepcopy(module), args, kwargs)
        spent = time.perf_counter() - start
        apart = None
        known = sum(p.numel() for p in module.parameters())
        if count.parameters not in (None, known) and (copied := separated(module)) is not None:
            apart = _counted(counter, copied, args, kwargs).parameters
    except Exception as error:  # noqa: BLE001  (another tool may raise anything)
        return Reading(name, _version(name), unit, error=first_line(error),
                       seconds=time.perf_counter() - start)  # fmt: skip
    return Reading(
        name, _version(name), unit, value=count.value, parameters=count.parameters,
        separated=apart, uncounted=count.uncounted, seconds=spent,
    )  # fmt: skip


def _counted(
    counter: Counter, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> counters.Count:
    """What a counter says of a module that it may spoil."""
    with (
        torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings(),
        redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        return counter(module.eval(), args, kwargs)


def separated(module: nn.Module) -> nn.Module | None:
    """A copy in which a module without parameters that several own (one activation for all layers) is one
    for each; None where there is no such module."""
    whole = copy.deepcopy(module)
    seen: set[int] = set()
    shared = False
    for owner in list(whole.modules()):
        for name, child in owner._modules.items():
            if (
                id(child) in seen
                and child is not None
                and not any(True for _ in child.parameters())
            ):
                owner._modules[name] = copy.deepcopy(child)
                shared = True
            seen.add(id(child))
    return whole if shared else None


def _version(name: str) -> str:
    try:
        return version(packages_distributions().get(name, [name])[0])
    except PackageNotFoundError:
        return "?"
