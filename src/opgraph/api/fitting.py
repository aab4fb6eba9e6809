"""What fits on a device: the largest batch, length and context of a model there, and the smallest device
for what was asked. Every answer was profiled, and so was the next larger one, which does not fit, but where
the search ends first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from opgraph.analysis.costed import costed
from opgraph.analysis.memory import fit as fit_of
from opgraph.analysis.parallel.paper import smallest as smallest_plan
from opgraph.api.pipeline import as_it_was, profiled, resolved
from opgraph.hardware import Device, device, devices
from opgraph.options import NAMES, QUANTIZED, Options, named_options, targeted
from opgraph.record.errors import InputError, OpgraphError, first_line
from opgraph.record.kinds import Mode
from opgraph.record.layout import Layout
from opgraph.record.profile import ProfileRecord
from opgraph.record.remarks import Remark

if TYPE_CHECKING:
    from torch import nn

_MOST = 1 << 24
"""Nobody asks for more of anything."""
_FURTHER = 4
"""Times that the next size to try may be what fits: what grows faster than a line would be tried at sizes
that no machine has the memory to make inputs for."""


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest size that fits, in bytes `needed`; 0 where none does. The next one needs `next_needed`,
    or cannot be run or was not tried, for the `reason` given. `positions` are those of the model's
    configuration, where the size has more tokens."""

    size: str
    value: int
    needed: int
    next_needed: int | None = None
    reason: str | None = None
    positions: int | None = None


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest device that holds what was asked, by its id, its bytes of `capacity`, and those that are
    `needed` there; the next smaller one does not hold it, and would need `smaller_needs`."""

    device: str
    capacity: int
    needed: int
    smaller: str | None = None
    smaller_needs: int | None = None


@dataclass(frozen=True, slots=True)
class Fitting:
    """What fits on a device of so many bytes of `capacity`, each size by itself with the others as asked;
    the bytes `needed` of what was asked, the `smallest` device of its kind that has them, and where this
    one has not, the `layout` of the fewest of it that do."""

    model: str
    device: str
    capacity: int
    mode: str
    needed: int
    fits: bool
    largest: tuple[Largest, ...]
    smallest: Smallest | None
    layout: Layout | None = None
    remarks: tuple[Remark, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return asdict(self) | {"remarks": [r.to_dict() for r in self.remarks]}


@named_options((*NAMES, "hardware", *QUANTIZED))
@as_it_was
def fitting(
    model: str | nn.Module,
    *,
    hardware: str | Device,
    progress: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Fitting:
    """The largest batch, length and context of a model that fit on a device, and the smallest device that
    holds what was asked. `options` are those of `profile`, and `weights`, `group_size`, `activations` and
    `kv_cache`, which keep it in fewer bits.

    Raises what `profile` raises where what was asked cannot be profiled at all.
    """
    from opgraph.inputs.context import stated_positions

    on = device(hardware) if isinstance(hardware, str) else hardware
    kept = {name: options.pop(name) for name in QUANTIZED if name in options}
    asked = Options(**targeted(options, on.target))
    built = resolved(model, asked)

    def there(profile: ProfileRecord, other: Device = on) -> ProfileRecord:
        return costed(profile, other, **kept).profile

    def needed(at: Options) -> int:
        return fit_of(there(profiled(built, options=at)).graph, on).needed

    first = profiled(built, options=asked)
    if first.graph.failed is not None:
        raise InputError(f"{built.info.name} does not run: {first.failure}")
    there_first = costed(first, on, **kept)
    run = there_first.profile
    whole = fit_of(run.graph, on).needed
    plan = None
    if whole > on.capacity and asked.mode != "train":  # of training, `plan` finds layouts
        held = 0 if run.cache is None else run.cache.bytes
        plan = smallest_plan(run.graph, on, cache=held, fewest=2)
    sizes = ("batch_size", "context_len" if Mode(asked.mode).generates else "seq_len")
    found = []
    for size in sizes:
        progress(f"looking for the largest {size.replace('_', ' ')} …")
        largest = _largest(size, asked, needed, on.capacity)
        if largest is not None:
            positions = None if size == "batch_size" else stated_positions(built)
            beyond = positions is not None and positions < largest.value
            found.append(replace(largest, positions=positions) if beyond else largest)
    own = (
        options.get("target") is None
    )  # each device is traced for its own target, unless one is asked
    traced = {asked.target: first}

    def needs(other: Device) -> int:
        target = other.target if own else asked.target
        if target not in traced:
            progress(f"tracing for {target} …")
            traced[target] = profiled(built, options=replace(asked, target=target))
        return fit_of(there(traced[target], other).graph, other).needed

    weights = sum(p.bytes for p in run.graph.parameters)
    room = sorted((d for d in devices() if d.kind == on.kind), key=lambda d: d.capacity)
    at = next((i for i, d in enumerate(room) if weights <= d.capacity >= needs(d)), None)
    smallest = (
        None if at is None else Smallest(room[at].id, int(room[at].capacity), needs(room[at]))
    )
    if smallest is not None and at:
        below = room[at - 1]
        smallest = replace(smallest, smaller=below.id, smaller_needs=needs(below))
    return Fitting(
        built.info.name, on.name, int(on.capacity), asked.mode, whole, whole <= on.capacity,
        tuple(found), smallest, None if plan is None else plan.layout,
        there_first.remarks,
    )  # fmt: skip


def _largest(
    size: str, asked: Options, needed: Callable[[Options], int], capacity: float
) -> Largest | None:
    """The largest value of a size that fits; None for a size that the model does not take."""
    known: dict[int, int | str] = {0: 0}

    def at(value: int) -> int | str:
        """The bytes that are needed, or why it does not run."""
        if value not in known:
            try:
                change: Any = {size: value}
                if size == "batch_size" and asked.input_shape:
                    change["input_shape"] = (value, *asked.input_shape[1:])
                known[value] = needed(replace(asked, **change))
            except OpgraphError as error:
                known[value] = first_line(error)
        return known[value]

    def fits(value: int) -> bool:
        found = at(value)
        return isinstance(found, int) and found <= capacity

    least = next((n for n in (1, 2, 8, 64) if isinstance(at(n), int)), None)
    more = next((n for n in (512, 64, 16, 4) if isinstance(at(n), int)), None)
    if least is None or more is None or at(least) == at(more):
        return None
    low, high = 0, None
    for value in sorted({least, min(more, _MOST)}):
        if high is None:
            low, high = (value, None) if fits(value) else (low, value)
    while high is None:
        most = at(low)
        if low >= _MOST and isinstance(most, int):
            return Largest(size, low, most, reason="more was not looked for")
        ran = sorted(n for n in known if n < low and isinstance(known[n], int))
        line = _meeting(ran[-1], low, at(ran[-1]), most, capacity)
        value = min(max(line or 0, low + 1), _FURTHER * low, _MOST)
        low, high = (value, None) if fits(value) else (low, value)
    step, seen = 1, 0
    while high - low > 1:
        line = _meeting(low, high, at(low), at(high), capacity) if low else None
        # Where a line meets, and then ever further from the end that this is at.
        step, seen = step * (1 + (seen > 1)), seen + 1
        middle = (low + high) // 2 if line is None else min(max(line, low + step), high - step)
        middle = middle if low < middle < high else (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    bytes_low, bytes_high = at(low), at(high)
    return Largest(
        size, low,
        bytes_low if isinstance(bytes_low, int) else 0,
        bytes_high if isinstance(bytes_high, int) else None,
        None if isinstance(bytes_high, int) else bytes_high,
    )  # fmt: skip


def _meeting(low: int, high: int, least: int | str, most: int | str, capacity: float) -> int | None:
    """Where a line through two points meets the capacity; None where there is no such line."""
    if not isinstance(least, int) or not isinstance(most, int) or most <= least:
        return None
    return low + int((high - low) * (capacity - least) / (most - least))
