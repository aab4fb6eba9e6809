"""What was allocated in a trace, moment by moment, and for which nodes at the peak: by the call that asked
for it, or, where a trace has no calls (a snapshot of the allocator), by aligning allocations with what the
graph makes: of one size, and by one operator where the stack of an allocation names it."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from msgspec import structs

from opgraph.record.errors import ProfileError
from opgraph.record.graph import Graph
from opgraph.record.run import Held
from opgraph.traces.alignment import matched, one_run
from opgraph.traces.events import Allocation, Trace
from opgraph.traces.signatures import canonical_name

Owner = tuple[tuple[int, ...], str]
"""The nodes of an allocation, and the operator that asked for it."""
_LEAST = 0.5
"""The share of what a graph makes that the allocations of one run of it match at least."""


def own(allocations: Sequence[Allocation]) -> list[Allocation]:
    """What was allocated in the trace and given back, in order, with the total of that alone: on a host
    torch counts on for the whole process."""
    live: set[int | str] = set()
    found, total = [], 0
    for row in allocations:
        if row.bytes > 0:
            live.add(row.address)
        elif row.address not in live:
            continue
        else:
            live.remove(row.address)
        total += row.bytes
        found.append(structs.replace(row, total=total))
    return found


def curve(allocations: Sequence[Allocation]) -> tuple[tuple[float, int], ...]:
    """Seconds since the first allocation, and the bytes there are then."""
    return tuple(((a.at - allocations[0].at) * 1e-6, a.total) for a in allocations)


def at_peak(
    allocations: Sequence[Allocation], owner: Callable[[int], Owner]
) -> tuple[tuple[Held, ...], tuple[int, ...]]:
    """What is held when most bytes are there, of what was allocated in the trace, the largest first; and
    the nodes whose allocation that was."""
    if not allocations:
        return (), ()
    peak = max(range(len(allocations)), key=lambda i: (allocations[i].total, -i))
    live: dict[int | str, int] = {}
    for i, row in enumerate(allocations[: peak + 1]):
        if row.bytes > 0:
            live[row.address] = i
        else:
            live.pop(row.address, None)
    rows: dict[Owner, list[int]] = {}
    for i in live.values():
        rows.setdefault(owner(i), []).append(allocations[i].bytes)
    held = (Held(sum(sizes), nodes, name, len(sizes)) for (nodes, name), sizes in rows.items())
    return tuple(sorted(held, key=lambda h: (-h.bytes, h.nodes, h.name))), owner(peak)[0]


def storages_of(graph: Graph, allocations: Sequence[Allocation]) -> list[int | None]:
    """The node that each allocation is for, in whole runs of the graph; None where that is not known."""
    ops = [canonical_name(k.op) for n in graph.nodes for k in n.kernels]
    made = sorted(
        (s for s in graph.storages if s.bytes and s.born < len(ops) and not graph.was_there(s)),
        key=lambda s: s.born,
    )
    sizes: dict[int, int] = {}
    operators: dict[str, int] = {}
    for at, storage in enumerate(made):
        sizes[storage.bytes] = sizes.get(storage.bytes, 0) | 1 << at
        name = ops[storage.born]
        operators[name] = operators.get(name, 0) | 1 << at
    asked = [i for i, a in enumerate(allocations) if a.bytes > 0]
    known: dict[tuple[str, ...], int] = {(): -1}
    for names in {allocations[i].operators for i in asked} - {()}:
        known[names] = 0
        for name in names:
            known[names] |= _named(name, operators)
    masks = [sizes.get(allocations[i].bytes, 0) & known[allocations[i].operators] for i in asked]
    found: list[int | None] = [None] * len(allocations)
    low, width = 0, len(made)
    while low < len(masks) and width:
        ahead = masks[low : low + 3 * width + 64]
        end = one_run(ahead, width)
        places = matched(ahead[:end], width)
        if sum(p is not None for p in places) >= _LEAST * width:
            for i, place in zip(asked[low:], places, strict=False):
                found[i] = None if place is None else made[place].node
        low += end or max(1, len(ahead) // 2)
    return found


def _named(name: str, operators: Mapping[str, int]) -> int:
    """The positions of an operator as the dispatcher spells it, with its overload: `mul_Tensor`."""
    parts = name.split("_")
    for end in range(len(parts), 0, -1):
        found = operators.get(canonical_name("_".join(parts[:end])))
        if found is not None:
            return found
    return 0


# Reading what `torch.cuda.memory._dump_snapshot` writes: every block that the caching allocator handed
# out and took back, with the stack that asked for it. The file is a pickle; only plain containers,
# numbers and texts are made of it, and nothing in it is ever called.


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
