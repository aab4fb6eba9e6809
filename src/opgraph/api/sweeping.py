"""Tracing one model at many sizes: the points of a sweep, and the samples that formulas are made from.
The model is built once for each dtype; what is done with the figures stands in analysis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from opgraph.analysis.cost.bottleneck import GENERIC_RIDGE
from opgraph.analysis.cost.modules import module_tree
from opgraph.analysis.quantities import peak_memory_by_module, ridge_on
from opgraph.analysis.scaling.sweep import Sweep, SweepPoint, point_of
from opgraph.analysis.scaling.symbolic import Key, Sample, solve
from opgraph.api.pipeline import checked, profile, resolved
from opgraph.hardware import device
from opgraph.options import Options
from opgraph.record import units
from opgraph.record.errors import InputError, OpgraphError
from opgraph.record.formulas import Formula, Formulas, Point, Variable
from opgraph.record.loading import is_saved_profile
from opgraph.record.profile import Profile
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


def sweep(
    model: str | nn.Module,
    *,
    batch_size: int | Sequence[int] | None = None,
    seq_len: int | Sequence[int] | None = None,
    decoder_seq_len: int | Sequence[int] | None = None,
    image_size: int | Sequence[int] | None = None,
    context_len: int | Sequence[int] | None = None,
    dtype: str | Sequence[str] | None = None,
    symbolic: bool = False,
    hardware: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Sweep:
    """Profile a model at every combination of the sizes given.

    With `symbolic`, formulas of its costs are found as well (`Sweep.formulas`), in all sizes that its
    inputs follow and that no single value was given for. With `hardware`, the name of a device, there are
    predicted latency and throughput, and its ridge point. `options` are those of `profile`. A point at
    which the model does not run says why; only a model that cannot be built raises.

    >>> s = opgraph.sweep("bert-base-uncased", seq_len=[128, 512], symbolic=True)
    >>> s.formulas.at(B=1, S=300)["flops"]
    54279733248
    """
    given: dict[str, Any] = {
        "batch_size": batch_size, "seq_len": seq_len, "decoder_seq_len": decoder_seq_len,
        "image_size": image_size, "context_len": context_len,
    }  # fmt: skip
    axes = {option: _listed(values) for option, values in given.items() if values is not None}
    dtypes = _listed(dtype)
    if dtypes:
        axes["dtype"] = dtypes
    if isinstance(model, str) and is_saved_profile(model):
        raise InputError(
            "a sweep traces the model, and a saved profile has none", hint="name the model"
        )
    for option, values in axes.items():
        for value in values:
            Options(**{option: value})  # before any of them is traced
    checked(Options(**options, context_len=next(iter(axes.get("context_len", ())), None)))
    tell = progress or (lambda _: None)
    chosen_device = None if hardware is None else device(hardware)
    ridge = GENERIC_RIDGE
    points: list[SweepPoint] = []
    built: dict[str | None, Model] = {}
    for chosen in dtypes or (None,):
        built[chosen] = resolved(model, Options(**{**options, "dtype": chosen}))
        for sizes in product(*(v for option, v in axes.items() if option != "dtype")):
            at = dict(zip(axes, sizes, strict=False))
            tell(", ".join(f"{option.replace('_', ' ')} {size}" for option, size in at.items()))
            shown = {**at, **({} if chosen is None else {"dtype": chosen})}
            found = _traced(built[chosen], at, {**options, "dtype": chosen})
            if isinstance(found, str):
                points.append(SweepPoint(shown, {}, error=found))
                continue
            ridge = ridge_on(chosen_device, found)
            points.append(point_of(found, shown, ridge, chosen_device))
    first = next(iter(built.values()))
    base = None
    if symbolic:
        pinned = {option: v[0] for option, v in axes.items() if len(v) == 1 and option != "dtype"}
        base = with_formulas(first, pinned, tell, {**options, "dtype": next(iter(built))})
    name = first.info.name
    return Sweep(name, axes, tuple(points) if axes else (), ridge, base, chosen_device)


def _listed(values: Any) -> tuple[Any, ...]:
    """Values without repetition, in their order."""
    if values is None:
        return ()
    return tuple(
        dict.fromkeys(
            values if isinstance(values, Iterable) and not isinstance(values, str) else [values]
        )
    )


def _traced(model: Model, at: Mapping[str, Any], options: Mapping[str, Any]) -> Profile | str:
    """The profile at some sizes, or why there is none."""
    try:
        return profile(model, **at, **options)
    except OpgraphError as error:
        return str(error)


def with_formulas(
    model: Model, pinned: Mapping[str, Any], tell: Progress, options: Mapping[str, Any]
) -> Profile:
    """The profile of a model (at its usual sizes, but for those that are pinned) with its formulas.

    Raises `InputError` when its inputs follow no size that is left open.
    """
    from opgraph.inputs.base import InputRequest
    from opgraph.inputs.sizes import open_sizes

    base = profile(model, **pinned, **options)
    sizes = [s for s in open_sizes(model, InputRequest()) if s.option not in pinned]
    tracer = _Samples(model, pinned, options, tell)
    notes = []
    variables: list[OpenSize] = []
    for size in sizes:
        if tracer.varies(size):
            variables.append(size)
        else:
            letter, meaning = LETTERS[size.option]
            notes.append(f"the model runs at {meaning} {letter} = {size.value} only")
    if not variables:
        raise InputError(f"{model.info.name} has no size that can be left open: {'; '.join(notes)}")
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

    def varies(self, size: OpenSize) -> bool:
        """Whether the model runs at another value of a size."""
        others = (size.value + 32, 2 * size.value, size.value // 2)
        return any(
            value > 0 and (size.most is None or value <= size.most)
            and self._at({size.option: value}) is not None
            for value in others
        )  # fmt: skip

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
                traced = profile(self._model, **self._pinned, **sizes, **self._profile_options)  # type: ignore[arg-type]
                self._known[key] = None if traced.graph.failed else _sample(traced)
            except OpgraphError:
                self._known[key] = None
        return self._known[key]


def _sample(profile: Profile) -> dict[str, dict[Key, int]]:
    sample: dict[str, dict[Key, int]] = {q: {} for q in QUANTITIES}
    for module in module_tree(profile.graph).walk():
        sample["flops"][module.path, "flops"] = module.cost.flops
        sample["other_flops"][module.path, "other_flops"] = module.cost.other_flops
        sample["bytes"][module.path, "bytes"] = module.cost.bytes
    sample[PEAK] = {(path, PEAK): most for path, most in peak_memory_by_module(profile).items()}
    return sample
