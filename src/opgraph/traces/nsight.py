"""Reading what Nsight Systems exports as sqlite: kernels, copies, launches, and the NVTX ranges that
`torch.autograd.profiler.emit_nvtx(record_shapes=True)` or marks of one's own put around operators."""

from __future__ import annotations

import ast
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opgraph.record.errors import ProfileError
from opgraph.traces.events import (
    COMMUNICATION,
    Call,
    Launch,
    Shapes,
    Trace,
    Work,
    WorkKind,
    kind_of,
    tensors,
)

_RANGES = (59, 60)
"""NVTX's event types of push-pop and start-end ranges on a thread."""
_SEQUENCE = re.compile(r", seq = (\d{1,18})")
_SIZES = re.compile(r", (?:input_)?sizes = (\[.*\])")
_LONGEST = 1_000_000


_THREAD_BITS = 24
"""The lower bits of a `globalTid` are the thread; what is above them is the process, as in `globalPid`."""

_Device = tuple[int | None, int]


def read_sqlite(path: Path) -> list[Trace]:
    """Read one export: a trace for each device of each process, which are its ranks. Raises `ProfileError`
    where it is none of Nsight Systems', or is broken."""
    try:
        # A file with a log beside it may only be read whole; nothing is written in any case.
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            found = _traces(connection)
        finally:
            connection.close()
    except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
        raise ProfileError(
            f"{path} is not an export of Nsight Systems, or is broken: {error}"
        ) from error
    if not found:
        raise ProfileError(f"{path} has no kernels of CUDA: is it an export of Nsight Systems?",
                           hint="nsys export --type sqlite report.nsys-rep")  # fmt: skip
    return found


def _traces(connection: sqlite3.Connection) -> list[Trace]:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}

    def columns(table: str) -> set[str]:
        return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}

    def rows(table: str, *wanted: str) -> Iterator[tuple[Any, ...]]:
        """What some columns hold, None for those that this version has not."""
        if table not in tables:
            return iter(())
        had = columns(table)
        asked = ", ".join(c if c in had else "NULL" for c in wanted)
        return connection.execute(f"SELECT {asked} FROM {table}")

    texts: dict[int, str] = dict(rows("StringIds", "id", "value"))

    def text(name: Any) -> str:
        return texts.get(name, "") if isinstance(name, int) else str(name or "")

    where = ("start", "end", "streamId", "correlationId", "globalPid", "deviceId")
    work: dict[_Device, list[Work]] = defaultdict(list)

    def add(name: str, kind: WorkKind, start: int, end: int, stream: Any, number: Any,
            process: Any, device: Any) -> None:  # fmt: skip
        at = (None if process is None else int(process) >> _THREAD_BITS, int(device or 0))
        work[at].append(_work(name, start, end, stream, number, kind))

    for demangled, short, *row in rows(
        "CUPTI_ACTIVITY_KIND_KERNEL", "demangledName", "shortName", *where
    ):
        name = text(demangled) or text(short)
        add(name, "communication" if COMMUNICATION.search(name) else "kernel", *row)
    ways = dict(rows("ENUM_CUDA_MEMCPY_OPER", "id", "label"))
    for way, *moved in rows("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind", *where):
        add(f"Memcpy {ways.get(way) or ''}".strip(), "copy", *moved)
    for filled in rows("CUPTI_ACTIVITY_KIND_MEMSET", *where):
        add("Memset", "set", *filled)
    launches: dict[int, dict[int, Launch]] = defaultdict(dict)
    for start, end, thread, number, named in rows(
        "CUPTI_ACTIVITY_KIND_RUNTIME", "start", "end", "globalTid", "correlationId", "nameId"
    ):
        if number is not None:
            launches[(thread or 0) >> _THREAD_BITS][int(number)] = Launch(
                start / 1e3, end / 1e3, thread or 0, None, text(named)
            )
    calls: dict[int, list[Call]] = defaultdict(list)
    for start, end, thread, words, named, event in rows(
        "NVTX_EVENTS", "start", "end", "globalTid", "text", "textId", "eventType"
    ):
        if event in _RANGES and start is not None and end is not None:
            calls[(thread or 0) >> _THREAD_BITS].append(
                _call(str(words or texts.get(named, "")), start, end, thread or 0)
            )
    names = {
        int(i or 0): str(name or "")[:200] for i, name in rows("TARGET_INFO_GPU", "id", "name")
    }
    found: list[Trace] = []
    for process, device in sorted(work, key=lambda at: (at[1], at[0] or 0)):
        # An old version does not say whose a kernel is: then there is one process.
        own = {*launches, *calls} if process is None else {process}
        found.append(Trace(
            len(found), "cuda", names.get(device) or next(iter(names.values()), ""), "Nsight Systems",
            "one session",
            [call for one in own for call in calls.get(one, ())],
            {n: launch for one in own for n, launch in launches.get(one, {}).items()},
            work[process, device],
        ))  # fmt: skip
    return found


def _work(name: str, start: int, end: int, stream: Any, correlation: Any, kind: WorkKind) -> Work:
    seconds = max(0, int(end) - int(start)) * 1e-9
    number = None if correlation is None else int(correlation)
    return Work(name, int(start) / 1e3, seconds, int(stream or 0), kind, number)


def _call(text: str, start: int, end: int, thread: int) -> Call:
    """A range: an operator with its sequence number and sizes, as torch writes them, or a mark."""
    name = text.partition(", seq = ")[0].partition(", op_id = ")[0].partition(", sizes = ")[0]
    sequence, sizes = _SEQUENCE.search(text), _SIZES.search(text)
    return Call(
        name, start / 1e3, end / 1e3, thread, kind_of(name),
        _shapes(sizes[1]) if sizes and len(sizes[1]) < _LONGEST else None, None,
        int(sequence[1]) if sequence else None,
    )  # fmt: skip


def _shapes(text: str) -> Shapes | None:
    try:
        return tuple(tensors(ast.literal_eval(text.partition(", input_op_ids")[0])))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
