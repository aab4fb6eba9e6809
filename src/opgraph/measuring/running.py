"""Running a step: plainly until the median is steady, for the time that it takes; under the profiler with
marks, for where the time goes. What the profiler adds is measured, and taken out."""

from __future__ import annotations

import gc
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import _disable_current_modes

from opgraph.measuring.marks import STEP, Marks
from opgraph.measuring.steps import Step
from opgraph.record import units
from opgraph.record.errors import TraceError
from opgraph.record.profile import ProfileRecord
from opgraph.record.run import RunEvent, RunRecord, median, uncertainty
from opgraph.record.turns import replaced, variables
from opgraph.tracing.base import uncommented

STEADY = 0.02
"""How far off the median of the steps may be, as a share of it, for it to be called steady."""
_WARM, _LEAST, _MOST = 2, 5, 1000
_PROFILED = 5
_SECONDS = 10.0
"""How long steps are repeated for at most, once there are the fewest that a median takes."""


@uncommented()
def measured(
    profile: ProfileRecord, step: Step, device: torch.device, steps: int | None = None
) -> RunRecord:
    """Run a step of the profile's model: `steps` times, or until the median is steady.

    Raises `TraceError` where a profiler of somebody's own is on.
    """
    if watched():
        raise TraceError(
            "a profiler is on, and torch has one at a time", hint="measure outside of it"
        )
    wait = waiting(device)
    marks = Marks(profile.graph, step.module)
    for _ in range(_WARM):
        step.ready(None)()
    wait()
    plain: list[float] = []
    traced: list[tuple[float, RunRecord]] = []
    begin = time.perf_counter()
    while True:
        plain.append(_timed(step.ready(None), wait))
        # Between plain steps, so that a machine that slows down or is shared slows down both alike.
        if len(traced) < _PROFILED and (steps is not None or len(plain) % 2 == 0):
            traced.append(Profiled(profile, marks, device).over(step.ready(marks)))
        spent = time.perf_counter() - begin
        if steps is not None:
            if len(plain) >= steps and traced:
                break
        elif len(plain) >= _LEAST and len(traced) >= 2 and (
            spent > 2 * _SECONDS
            or (len(traced) == _PROFILED and (uncertainty(plain) < STEADY or spent > _SECONDS))
            or len(plain) >= _MOST
        ):  # fmt: skip
            break
    looked = Profiled(profile, marks, device, memory=True).over(step.ready(marks))[1]
    found = replace(
        run_of(plain, traced, device, fixed=steps is not None),
        **_thinned(looked), held=looked.held, peak_nodes=looked.peak_nodes,
    )  # fmt: skip
    shared = (
        f"an argument cannot be copied ({cls.__qualname__}): each step gets it as the last one has left it"
        for cls in sorted(step.shared, key=attrgetter("__qualname__"))
    )
    return replace(found, notes=(*found.notes, *run_otherwise(profile, step.module), *shared))


def watched() -> bool:
    """Whether a profiler of torch is on, or waits for a step to start at: to start another ends it."""
    return bool(torch.autograd._profiler_enabled()) or any(
        type(item) is _profiler.profile and item.entered and item.kineto_results is None
        for item in gc.get_objects()
    )


_profiler: Any = torch.autograd.profiler
_STARTS = ("_prepare_profiler", "_run_on_profiler_start")
"""What torch calls where a profiler is about to start."""


def run_otherwise(profile: ProfileRecord, module: torch.nn.Module) -> Iterator[str]:
    """What plain steps of a model run that those under the profiler do not."""
    if profile.mode != "train" and _takes_shortcuts(module):
        yield (
            "where nothing looks on, torch runs some layers of this model by one kernel each: so the plain "
            "steps did, and the graph and the steps under the profiler have their operators"
        )
    if any(m._compiled_call_impl is not None or hasattr(m, "_orig_mod") for m in module.modules()):
        yield (
            "plain steps ran what is compiled of this model, and those under the profiler its operators, "
            "as the graph has them"
        )


def _takes_shortcuts(module: torch.nn.Module) -> bool:
    """Whether a model has layers for which torch has a fused path that no graph sees."""
    fused = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer)
    return torch.backends.mha.get_fastpath_enabled() and any(
        isinstance(m, fused) for m in module.modules()
    )


def run_of(
    plain: Sequence[float],
    traced: Sequence[tuple[float, RunRecord]],
    device: torch.device,
    *,
    fixed: bool = False,
) -> RunRecord:
    """The record of some plain steps and some under the profiler. Unless their number was `fixed`, it is
    said where the median is not steady."""
    notes = []
    if not fixed and (off := uncertainty(plain)) > STEADY:
        notes.append(
            f"the median of {units.plural(len(plain), 'step')} is not steady (± {units.percent(off)}): "
            "other work on this machine, perhaps"
        )
    found = together([run for _, run in traced], plain, [taken for taken, _ in traced], _cost())
    return replace(
        found,
        device=device.type if device.index is None else str(device),
        device_name=device_name(device),
        threads=torch.get_num_threads() if device.type == "cpu" else 0,
        notes=(*found.notes, *notes),
        versions={"torch": torch.__version__},
    )


def device_name(device: torch.device) -> str:
    """What a device calls itself."""
    if device.type != "cpu":
        return str(getattr(torch, device.type).get_device_name(device))
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        return next(n.partition(":")[2].strip() for n in lines if n.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _timed(run: Callable[[], Any], wait: Callable[[], object]) -> float:
    wait()
    begin = time.perf_counter()
    result = run()
    wait()
    seconds = time.perf_counter() - begin
    del result  # what it takes to free a result is no part of making it
    return seconds


class Profiled:
    """A step under the profiler, with marks: from `begin` to `end`, which gives its seconds and its run;
    none where somebody has started a profiler meanwhile, before which this one ends. What is allocated is
    written down where `memory` is asked for, which slows it down."""

    def __init__(
        self, profile: ProfileRecord, marks: Marks, device: torch.device, *, memory: bool = False
    ) -> None:
        self._memory = memory
        self._profile, self._marks, self._device = profile, marks, device
        self._wait = waiting(device)
        self._stack = ExitStack()
        self._start = 0.0
        self._ended = False

    def over(self, run: Callable[[], Any]) -> tuple[float, RunRecord]:
        """What a step takes, from its beginning to its end."""
        with self._stack:  # if it fails, too
            self.begin()
            run()
            found = self.end()
        if found is None:
            raise TraceError("a profiler was started within a step, and torch has one at a time")
        return found

    def begin(self) -> None:
        """From here on the step runs."""
        with ExitStack() as stack:
            self._profiler = stack.enter_context(profiled(self._device, memory=self._memory))
            stack.enter_context(self._marks.step())
            self._wait()
            stack.enter_context(
                _RecordFunctionFast(f"{STEP}1")
            )  # no operator, that others would trace
            for name in _STARTS:
                stack.enter_context(replaced(_profiler, name, self._over(getattr(_profiler, name))))
            self._stack.push(stack.pop_all())
        self._start = time.perf_counter()

    def _over(self, starts: Callable[..., Any]) -> Callable[..., Any]:
        """What starts another profiler, once this one has ended."""

        def started(*args: Any, **kwargs: Any) -> Any:
            self._ended = True
            self._stack.close()
            return starts(*args, **kwargs)

        return started

    def leave(self) -> None:
        """Look no more at the step, whose run is not asked for."""
        self._stack.close()

    def end(self) -> tuple[float, RunRecord] | None:
        """The step has run."""
        from opgraph.traces import joined

        if self._ended:
            return None
        with self._stack:
            self._wait()
            seconds = time.perf_counter() - self._start
        with tempfile.TemporaryDirectory(prefix="opgraph-") as folder:
            file = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(file))
            return seconds, joined(self._profile, file)


def _thinned(run: RunRecord) -> dict[str, Any]:
    """At most so many moments of its memory, the highest of each stretch, and their nodes."""
    rows = list(zip(run.memory, run.memory_nodes, strict=True))
    size = -(-len(rows) // _MOMENTS) or 1
    stretches = (rows[at : at + size] for at in range(0, len(rows), size))
    highest = [max(stretch, key=lambda row: row[0][1]) for stretch in stretches]
    return {"memory": tuple(m for m, _ in highest), "memory_nodes": tuple(n for _, n in highest)}


_MOMENTS = 1_000


@contextmanager
def profiled(device: torch.device, *, memory: bool = False) -> Iterator[Any]:
    """Within, the profiler of torch is on, for the host and the device."""
    kinds = {"cuda": ProfilerActivity.CUDA, "xpu": ProfilerActivity.XPU}
    activities = [ProfilerActivity.CPU, *filter(None, [kinds.get(device.type)])]
    level = os.environ.get("KINETO_LOG_LEVEL", "9")  # it says on stderr that it starts and stops
    with variables(KINETO_LOG_LEVEL=level):
        found = profile(activities=activities, profile_memory=memory).__enter__()
    with ExitStack() as stack:
        stack.push(found)
        yield found


def waiting(device: torch.device) -> Callable[[], object]:
    """What waits until a device has done all that was launched on it."""
    if device.type == "cpu":
        return lambda: None
    return getattr(torch, device.type).synchronize  # type: ignore[no-any-return]


def _cost() -> float:
    """Seconds that the profiler adds to an operator that it writes down: of many that have nothing to do,
    the quickest of several times."""
    if watched():
        raise TraceError(
            "what was measured is told without what a profiler takes: one that is on would end with that",
            hint="look before it, or behind it",
        )
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        return _cost_of_profiling()


def _cost_of_profiling() -> float:
    x = torch.ones(1)

    def many() -> float:
        begin = time.perf_counter()
        for _ in range(_OPERATORS):
            x.add_(1)
        return time.perf_counter() - begin

    with torch.no_grad():
        plain = min(many() for _ in range(5))
        with profile(activities=[ProfilerActivity.CPU]):
            noted = min(many() for _ in range(5))
    return max(noted - plain, 0.0) / _OPERATORS


_OPERATORS = 500


def together(
    runs: Sequence[RunRecord], plain: Sequence[float], profiled: Sequence[float], cost: float
) -> RunRecord:
    """One run of several of the same step: the median of each event, without what the profiler added.

    Of operators that is `cost` seconds each; the Python between them, where marks are made, is what is left
    of a plain step beside its operators. Times on an accelerator are its own, and stay.
    """
    found: dict[RunEvent, list[RunEvent]] = {}
    for run in runs:
        for event in run.events:
            found.setdefault(replace(event, seconds=0.0, count=1), []).append(event)
    events = [_middle(same, len(runs), cost) for same in found.values()]
    seconds = median(plain)
    first = min(zip(profiled, range(len(runs)), strict=True))[1]
    if not runs[0].accelerated:
        worked = sum(e.seconds for e in events if e.kind == "operator")
        between = sum(e.seconds for e in events if e.kind == "python")
        share = max(seconds - worked, 0.0) / between if between else 0.0
        events = [
            replace(e, seconds=e.seconds * share) if e.kind == "python" else e for e in events
        ]
    position = {key: at for at, key in enumerate(found)}
    shown = runs[first]
    moved = [position[replace(e, seconds=0.0, count=1)] for e in shown.events]
    return replace(
        shown,
        source="measure",
        events=tuple(events),
        timeline=tuple(replace(s, event=moved[s.event]) for s in shown.timeline),
        repeats=tuple(plain),
        profiled=tuple(profiled),
        overhead=max(median(profiled) - seconds, 0.0),
    )


def _middle(same: Sequence[RunEvent], runs: int, cost: float) -> RunEvent:
    """The median of an event over all runs, some of which may not have it."""
    absent = [0.0] * (runs - len(same))
    seconds = median([*absent, *(e.seconds for e in same)])
    count = round(median([*absent, *(float(e.count) for e in same)]))
    if same[0].kind == "operator":
        seconds = max(seconds - cost * count, 0.0)
    return replace(same[0], seconds=seconds, count=count)
