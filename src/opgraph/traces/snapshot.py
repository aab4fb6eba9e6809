"""Reading what `torch.cuda.memory._dump_snapshot` writes: every block that the caching allocator handed out
and took back, with the stack that asked for it. The file is a pickle; only plain containers, numbers and
texts are made of it, and nothing in it is ever called."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from opgraph.record.errors import ProfileError
from opgraph.traces.events import Allocation, Trace

_OPERATOR = re.compile(r"^at::_ops::(\w+)::(?:call|redispatch)\b")
"""A frame of ATen's dispatcher, which names an operator."""
_LARGEST = 2**63


class _Plain(pickle.Unpickler):
    """An unpickler of containers, numbers and texts."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it wants {module}.{name}, and only plain data is read")


def read_snapshot(path: Path) -> list[Trace]:
    """Read one snapshot: a trace of allocations for each device that has any.

    Raises `ProfileError` where it is none, is broken, or wants anything but plain data.
    """
    try:
        with path.open("rb") as file:
            data = _Plain(file).load()
        # A list in a pickle may stand in it many times: no honest file has more entries than bytes.
        budget = iter(range(path.stat().st_size))
        rows = [
            row for device, entries in enumerate(data["device_traces"])
            if (row := _trace(device, entries, data["segments"], budget)).memory
        ]  # fmt: skip
    except OSError:
        raise
    except Exception as error:  # a hostile pickle ends in any of a dozen
        what = str(error) or type(error).__name__
        raise ProfileError(
            f"{path} is not a snapshot of torch.cuda.memory, or is broken: {what}"
        ) from error
    if not rows:
        raise ProfileError(f"{path} has no allocation: nothing was recorded",
                           hint="torch.cuda.memory._record_memory_history() before the step")  # fmt: skip
    return rows


def _within(rows: Any, budget: Iterator[int]) -> Iterator[Any]:
    for row in rows:
        if next(budget, None) is None:
            raise ValueError("it has more entries than bytes")
        yield row


def _trace(device: int, entries: Any, segments: Any, budget: Iterator[int]) -> Trace:
    trace = Trace(rank=device, device="cuda", source="torch.cuda.memory")
    live: dict[int, int] = {}
    stacks: dict[int, tuple[str, ...]] = {}
    before = 0
    for seen, entry in enumerate(_within(entries, budget)):
        action = entry["action"]
        if action not in ("alloc", "free_completed"):
            continue
        at, address, size = entry.get("time_us", seen), entry["addr"], entry["size"]
        if not all(isinstance(n, int) and 0 <= n < _LARGEST for n in (at, address, size)):
            raise ValueError("an allocation has no time, address or size")
        if action == "alloc":
            live[address] = size
        elif address in live:
            size = live.pop(address)
        else:  # what is freed and was never asked for was there before
            before += size
        signed = size if action == "alloc" else -size
        frames = entry.get("frames", ()) if signed > 0 else ()
        if id(frames) not in stacks:  # allocations share them
            stacks[id(frames)] = tuple(_operators(_within(frames, budget)))
        names = stacks[id(frames)]
        trace.memory.append(Allocation(float(at), signed, address, operators=names))
    before += sum(_kept(device, segments, live, budget))
    total = before
    for row in trace.memory:
        total += row.bytes
        row.total = total
    return trace


def _operators(frames: Iterator[Any]) -> Iterator[str]:
    for frame in frames:
        if found := _OPERATOR.match(frame["name"]):
            yield found[1]


def _kept(device: int, segments: Any, live: dict[int, int], budget: Iterator[int]) -> Iterator[int]:
    """The bytes of blocks that are in use at the end and were asked for before recording began."""
    for segment in _within(segments, budget):
        if segment["device"] != device:
            continue
        address = segment["address"]
        for block in _within(segment["blocks"], budget):
            at = block.get("address", address)
            if block["state"] == "active_allocated" and at not in live:
                yield int(block.get("requested_size", block["size"]))
            address = at + block["size"]
