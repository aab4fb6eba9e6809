"""Many trials, a few at a time, each in a process that is forked off one which has imported the libraries
already: importing them costs more than most trials."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from opgraph.options import Options
from opgraph.record.torch_version import require_torch
from opgraph.survey.trial import Trial
from opgraph.survey.worker import main, preload

_GRACE = 2.0
"""Seconds for a process to end after it has sent its outcome or has been told to stop."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many trials at a time, and what one may take: seconds, and bytes (None for no limit)."""

    jobs: int = 1
    timeout: float = 300.0
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class _Running:
    name: str
    process: BaseProcess
    connection: Connection
    started: float


def run(
    names: Sequence[str],
    limits: Limits = Limits(),
    options: Options = Options(),  # noqa: B008  (it is frozen)
    sources: frozenset[str] = frozenset(),
) -> Iterator[Trial]:
    """Try every model; outcomes come as they are ready. Closing the iterator ends what is running.

    `sources` names where the models come from, whose libraries are then imported once beforehand. Raises
    what `require_torch` raises.
    """
    require_torch()
    context = _context(sources)
    waiting = list(reversed(names))
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < limits.jobs:
                running.append(_start(context, waiting.pop(), options, limits.memory))
            ready = wait(_handles(running), timeout=_patience(running, limits.timeout))
            for one in list(running):
                late = time.monotonic() - one.started > limits.timeout
                if one.connection in ready or one.process.sentinel in ready or late:
                    running.remove(one)
                    yield _outcome(one, limits.timeout)
    finally:
        for one in running:
            _stop(one.process)


def _context(sources: frozenset[str]) -> Any:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(preload(sources))
    return context


def _start(context: Any, name: str, options: Options, memory: int | None) -> _Running:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=main, args=(sender, name, options, memory), daemon=True)
    process.start()
    sender.close()
    return _Running(name, process, receiver, time.monotonic())


def _handles(running: list[_Running]) -> list[Any]:
    return [handle for one in running for handle in (one.connection, one.process.sentinel)]


def _patience(running: list[_Running], timeout: float) -> float:
    now = time.monotonic()
    return max(0.0, min(one.started + timeout - now for one in running)) + 0.01


def _outcome(one: _Running, timeout: float) -> Trial:
    """What a trial sent, or what its process died of."""
    seconds = round(time.monotonic() - one.started, 3)
    reason = f"not done after {timeout:g} s"
    try:
        if one.connection.poll():
            return Trial.from_dict(one.connection.recv())
    except (EOFError, OSError):
        one.process.join(_GRACE)
        reason = _death(one.process.exitcode)
    finally:
        one.connection.close()
        _stop(one.process)
    if one.process.exitcode is not None and seconds < timeout:
        reason = _death(one.process.exitcode)
    return Trial(one.name, stage="process", reason=reason, seconds=seconds, cpu=seconds)


def _death(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"its process ended with status {exitcode}"
    import signal

    name = signal.Signals(-exitcode).name
    cause = ", out of memory perhaps" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{cause}"


def _stop(process: BaseProcess) -> None:
    process.join(0.05)
    if process.is_alive():
        process.terminate()
        process.join(_GRACE)
    if process.is_alive():
        process.kill()
        process.join()
