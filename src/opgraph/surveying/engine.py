"""The driver: groups of cases through the workers of Ray, here or on a cluster, and what comes back into a
dataset.

The driver alone writes, so whatever dies writes nothing. A group whose worker died goes on as its single
cases, each a few times: what kills its worker each time is a row that says so, and what was killed by
something else gets its figures. The driver holds the groups that are under way and nothing else, however
many cases there are."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from traceback import walk_tb
from typing import Any

from opgraph.record import units
from opgraph.record.errors import InputError, MissingDependency
from opgraph.record.versions import require_torch
from opgraph.surveying.cases import Case, Group
from opgraph.surveying.dataset import Dataset, Stages
from opgraph.surveying.worker import Found, Task, empty_row, work

TRIES = 3
"""How often a single case may take its worker with it."""
STARTS = 4
"""How often Ray is started here: it waits half a minute for its own processes, too short on a machine that
has much to do."""
AHEAD = 2
"""Groups under way for each worker: one that is worked on, and what it goes on with."""
GROUPS_OF_A_WORKER = 40
"""Groups after which a worker makes way for a fresh one: libraries keep what they have built."""
_STORE = 100 * 2**20
"""Bytes of Ray's object store here: groups come back in it, and graphs if they are kept."""
MOVES = 10
"""How often a machine may die under it: machines die of other things, too."""
_DEATHS = {
    "OutOfMemoryError": "its machine ran out of memory, and its worker was ended",
    "WorkerCrashedError": "its worker died, of memory or time perhaps",
}

Rate = Callable[["Progress"], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """How many cases at a time (all processors if not given), and what one may take: seconds and bytes.
    `address` is that of a Ray cluster; without it Ray is started on this machine for the time of the
    survey."""

    jobs: int | None = None
    timeout: float = 300.0
    memory: int | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a survey is: cases `done` of so many, of which some were there `before`, and the seconds
    since."""

    done: int
    of: int
    before: int
    failed: int
    seconds: float

    @property
    def rate(self) -> float:
        """Cases a second."""
        return (self.done - self.before) / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        left = (self.of - self.done) / self.rate if self.rate else None
        rest = "" if left is None else f", {self.rate:.1f} a second, {units.seconds(left)} left"
        return f"{self.done:,} of {units.plural(self.of, 'case')}, {self.failed:,} without a result{rest}"


@dataclass(slots=True)
class _Work:
    """A group, what is missing of it, the cases that have to be worked on for that, and what has come back,
    by the first case of each part."""

    group: Group
    figures: bool
    stages: Stages
    keep: frozenset[str]
    cases: tuple[Case, ...] = ()
    parts: dict[str, Found] = field(default_factory=dict)
    back: int = 0


@dataclass(slots=True)
class _Try:
    work: _Work
    task: Task
    tries: int = 1
    moves: int = 1


def run(dataset: Dataset, limits: Limits, tell: Rate = lambda _: None) -> None:
    """Bring a dataset to its end. Raises `MissingDependency` without Ray, `InputError` where no machine has
    the memory that is asked for, `RenderError` where the dataset cannot be written."""
    ray = _ray()
    start, of, failed = time.monotonic(), len(dataset.plan), 0
    groups = dataset.plan.groups()
    first, before = _first(dataset, groups)
    done = before
    tell(Progress(done, of, before, failed, 0.0))
    if first is None:
        return
    # Ray prints of workers that die what their rows say.
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        _cluster(ray, limits) as slots,
    ):
        remote = ray.remote(num_cpus=1, max_retries=0, max_calls=GROUPS_OF_A_WORKER)(work)
        more = {} if limits.memory is None else {"memory": limits.memory}
        under_way: dict[Any, _Try] = {}

        def start_one(one: _Try) -> None:
            under_way[remote.options(name=_label(one), **more).remote(one.task)] = one

        waiting: _Work | None = first
        while waiting is not None or under_way:
            while waiting is not None and len(under_way) < AHEAD * slots:
                start_one(_Try(waiting, _task(dataset, waiting, limits)))
                waiting, there = _first(dataset, groups)
                before, done = before + there, done + there
            ready, _ = ray.wait(list(under_way), timeout=1.0)
            for reference in ready:
                one = under_way.pop(reference)
                found = _found(ray, reference, one)
                if not isinstance(found, Found):
                    for each in found:
                        start_one(each)
                    continue
                w = one.work
                w.parts[one.task.cases[0].key] = found
                w.back += len(one.task.cases) - found.left
                if found.left:
                    start_one(_of(one, one.task.cases[-found.left :]))
                if w.back < len(w.cases):
                    continue
                dataset.write(w.group, whole := _together(w), w.figures, w.stages, w.keep)
                done += len(w.group.cases)
                failed += sum(not row["ok"] for row in whole.tables["cases"])
            tell(Progress(done, of, before, failed, time.monotonic() - start))


def _label(one: _Try) -> str:
    """What Ray's dashboard calls a task."""
    cases = one.task.cases
    more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
    return f"{one.work.group.source or 'unknown'}: {cases[0].spec:.60}{more}"


def _first(dataset: Dataset, groups: Iterator[Group]) -> tuple[_Work | None, int]:
    """The next group of which something is missing, and the cases before it of which nothing is. Where
    figures are there, a case without any has nothing to be costed or kept."""
    there = 0
    for group in groups:
        missing = dataset.missing(group)
        if missing is not None:
            work = _Work(group, *missing)
            without = frozenset() if work.figures else dataset.failed(group)
            work.cases = tuple(case for case in group.cases if case.key not in without)
            if work.cases:
                return work, there
            dataset.write(group, _nothing(work), work.figures, work.stages, work.keep)
        there += len(group.cases)
    return None, there


def _task(dataset: Dataset, work: _Work, limits: Limits) -> Task:
    graphs = dataset.graphs(work.group)
    if work.figures or any(case.key not in graphs for case in work.cases):
        require_torch()
    return Task(work.cases, work.figures, work.stages, work.keep, graphs,
                limits.timeout, limits.memory, str(Path.cwd()), dataset.plan.derive)  # fmt: skip


def _found(ray: Any, reference: Any, one: _Try) -> Found | list[_Try]:
    """What a worker found. Of a group whose worker died, its single cases; of a case that it died of
    once more, or what is said of one that has been tried too often. What a worker raised is a mistake
    of opgraph's own, and is raised here, too."""
    try:
        found: Found = ray.get(reference)
        return found
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        death = _DEATHS.get(type(error).__name__)
    if death is None and one.moves < MOVES:
        _require_nodes(ray)
        return [replace(one, moves=one.moves + 1)]
    cases = one.task.cases
    if len(cases) > 1:
        return [_of(one, (case,)) for case in cases]
    if death is not None and one.tries < TRIES:
        return [replace(one, tries=one.tries + 1)]
    said = f"{death}, {TRIES} times" if death else f"its machine died, {MOVES} times"
    row, nothing = empty_row(cases[0], said, "process"), _nothing(one.work)
    return replace(nothing, tables={**nothing.tables, "cases": [row] if one.work.figures else []})


def _require_nodes(ray: Any) -> None:
    """Wait until a machine that died is known to be dead. Raises `InputError` where none is left."""
    time.sleep(_NOTICED)
    try:
        alive = any(node["Alive"] and node["Resources"].get("CPU") for node in ray.nodes())
    except Exception as error:  # whatever it raises without a cluster
        raise InputError(GONE, hint=_AGAIN) from error
    if not alive:
        raise InputError(GONE, hint=_AGAIN)


GONE = "the Ray cluster is gone"
_AGAIN = "the same command goes on where this one was, once there is one"
_NOTICED = 2.0
"""Seconds in which a cluster notices that a machine is gone."""


def _of(one: _Try, cases: tuple[Case, ...]) -> _Try:
    """The same for some of its cases."""
    graphs = {c.key: one.task.graphs[c.key] for c in cases if c.key in one.task.graphs}
    return _Try(one.work, replace(one.task, cases=cases, graphs=graphs))


def _nothing(work: _Work) -> Found:
    return Found({"cases": [], "kernels": [], "modules": []}, tuple([] for _ in work.stages))


def _together(work: _Work) -> Found:
    """What was found of the parts of a group, in the order of its cases."""
    parts = [work.parts[case.key] for case in work.cases if case.key in work.parts]
    return Found(
        {table: [row for part in parts for row in part.tables[table]] for table in parts[0].tables},
        tuple([row for part in parts for row in part.times[i]] for i in range(len(work.stages))),
        {key: graph for part in parts for key, graph in part.graphs.items()},
    )


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingDependency("ray", "survey") from None
    return ray


def _end_half_started(error: Exception) -> None:
    """End the processes of a node that did not come up: Ray leaves them until this process ends, and they
    take from the next start what it lacked. The node is among the names where it was raised."""
    for frame, _ in walk_tb(error.__traceback__):
        end = getattr(frame.f_locals.get("self"), "kill_all_processes", None)
        if end is not None:
            end(check_alive=False)


@contextmanager
def _cluster(ray: Any, limits: Limits) -> Iterator[int]:
    """How many cases can be worked on at a time, by the cluster at an address or by one that is started
    here and ended afterwards."""
    logs = None
    quiet = {"logging_level": "ERROR", "log_to_driver": False, "configure_logging": True}
    if limits.address is not None:
        try:
            ray.init(address=limits.address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(f"there is no Ray cluster at {limits.address:.80}: {error!s:.200}",
                             hint="ray start --head says its address") from error  # fmt: skip
    else:
        logs = tempfile.mkdtemp(prefix="opgraph-")
        own = {"num_cpus": limits.jobs or os.cpu_count() or 1, "include_dashboard": False,
               "object_store_memory": _STORE, "_temp_dir": logs,
               "_node_ip_address": "127.0.0.1"}  # fmt: skip
        for left in range(STARTS - 1, -1, -1):
            try:
                ray.init(address="local", **own, **quiet)
                break
            except Exception as error:
                _end_half_started(error)
                ray.shutdown()
                if not left:
                    shutil.rmtree(logs, ignore_errors=True)
                    raise InputError(f"Ray does not start here: {error!s:.200}",
                                     hint="the machine may have too much to do") from error  # fmt: skip
    try:
        there = ray.cluster_resources()
        memory = max((n["Resources"].get("memory", 0) for n in ray.nodes()), default=0)
        if limits.memory is not None and limits.memory > memory:
            raise InputError(
                f"no machine has {units.size(limits.memory)} for a case: the largest gives "
                f"{units.size(int(memory))}",
                hint="a lower --memory-limit",
            )
        slots = int(there.get("CPU", 1))
        yield max(1, slots if limits.jobs is None else min(slots, limits.jobs))
    finally:
        ray.shutdown()
        if logs is not None:
            shutil.rmtree(logs, ignore_errors=True)
