"""One tool on one model, in a process of its own that was forked after the libraries were imported: what
it says, how long a call takes beside a plain forward, and the memory it needs."""

from __future__ import annotations

import copy
import gc
import json
import os
import resource
import signal
import statistics
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from adapters import OURS, PEERS
from models import Entry, prepared

ROUNDS = 2
BUDGET = 3.0
"""Seconds of CPU after which no further round is begun."""


Report = Callable[[dict[str, Any]], None]


def measured(entry: Entry, tools: list[str], timeout: int, memory: int, report: Report) -> None:
    """A row for each tool, given to `report` as it comes. What goes wrong is in the row: nothing is
    raised. The peers' processes are forked off one that has built the model, ours from this one."""
    if OURS in tools:
        report(_forked(OURS, entry, timeout, memory, lambda row: _ours(entry, row)))
    peers = [tool for tool in tools if tool != OURS]
    if not peers:
        return
    built = _Built(entry)
    for tool in peers:
        report(_forked(tool, entry, timeout, memory, lambda row, t=tool: _theirs(t, built, row)))
    built.module = None
    gc.collect()


class _Built:
    """A model with real weights from its plain constructor, and the arguments of one call."""

    def __init__(self, entry: Entry) -> None:
        from opgraph.tracing.base import arguments

        start = time.process_time()
        model, example = prepared(entry, weights=True)
        self.seconds = time.process_time() - start
        self.module: Any = model.module.eval()
        self.args, self.kwargs = arguments(example, None)
        tensors = [*self.module.parameters(), *self.module.buffers()]
        self.bytes = sum(t.numel() * t.element_size() for t in tensors)


def _forked(
    tool: str, entry: Entry, timeout: int, memory: int, fill: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _limit(timeout, memory)
        row = _filled(fill)
        with os.fdopen(writer, "w") as out:
            out.write(json.dumps(row))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status, _ = os.wait4(child, 0)
    row = json.loads(text) if text else {"error": _end(status)}
    return {"tool": tool, "model": entry.name, **row}


def _limit(timeout: int, memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (timeout, timeout))
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)


def _end(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    late = code in (-signal.SIGXCPU, -signal.SIGKILL)
    return "it takes too long" if late else f"the process ended with {code}"


def _filled(fill: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            fill(row)
    except BaseException as error:  # noqa: BLE001 - a tool may raise anything, and that is the result
        lines = str(error).strip().splitlines()
        row["error"] = f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
        row["where"] = traceback.format_exc()[-1500:]
    return row


def _theirs(tool: str, built: _Built, row: dict[str, Any]) -> None:
    peer = PEERS[tool]
    row["build"] = built.seconds
    plain = copy.deepcopy(built.module)  # tools leave things behind in the one they were given

    def call() -> Any:
        return peer.run(built.module, built.args, built.kwargs)

    said = _first(call, row)
    row["rss"] -= built.bytes  # of the copy
    row |= {"value": said.value, "parameters": said.parameters, "nodes": said.nodes}
    _rounds(row, {"seconds": call, "real": lambda: plain(*built.args, **built.kwargs)})


def _ours(entry: Entry, row: dict[str, Any]) -> None:
    from opgraph import Profile
    from opgraph.api.pipeline import profile_model
    from opgraph.tracing.base import staged

    start = time.process_time()
    model, example = prepared(entry, weights=False)
    row["build"] = time.process_time() - start

    def call() -> Any:
        profile = Profile.of(profile_model(model, example))
        return profile, profile.totals

    profile, totals = _first(call, row)
    if profile.graph.failed is not None:
        raise RuntimeError(profile.graph.failed.error)
    row |= {"value": totals.flops, "parameters": totals.parameters, "nodes": len(profile.nodes)}
    row["tensors"] = profile.tracing.tensors
    built = _Built(entry)
    row["true_parameters"] = sum(p.numel() for p in built.module.parameters())
    fakes: list[float] = []

    def fake() -> None:
        with staged(model.module, example) as stage:
            begin = time.process_time()
            model.module(*stage.args, **stage.kwargs)
            fakes.append(time.process_time() - begin)

    steps: dict[str, Callable[[], Any]] = {
        "seconds": call,
        "real": lambda: built.module(*built.args, **built.kwargs),
    }
    if profile.tracing.tensors == "fake":
        with suppress(
            NotImplementedError
        ):  # torch compares with what it has seen: no packed weights
            fake()
            fake()
            steps["fake"] = fake
        fakes.clear()
    _rounds(row, steps)
    if fakes:  # without what surrounds a forward on fake tensors
        row["fake"] = statistics.median(fakes[1:] or fakes)


def _first(call: Callable[[], Any], row: dict[str, Any]) -> Any:
    before = time.process_time()
    result = call()
    row["first"] = time.process_time() - before
    row["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return result


def _rounds(row: dict[str, Any], steps: dict[str, Callable[[], Any]]) -> None:
    """Medians of alternating calls, in seconds of CPU on one thread, so that a shared machine does not
    matter; the first round warms up where there is time for more."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    begin = time.process_time()
    for _ in range(ROUNDS + 1):
        for name, step in steps.items():
            times[name].append(_seconds(step))
        if time.process_time() - begin > BUDGET:
            break
    row["rounds"] = len(times["seconds"])
    for name, seconds in times.items():
        row[name] = statistics.median(seconds[1:] or seconds)
    pairs = list(zip(times["seconds"], times["real"], strict=True))
    row["ratio"] = statistics.median(t / r for t, r in pairs[1:] or pairs)


def _seconds(step: Callable[[], Any]) -> float:
    """CPU seconds of a call: of one, or, where the clock does not tick in one, of as many as it takes."""
    start, calls, spent = time.process_time(), 0, 0.0
    while not spent:
        step()
        calls, spent = calls + 1, time.process_time() - start
    return spent / calls
