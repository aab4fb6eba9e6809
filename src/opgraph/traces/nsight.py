"""Reading what Nsight Systems exports as sqlite: kernels, copies, launches, and the NVTX ranges that
`torch.autograd.profiler.emit_nvtx(record_shapes=True)` or marks of one's own put around operators."""

from __future__ import annotations

import ast
import re
import sqlite3
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


def read_sqlite(path: Path) -> Trace:
    """Read one export. Raises `ProfileError` where it is none of Nsight Systems', or is broken."""
    trace = Trace(device="cuda", source="Nsight Systems")
    try:
        # A file with a log beside it may only be read whole; nothing is written in any case.
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            _fill(trace, connection)
        finally:
            connection.close()
    except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
        raise ProfileError(
            f"{path} is not an export of Nsight Systems, or is broken: {error}"
        ) from error
    if not trace.work:
        raise ProfileError(f"{path} has no kernels of CUDA: is it an export of Nsight Systems?",
                           hint="nsys export --type sqlite report.nsys-rep")  # fmt: skip
    return trace


def _fill(trace: Trace, connection: sqlite3.Connection) -> None:
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

    def kernel(name: Any) -> str:
        return texts.get(name, "") if isinstance(name, int) else str(name or "")

    for start, end, stream, correlation, demangled, short in rows(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "start", "end", "streamId", "correlationId", "demangledName", "shortName",
    ):  # fmt: skip
        name = kernel(demangled) or kernel(short)
        kind: WorkKind = "communication" if COMMUNICATION.search(name) else "kernel"
        trace.work.append(_work(name, start, end, stream, correlation, kind))
    moves: tuple[tuple[str, str, WorkKind], ...] = (
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "Memcpy", "copy"),
        ("CUPTI_ACTIVITY_KIND_MEMSET", "Memset", "set"),
    )
    for table, name, kind in moves:
        for start, end, stream, correlation in rows(
            table, "start", "end", "streamId", "correlationId"
        ):
            trace.work.append(_work(name, start, end, stream, correlation, kind))
    for start, end, thread, correlation, name in rows(
        "CUPTI_ACTIVITY_KIND_RUNTIME", "start", "end", "globalTid", "correlationId", "nameId"
    ):
        if correlation is not None:
            trace.launches[int(correlation)] = Launch(
                start / 1e3, end / 1e3, thread or 0, None, kernel(name)
            )
    if "NVTX_EVENTS" in tables:
        for start, end, thread, text, named, event in rows(
            "NVTX_EVENTS", "start", "end", "globalTid", "text", "textId", "eventType"
        ):
            if event in _RANGES and start is not None and end is not None:
                trace.calls.append(
                    _call(str(text or texts.get(named, "")), start, end, thread or 0)
                )
    for (name,) in rows("TARGET_INFO_GPU", "name"):
        trace.device_name = str(name or "")[:200]
        break


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
