"""One trial, in the process that was made for it."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from dataclasses import replace
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from opgraph.record.errors import first_line
from opgraph.survey.trial import Trial

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from opgraph.options import Options

OUT_OF_MEMORY = (
    "its path depends on values, and real tensors take more memory than a trial is allowed"
)


def main(connection: Connection, name: str, options: Options, memory: int | None) -> None:
    """Try a model and send the outcome; what libraries print goes nowhere."""
    silence()
    end_with_parent()
    limit_memory(memory)
    trial = attempt(name, options)
    connection.send(trial.to_dict())
    connection.close()


def attempt(name: str, options: Options) -> Trial:
    """Build a model, make its inputs, trace it, and see that its subgraphs have every node once."""
    start = time.perf_counter()
    trial = _stages(Trial(name), options)
    seconds = time.perf_counter() - start
    return replace(
        trial, seconds=round(seconds, 3), cpu=round(time.process_time(), 3), memory=_resident()
    )


def _stages(trial: Trial, options: Options) -> Trial:
    import torch

    from opgraph.analysis.cost.totals import totals
    from opgraph.analysis.fusion.partition import fused_subgraphs
    from opgraph.api.pipeline import profile_model
    from opgraph.inputs import make_inputs
    from opgraph.inputs.base import InputRequest
    from opgraph.sources import resolve
    from opgraph.sources.base import BuildOptions

    torch.set_num_threads(1)
    try:
        model = resolve(trial.name, BuildOptions.of(options))
        trial = replace(trial, stage="inputs", source=model.info.source, cls=model.info.cls)
        example = make_inputs(model, InputRequest.of(options))
        trial = replace(trial, stage="trace")
        profile = profile_model(model, example, options)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is the outcome
        if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
            return replace(trial, stage="process", reason=OUT_OF_MEMORY)
        return replace(trial, reason=first_line(error))
    found = totals(profile.graph)
    failed = profile.graph.failed
    parted = sorted(i for part in fused_subgraphs(profile.graph) for i in part.nodes)
    if parted != [n.id for n in profile.graph.nodes]:
        return replace(trial, reason="its subgraphs do not have every node exactly once")
    return replace(
        trial,
        ok=failed is None,
        reason=None if failed is None else failed.error,
        tracer=profile.tracing.tracer,
        tensors=profile.tracing.tensors,
        inputs=" ".join(
            f"{v.name}={'x'.join(map(str, v.shape))}"
            for v in (profile.graph.value[i] for i in profile.graph.inputs)
        ),
        nodes=len(profile.graph.nodes),
        parameters=found.parameters,
        flops=found.flops,
        coverage=found.coverage,
        notes=profile.model.notes,
        failures=tuple(
            f"{a.tracer} on {a.tensors} tensors: {a.error}" for a in profile.tracing.attempts[:-1]
        ),
    )


def silence() -> None:
    """Send everything that this process and its libraries print to nowhere."""
    sys.stdout.flush()
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def end_with_parent() -> None:
    """End this process when the one that asked for the trial is gone, even if it was killed."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def limit_memory(memory: int | None) -> None:
    """Let allocations beyond so many bytes fail in this process, where the system can do that."""
    if memory is None:
        return
    try:
        import resource
    except ImportError:
        return
    _give_back()
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def _give_back() -> None:
    """Let freed memory go back to the system at once, so that the limit counts what is in use: otherwise
    the allocator keeps gigabytes that were weights for a moment and were never written."""
    import ctypes

    mmap_threshold, bytes_ = -3, 2**20
    try:
        ctypes.CDLL(None).mallopt(mmap_threshold, bytes_)
    except (OSError, AttributeError, TypeError):
        return


def _resident() -> int:
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def preload(sources: frozenset[str]) -> list[str]:
    """The modules that the trials of these sources will want, to be imported once for all of them."""
    from opgraph.sources.registry import libraries

    wanted = ["torch", "opgraph.inputs", "opgraph.api.pipeline", "opgraph.tracing"]
    for source, library in libraries().items():
        if source in sources:
            wanted += library.modules
    return list(dict.fromkeys([*wanted, "opgraph.sources.building", __name__]))
