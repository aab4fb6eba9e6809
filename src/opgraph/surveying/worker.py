"""What a worker does with a group of cases: trace each, or read its saved graph, cost it on devices,
and hand back rows. Where graphs are saved, nothing here imports torch.

A worker is a process of Ray's that many groups go through, one case at a time. A case that takes too
long is ended by an alarm, and where no Python runs that could hear it the process ends itself; one that
wants too much memory is refused it. What a dead worker had is somebody else's to do again (see
`engine`)."""

from __future__ import annotations

import faulthandler
import gc
import gzip
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opgraph.record.errors import InputError, OpgraphError, first_line
from opgraph.record.turns import uncollected
from opgraph.surveying.cases import Case

if TYPE_CHECKING:
    from opgraph.analysis.costed import CostedRecord
    from opgraph.record.profile import ProfileRecord
    from opgraph.sources.base import Model

OUT_OF_MEMORY = "it takes more memory than a case is allowed, on real tensors perhaps"
_GRACE = 20.0
"""Seconds after its time in which a case that does not hear the alarm may still end."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """Cases, and what is wanted of them: their rows (`figures`), rows of their time for each of `stages`
    (lists of devices that were asked for together), and what to `keep`: kernels, modules, graphs. `graphs`
    are those that are saved already, by case. A case may take `timeout` seconds and `memory` bytes.
    `folder` is where local files are looked for. Batches are worked out from others where they `derive`."""

    cases: tuple[Case, ...]
    figures: bool = True
    stages: tuple[tuple[str, ...], ...] = ()
    keep: frozenset[str] = frozenset()
    graphs: Mapping[str, bytes] = field(default_factory=dict)
    timeout: float = 300.0
    memory: int | None = None
    folder: str = ""
    derive: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What came of cases: rows of each table, rows of time by stage, and saved graphs by case. The last so
    many (`left`) of the task were not begun."""

    tables: Mapping[str, list[Row]]
    times: tuple[list[Row], ...] = ()
    graphs: Mapping[str, bytes] = field(default_factory=dict)
    left: int = 0


_spoiled = False
"""Whether this process takes no further case: an alarm went off in it, which may have stopped an import
half way, or its libraries keep too much of earlier cases."""
_begun = 0
"""Cases that this process has begun."""
_built: dict[str, Model] = {}
"""The model of the case before, by what it was built from: with other inputs it is traced as it is."""


def work(task: Task) -> Found:
    """Do what a task asks of every case of it, or of those up to one that takes too long, or for which
    there is too little room: this process takes no case after it, and ends when it is asked to."""
    from opgraph.analysis.costed import CostedRecord, costed

    global _spoiled, _begun
    if _spoiled:
        os._exit(1)
    with suppress(OSError):
        os.chdir(task.folder or ".")
    if task.folder and task.folder not in sys.path:
        sys.path.insert(0, task.folder)
    tables: dict[str, list[Row]] = {"cases": [], "kernels": [], "modules": []}
    times: tuple[list[Row], ...] = tuple([] for _ in task.stages)
    graphs: dict[str, bytes] = {}
    for done, case in enumerate(task.cases, start=1):
        if _begun and not _has_room(task.memory):
            _spoiled = True
            return Found(tables, times, graphs, left=len(task.cases) - done + 1)
        _begun += 1
        row, profile = _traced(case, task)
        if task.figures:
            tables["cases"].append(row)
        if _spoiled:
            return Found(tables, times, graphs, left=len(task.cases) - done)
        if profile is None:
            continue
        traced, shown = CostedRecord(profile), costed(profile, **case.kept)
        with uncollected():
            for devices, rows in zip(task.stages, times, strict=True):
                rows += [_time(case, traced, device) for device in devices]
        if "kernels" in task.keep:
            tables["kernels"] += _kernels(case, shown)
        if "modules" in task.keep:
            tables["modules"] += _modules(case, shown)
        if "graphs" in task.keep:
            graphs[case.key] = _packed(traced)
    return Found(tables, times, graphs)


def _has_room(memory: int | None) -> bool:
    """Whether this process is small enough for a case that is allowed so many bytes: what earlier ones left
    would be counted with it. Rubbish is thrown away first, where there is much."""
    if memory is None or (_resident("VmRSS:") or 0) < memory // 4:
        return True
    gc.collect()
    return (_resident("VmRSS:") or 0) < memory // 2


def empty_row(case: Case, reason: str, stage: str = "build") -> Row:
    """The row of a case of which nothing is known but why."""
    from opgraph.sources import known

    of = OPTION_COLUMNS
    name = case.spec.removeprefix(f"{case.source}:")
    facts = known.facts(case.source, name)
    more = {k: v for k, v in case.options.items() if k not in (*of, "memory_limit")}
    return {
        "id": case.key, "spec": case.spec, "name": name, "family": facts.family, "task": facts.task,
        "licence": facts.licence,
        **{n: _text(case.options.get(n)) if n not in _COUNTS else case.options.get(n) for n in of},
        "mode": case.options.get("mode", "infer"),
        "options": _text(more or None), "ok": False, "stage": stage, "reason": reason,
    }  # fmt: skip


OPTION_COLUMNS = ("mode", "target", "dtype", "batch_size", "seq_len", "image_size")
_COUNTS = ("batch_size", "seq_len")


def _text(value: Any) -> str | None:
    from opgraph.record import units

    if value is None or isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return units.shape(value)
    return str(value)


def _traced(case: Case, task: Task) -> tuple[Row, ProfileRecord | None]:
    """The row of a case, and its profile where it has one."""
    saved = None if task.figures else task.graphs.get(case.key)
    if saved is not None:
        from opgraph.record.loading import loaded

        with suppress(Exception):  # one that cannot be read is made anew
            return {}, loaded(gzip.decompress(saved))
    _preload(
        case.source
    )  # an alarm in the middle of that would leave modules that cannot be imported
    start, cpu = time.perf_counter(), time.process_time()
    row = empty_row(case, "")
    profile = None
    _forget_peak()
    try:
        with _limits(task.timeout, task.memory):
            profile = (_derived if task.derive else _profile)(case, row)
            row |= _figures(profile, case.kept)
    except _Late:
        pass
    except MemoryError:
        row["stage"], row["reason"] = "process", OUT_OF_MEMORY
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is the outcome
        memory = "DefaultCPUAllocator" in str(error)
        row["stage"] = "process" if memory else row["stage"]
        row["reason"] = OUT_OF_MEMORY if memory else first_line(error)
    if _spoiled:  # also where tracing took the alarm for an error of the model's
        row = empty_row(case, f"not done after {task.timeout:g} s", "process")
    row["seconds"] = round(time.perf_counter() - start, 3)
    row["cpu"] = round(time.process_time() - cpu, 3)
    row["memory"] = _resident("VmHWM:")
    return {} if saved is not None else row, profile if row["ok"] else None


def _profile(case: Case, row: Row) -> ProfileRecord:
    """Build a model, make its inputs and trace it; the row says how far it came."""
    import torch

    from opgraph.api.pipeline import profiled, resolved
    from opgraph.options import OPTIONS, Options, Stage

    torch.set_num_threads(1)
    options = Options(**case.traced)
    same = {n: v for n, v in case.traced.items() if OPTIONS[n].stage is not Stage.INPUTS}
    alike = replace(case, options=same).key
    model = _built.pop(alike, None)
    _built.clear()
    if model is None:
        model = resolved(case.spec, options)
    row |= {"stage": "trace", "class": model.info.cls}
    try:
        profile = profiled(model, options=options)
    except InputError:
        row["stage"] = "inputs"
        raise
    changed = any(getattr(note, "code", "") == "state" for note in profile.model.notes)
    if profile.graph.failed is None and not changed:  # else it may be half done, or another
        _built[alike] = model
    return profile


CHECKED = 16
"""One case of so many that could be derived is traced all the same, and has to come out alike."""
_ends: dict[tuple[str, str], dict[int, ProfileRecord]] = {}
"""What was traced of the model at hand, by batch."""


def _derived(case: Case, row: Row) -> ProfileRecord:
    """The profile of a case from those of its model at a smaller and a larger batch that were traced, or
    traced where that cannot be."""
    from opgraph.analysis.scaling.between import DERIVED, between
    from opgraph.analysis.timing.prediction import batch_of
    from opgraph.record.profile import Attempt

    batch = case.options.get("batch_size")
    options = {n: v for n, v in case.options.items() if n != "batch_size"}
    alike = case.spec, replace(case, options=options).key
    if all(spec != case.spec for spec, _ in _ends):
        _ends.clear()
    ends = _ends.setdefault(alike, {})
    least = max((n for n in ends if n < (batch or 0)), default=None)
    most = min((n for n in ends if n > (batch or n)), default=None)
    found = None
    if batch is not None and least is not None and most is not None:
        found = between(ends[least], ends[most], (least, most), batch)
    if found is not None and int(case.key, 16) % CHECKED:
        row["stage"] = "trace"
        return found
    profile = _profile(case, row)
    if found is not None and found.graph != profile.graph:
        ends.clear()
        wrong = Attempt(DERIVED, found.tracing.tensors, "tracing found another graph")
        attempts = (wrong, *profile.tracing.attempts)
        return replace(profile, tracing=replace(profile.tracing, attempts=attempts))
    traced = batch_of(profile.graph)
    if profile.graph.failed is None and batch in (None, traced):
        ends[traced] = profile
    return profile


def _figures(profile: ProfileRecord, kept: Mapping[str, Any]) -> Row:
    """What the row of a case that was traced says."""
    from opgraph.analysis.costed import costed
    from opgraph.analysis.fusion.partition import fused_subgraphs
    from opgraph.analysis.quantities import QUANTITIES
    from opgraph.record import units

    plain = costed(profile, **kept)
    graph = plain.graph
    found: Row = {
        "tracer": profile.tracing.tracer,
        "tensors": profile.tracing.tensors,
        "class": profile.model.cls,
        "remarks": [r.text for r in plain.remarks],
        "failures": [f"{a.tracer} on {a.tensors} tensors: {a.error}"
                     for a in profile.tracing.attempts[:-1]],
        "versions": ", ".join(f"{n} {v}" for n, v in profile.versions.items()),
        "inputs": " ".join(f"{v.name}={units.shape(v.shape)}"
                           for v in (graph.value[i] for i in graph.inputs)),
    }  # fmt: skip
    if graph.failed is not None:
        return {**found, "reason": f"{graph.failed.error}{profile.untried}"}
    parted = sorted(i for part in fused_subgraphs(graph) for i in part.nodes)
    if parted != [n.id for n in graph.nodes]:
        return {**found, "reason": "its subgraphs do not have every node exactly once"}
    return {**found, **{q.name: q.of(plain) for q in QUANTITIES},
            "dtype": plain.main_dtype, "ok": True, "reason": None}  # fmt: skip


def _time(case: Case, costed: CostedRecord, device: str) -> Row:
    """The row of a case on a device."""
    from opgraph.analysis.quantities import TIMED
    from opgraph.surveying.sql import COLUMNS

    row: Row = {"id": case.key, "device": device}
    try:
        on = costed.beside(device, **case.kept)
        low, high = (None, None) if on.prediction is None else on.prediction.interval
        bound = on.bound
        return row | {
            **{q.name: q.of(on) for q in TIMED if q.name in COLUMNS["times"]},
            "low": low, "high": high, "bottleneck": None if bound is None else bound.value,
            "fits": on.fits, "joules": None if on.energy is None else on.energy.joules,
        }  # fmt: skip
    except OpgraphError as error:
        return row | {"reason": first_line(error)}


def _kernels(case: Case, costed: CostedRecord) -> Iterator[Row]:
    """The distinct kernels of a case, and how often each runs."""
    found = Counter(k for node in costed.graph.nodes for k in node.kernels)
    for k, count in found.items():
        yield {
            "id": case.key, "kernel": k.op, "category": k.category, "dtype": k.dtype,
            "shapes": _shapes(k.shapes), "out_shapes": _shapes(k.out_shapes), "cost": k.cost,
            "flops": k.flops, "other_flops": k.other_flops, "bytes_read": k.read,
            "bytes_written": k.written, "count": count,
        }  # fmt: skip


def _shapes(shapes: tuple[Any, ...]) -> str:
    return " ".join(_text(tuple(shape)) or "()" for shape in shapes)


def _modules(case: Case, costed: CostedRecord) -> Iterator[Row]:
    """The modules of a case by path, each with all that is below it."""
    for m in costed.module_tree.walk():
        yield {
            "id": case.key, "module": m.path, "class": m.cls, "depth": m.depth, "calls": m.calls,
            "parameters": m.parameters, "flops": m.cost.flops, "other_flops": m.cost.other_flops,
            "bytes": m.cost.bytes,
        }  # fmt: skip


def _packed(costed: CostedRecord) -> bytes:
    from opgraph.views.files.json import to_json

    return gzip.compress(to_json(costed).encode("utf-8", "replace"), 6, mtime=0)


@cache
def _preload(source: str) -> None:
    """Import what all cases of a source want, as far as it is there: a case that wants more says so. The
    first trace of a process imports more, and is one of a model of nothing: no case is late for it."""
    from opgraph.sources.registry import libraries

    library = libraries().get(source)
    wanted = ["torch", "opgraph.api.pipeline", "opgraph.inputs", "opgraph.tracing.eager"]
    for module in (*wanted, *(() if library is None else library.modules)):
        with suppress(ImportError):
            import_module(module)
    with suppress(ImportError):
        import torch

        from opgraph.api.pipeline import profiled

        _figures(profiled(torch.nn.Identity(), torch.ones(1)), {})


# The limits of a case, in a process that goes on after it.


class _Late(BaseException):
    """The alarm; no `except Exception` of a model's takes it."""


@contextmanager
def _limits(seconds: float, memory: int | None) -> Iterator[None]:
    """Within, allocations beyond so many bytes of the process fail, and so many seconds later `_Late` is
    raised; a process that does not hear it ends."""

    running = True

    def late(*_: object) -> None:
        global _spoiled
        if running:
            _spoiled = True
            raise _Late

    alarm = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, late) if alarm else None
    nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - closed below
    faulthandler.dump_traceback_later(seconds + _GRACE, exit=True, file=nowhere)
    try:
        if alarm:
            signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # and again: C++ may drop it
        with _allowed(memory):
            yield
    finally:
        running = False
        if alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()
        nowhere.close()


@contextmanager
def _allowed(memory: int | None) -> Iterator[None]:
    try:
        import resource
    except ImportError:
        yield
        return
    if memory is None:
        yield
        return
    _give_back()
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _give_back() -> None:
    """Let freed memory go back to the system at once, so that the limit counts what is in use: otherwise
    the allocator keeps gigabytes that were weights for a moment and were never written."""
    import ctypes

    mmap_threshold, bytes_ = -3, 2**20
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(mmap_threshold, bytes_)


def _forget_peak() -> None:
    """Let the most memory that this process had begin anew, where the system can (`man
    proc_pid_clear_refs`)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _resident(what: str) -> int | None:
    """Bytes that this process has resident (VmRSS), or the most since then (VmHWM); None where the system
    does not say."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith(what)).split()[1]) * 1024
    return None
