"""What was allocated in a trace, moment by moment, and for which nodes at the peak: by the call that asked
for it, or, where a trace has no calls (a snapshot of the allocator), by aligning allocations with what the
graph makes: of one size, and by one operator where the stack of an allocation names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from opgraph.record.graph import Graph
from opgraph.record.run import Held
from opgraph.traces.alignment import matched, one_run
from opgraph.traces.events import Allocation
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
