"""Tracing one model at many sizes: the points of a sweep, and the samples that formulas are made from.
The model is built once for each dtype; what is done with the figures stands in analysis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import TYPE_CHECKING, Any

from opgraph.analysis.cost.totals import module_tree
from opgraph.analysis.costed import costed
from opgraph.analysis.quantities import peak_memory_by_module
from opgraph.analysis.scaling.sweep import SweepPoint, point_of
from opgraph.analysis.scaling.symbolic import Key, Sample, solve
from opgraph.api.pipeline import as_it_was, profiled, resolved
from opgraph.hardware import Device, device
from opgraph.options import (
    AXES,
    NAMES,
    QUANTIZED,
    Options,
    checked,
    named_options,
    targeted,
)
from opgraph.options.fields import several
from opgraph.record import units
from opgraph.record.errors import InputError, OpgraphError
from opgraph.record.formulas import Formula, Formulas, Point, Variable
from opgraph.record.loading import is_saved_profile
from opgraph.record.profile import ProfileRecord
from opgraph.record.remarks import Remark
from opgraph.results import Profile, Sweep
from opgraph.sources.base import Model

if TYPE_CHECKING:
    from torch import nn

    from opgraph.inputs.base import OpenSize

Progress = Callable[[str], None]

LETTERS = {
    "batch_size": ("B", "batch"),
    "seq_len": ("S", "tokens"),
    "image_size": ("N", "image side"),
}
"""The letters that formulas use, and what they mean."""

PEAK = "peak_memory"
QUANTITIES = ("flops", "other_flops", "bytes", PEAK)
"""What there is a formula for, of the whole and of every module."""


@named_options((*NAMES, "symbolic", "hardware", "run", *QUANTIZED))
@as_it_was
def sweep(
    model: str | nn.Module,
    *,
    symbolic: bool = False,
    hardware: str | Device | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Sweep:
    """Profile a model at every combination of the sizes given.

    `options` are those of `profile`; of those in `AXES` (`batch_size`, `seq_len`, `image_size`, `dtype` …)
    there can be several values. With `symbolic`, formulas of its costs are found as well
    (`Sweep.formulas`), in all sizes that its inputs follow and that no single value was given for. With
    `hardware`, a device or its name, there are predicted latency and throughput of a `run`, and its ridge
    point; `weights`, `group_size`, `activations` and `kv_cache` keep the model in fewer bits. A point at
    which the model does not run says why, and `Sweep.remarks` what must be known of others; only a model
    that cannot be built raises, and a sweep over nothing.

    >>> s = opgraph.sweep("bert-base-uncased", seq_len=[128, 512], symbolic=True)
    >>> s.formulas.at(B=1, S=300)["flops"]
    54279733248
    """
    if isinstance(model, str) and is_saved_profile(model):
        raise InputError(
            "a sweep traces the model, and a saved profile has none", hint="name the model"
        )
    axes = several(options, AXES)
    options = {name: value for name, value in options.items() if name not in axes}
    for axis, values in axes.items():
        if not values:
            raise InputError(
                f"a sweep over no {axis.replace('_', ' ')}", hint="give at least one value"
            )
    asked = {n: options.pop(n, None) for n in ("run", *QUANTIZED)}
    asked = checked({n: v for n, v in asked.items() if v is not None}, asked, "sweep")
    if symbolic and asked:
        raise InputError("formulas are found of a model as it was traced alone",
                         hint=f"leave out symbolic, or {', '.join(asked)}")  # fmt: skip
    options = checked(options, Options.__dataclass_fields__, "sweep")
    chosen_device = device(hardware) if isinstance(hardware, str) else hardware
    if chosen_device is not None:
        options = targeted(options, chosen_device.target)
    if not axes and not symbolic:
        raise InputError(
            "a sweep over what?", hint="give batch_size=[1, 4], another size, or symbolic"
        )
    Options(**options, **{axis: values[0] for axis, values in axes.items()})  # before any is traced
    dtypes = axes.get("dtype", (None,))
    tell = progress or (lambda _: None)
    points: list[SweepPoint] = []
    remarks: dict[Remark, None] = {}
    built: dict[str | None, Model] = {}
    for dtype in dtypes:
        alike = {**options, "dtype": dtype}
        first = {n: v[0] for n, v in axes.items() if n not in alike}
        built[dtype] = resolved(model, Options(**alike, **first))
        for sizes in product(*(values for axis, values in axes.items() if axis != "dtype")):
            at = dict(zip((axis for axis in axes if axis != "dtype"), sizes, strict=True))
            tell(", ".join(f"{option.replace('_', ' ')} {size}" for option, size in at.items()))
            shown = {**at, **({} if dtype is None else {"dtype": dtype})}
            found = _traced(built[dtype], at, alike)
            if isinstance(found, str):
                points.append(SweepPoint(shown, {}, error=found))
                continue
            there = costed(found, chosen_device, **asked)
            remarks |= dict.fromkeys(there.remarks)
            points.append(point_of(there, shown))
    whole = next(iter(built.values()))
    base = None
    if symbolic:
        pinned = {axis: v[0] for axis, v in axes.items() if len(v) == 1 and axis != "dtype"}
        base = with_formulas(whole, pinned, tell, {**options, "dtype": next(iter(built))})
        remarks |= dict.fromkeys(costed(base).remarks)
    name = whole.info.name
    return Sweep(
        name, axes, tuple(points) if axes else (), base, chosen_device, tuple(remarks), asked
    )


def _traced(model: Model, at: Mapping[str, Any], options: Mapping[str, Any]) -> ProfileRecord | str:
    """The profile at some sizes, or why there is none."""
    try:
        return profiled(model, options=Options(**at, **options))
    except OpgraphError as error:
        return str(error)


def with_formulas(
    model: Model, pinned: Mapping[str, Any], tell: Progress, options: Mapping[str, Any]
) -> Profile:
    """The profile of a model (at its usual sizes, but for those that are pinned) with its formulas.

    Raises `InputError` when its inputs follow no size that is left open.
    """
    from opgraph.inputs import open_sizes
    from opgraph.inputs.base import InputRequest

    base = Profile.of(profiled(model, options=Options(**pinned, **options)))
    sizes = [s for s in open_sizes(model, InputRequest()) if s.option not in pinned]
    tracer = _Samples(model, pinned, options, tell)
    shaped = bool(options.get("input_shape") or options.get("input_overrides"))
    notes = []
    variables: list[OpenSize] = []
    for size in sizes:
        if tracer.varies(size, least=2 if shaped else 1):
            variables.append(size)
        else:
            letter, meaning = LETTERS[size.option]
            notes.append(
                f"the shape that is given leaves no other {meaning}"
                if shaped
                else f"the model runs at {meaning} {letter} = {size.value} only"
            )
    if not variables:
        why = "; ".join(notes) or "each has a value that was given"
        raise InputError(
            f"{model.info.name} has no size that can be left open: {why}",
            hint="leave out the shape: a size given with one value is kept" if shaped else None,
        )
    return replace(base, formulas=_formulas(tracer, variables, notes))


def _formulas(tracer: _Samples, sizes: Sequence[OpenSize], notes: Iterable[str]) -> Formulas:
    names = [LETTERS[s.option][0] for s in sizes]
    tracer.options = [s.option for s in sizes]
    start = tuple(_start(s) for s in sizes)
    found: dict[Key, Formula] = {}
    checked: list[Point] = []
    said = list(notes)
    most = [s.most for s in sizes]
    for quantity in QUANTITIES:
        for keys in tracer.together(quantity):
            solution = solve(tracer.of(quantity, keys), start, names, most, tracer.points())
            found |= solution.formulas
            checked += solution.checked
            whole = ("", quantity) in keys
            part = "" if whole else f" of {units.plural(len(keys), 'module')}, {keys[0][0]} first"
            said += [f"{quantity}{part}: {note}" for note in solution.notes]
    empty = Formula(())
    paths = dict.fromkeys(path for path, _ in found)
    return Formulas(
        variables=tuple(
            Variable(LETTERS[s.option][0], s.option, LETTERS[s.option][1], s.value) for s in sizes
        ),
        totals={q: found.get(("", q), empty) for q in QUANTITIES},
        modules={
            path: {q: found[path, q] for q in QUANTITIES if (path, q) in found} for path in paths
        },
        checked=tuple(p for p in dict.fromkeys(checked) if tracer.agrees(p, found)),
        notes=tuple(dict.fromkeys(said)),
    )


def _start(size: OpenSize) -> int:
    """Where the search starts: not at one, which is often special, nor at the end of what is allowed."""
    start = max(2, size.value)
    return start if size.most is None or start + 16 <= size.most else max(2, size.most // 2)


class _Samples:
    """Costs at points, traced once each."""

    def __init__(
        self, model: Model, pinned: Mapping[str, Any], options: Mapping[str, Any], tell: Progress
    ) -> None:
        self._model = model
        self._pinned = pinned
        self._profile_options = options
        self._tell = tell
        self._known: dict[tuple[tuple[str, int], ...], dict[str, dict[Key, int]] | None] = {}
        self.options: list[str] = []

    def varies(self, size: OpenSize, least: int) -> bool:
        """Whether the model runs at so many other values of a size; beside a shape that is given it may at
        one, which the shape has."""
        others = (size.value + 32, 2 * size.value, size.value // 2)
        ran = (
            value for value in others
            if value > 0 and (size.most is None or value <= size.most)
            and self._at({size.option: value}) is not None
        )  # fmt: skip
        return len(list(islice(ran, least))) == least

    def together(self, quantity: str) -> Iterator[list[Key]]:
        """The keys of a quantity whose formulas are looked for together: all where modules add up to the
        whole. Peaks are maxima, which change over at sizes of their own: the whole by itself, then the
        modules that have grown alike so far."""
        traced = [found[quantity] for found in self._known.values() if found]
        keys = dict.fromkeys(key for sample in traced for key in sample)
        whole = ("", quantity)
        if quantity != PEAK:
            yield list(keys)
            return
        yield [whole]
        traced = [found[quantity] for found in self._known.values() if found]
        alike: dict[tuple[int, ...], list[Key]] = {}
        for key in keys:
            if key != whole:
                sizes = [sample.get(key, 0) for sample in traced]
                alike.setdefault(tuple(s - sizes[0] for s in sizes), []).append(key)
        yield from alike.values()

    def of(self, quantity: str, keys: Sequence[Key]) -> Callable[[Point], Sample | None]:
        """The samples of some keys of a quantity, as a function of a point."""

        def evaluate(point: Point) -> Sample | None:
            found = self._at(dict(zip(self.options, point, strict=True)))
            return None if found is None else {key: found[quantity].get(key, 0) for key in keys}

        return evaluate

    def points(self) -> list[Point]:
        """Where all sizes were chosen and costs are known."""
        known = [dict(key) for key, found in self._known.items() if found is not None]
        return [
            tuple(sizes[option] for option in self.options)
            for sizes in known
            if list(sizes) == self.options
        ]

    def agrees(self, point: Point, formulas: Mapping[Key, Formula]) -> bool:
        """Whether all formulas that say something of a point say what tracing did."""
        traced = self._at(dict(zip(self.options, point, strict=True))) or {}
        return all(
            (value := formula(point)) is None or value == traced.get(key[1], {}).get(key, 0)
            for key, formula in formulas.items()
        )

    def _at(self, sizes: Mapping[str, int]) -> dict[str, dict[Key, int]] | None:
        key = tuple(sizes.items())
        if key not in self._known:
            where = ", ".join(f"{LETTERS[option][0]} = {size}" for option, size in key)
            self._tell(f"formulas: {len(self._known) + 1} traces, at {where}")
            try:
                asked = Options(**{**self._profile_options, **self._pinned, **sizes})
                traced = profiled(self._model, options=asked)
                self._known[key] = None if traced.graph.failed else _sample(traced)
            except OpgraphError:
                self._known[key] = None
        return self._known[key]


def _sample(profile: ProfileRecord) -> dict[str, dict[Key, int]]:
    sample: dict[str, dict[Key, int]] = {q: {} for q in QUANTITIES}
    kept = costed(profile)
    for module in module_tree(kept.graph).walk():
        sample["flops"][module.path, "flops"] = module.cost.flops
        sample["other_flops"][module.path, "other_flops"] = module.cost.other_flops
        sample["bytes"][module.path, "bytes"] = module.cost.bytes
    sample[PEAK] = {(path, PEAK): most for path, most in peak_memory_by_module(kept).items()}
    return sample
