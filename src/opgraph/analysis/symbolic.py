"""From costs at whole-number sizes to exact formulas: finite differences find the degree, rational
interpolation the coefficients, and points that were not used check the result.

Where one polynomial does not hold everywhere there are pieces: other sizes at the ends of a range (a batch
of one may be computed otherwise), another formula beyond a threshold, or multiples of a step only (strides
and windows make costs jump in between). Nothing here knows what a model is: costs come from a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from opgraph.analysis.pieces import Key, joined
from opgraph.analysis.stretches import STEPS, Axis, Evaluate, Sample, Stretch
from opgraph.formulas import Formula, Point, Polynomial, Span

Box = tuple[Stretch, ...]
"""A stretch of every variable."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The formulas found, by key; the points that checked them; and what could not be found."""

    formulas: dict[Key, Formula]
    checked: tuple[Point, ...]
    notes: tuple[str, ...]


def solve(
    evaluate: Evaluate,
    start: Point,
    names: Sequence[str],
    most: Sequence[int | None] = (),
    seen: Iterable[Point] = (),
) -> Solution:
    """Find a formula for every key that `evaluate` gives, in variables with these names, from `start` on.

    `most` are the largest sizes to consider (None: no limit). The formulas also hold at points that were
    `seen` before. A key's formula has no piece where none was found that passes the checks; `notes` say
    so.
    """
    known: dict[Point, Sample | None] = {point: evaluate(point) for point in seen}

    def at(point: Point) -> Sample | None:
        if point not in known:
            known[point] = evaluate(point)
        return known[point]

    notes: list[str] = []
    axes = []
    for axis, name in enumerate(names):
        stretches = Axis(at, start, axis, most[axis] if most else None).stretches()
        if not stretches:
            notes.append(
                f"not a polynomial in {name}, nor on multiples of a step up to {max(STEPS)}"
            )
            size = start[axis]
            stretches = [Stretch(Span(size, size), 0, size, size)]
        axes.append(stretches)
    boxes = []
    checked: list[Point] = []
    for box in product(*axes):
        fitted = _fit(at, box)
        if fitted is None:
            notes.append(f"not a polynomial where {_where(box, names)}")
            continue
        polynomials, points = fitted
        confirmed = _confirmed(at, known, box, polynomials)
        if confirmed is None:
            notes.append(f"not a polynomial where {_where(box, names)}")
            continue
        boxes.append((tuple(s.span for s in confirmed), polynomials))
        grid = set(_grid(box))
        corners = [p for p in _corners(confirmed) if p not in grid and known[p] is not None]
        checked += [p for p in points if _within(p, confirmed)] + corners
    return Solution(joined(boxes), tuple(dict.fromkeys(checked)), tuple(notes))


def _where(box: Box, names: Sequence[str]) -> str:
    texts = (s.span.text(name) for s, name in zip(box, names, strict=True))
    return ", ".join(t for t in texts if t) or "all sizes"


def _basis(nodes: Sequence[int]) -> list[list[Fraction]]:
    """The coefficients (by power) of the Lagrange polynomials of some nodes."""
    result = []
    for i, a in enumerate(nodes):
        coefficients = [Fraction(1)]
        for j, b in enumerate(nodes):
            if i != j:
                shifted = [Fraction(0), *coefficients]
                scaled = [c * -b for c in coefficients] + [Fraction(0)]
                coefficients = [(p + q) / (a - b) for p, q in zip(shifted, scaled, strict=True)]
        result.append(coefficients)
    return result


def _grid(box: Box) -> list[Point]:
    """The points that polynomials on a box are made from."""
    return list(product(*(s.nodes for s in box)))


def _fit(at: Evaluate, box: Box) -> tuple[dict[Key, Polynomial], list[Point]] | None:
    """The polynomials on a box and the points that checked them; None when they fail a check."""
    grid = _grid(box)
    samples = [at(point) for point in grid]
    if any(sample is None for sample in samples):
        return None
    keys = {key for sample in samples for key in sample or ()}
    bases = [_basis(s.nodes) for s in box]
    powers = list(product(*(range(s.degree + 1) for s in box)))
    places = list(product(*(range(s.degree + 1) for s in box)))
    weights = {
        power: [_product(bases[i][k][p] for i, (k, p) in enumerate(zip(place, power, strict=True)))
                for place in places]
        for power in powers
    }  # fmt: skip
    made: dict[tuple[int, ...], Polynomial] = {}
    fitted = {}
    for key in keys:
        values = tuple((sample or {}).get(key, 0) for sample in samples)
        if values not in made:
            made[values] = Polynomial.of({
                power: sum((w * v for w, v in zip(row, values, strict=True)), Fraction(0))
                for power, row in weights.items()
            })  # fmt: skip
        fitted[key] = made[values]
    checked = []
    for point in _check_points(box):
        sample = None if point in grid else at(point)
        if sample is None:
            continue
        if not _agree(fitted, point, sample):
            return None
        checked.append(point)
    return fitted, checked


def _confirmed(
    at: Evaluate, known: Mapping[Point, Sample | None], box: Box, fitted: Mapping[Key, Polynomial]
) -> Box | None:
    """The part of a box in which the polynomials hold at all corners and wherever else costs are known;
    None where no part is left. They may fail far from where they were sampled: a table is read whole
    once the batch times the length exceeds it."""

    def holds(point: Point) -> bool:
        sample = at(point)
        return sample is not None and _agree(fitted, point, sample)

    while True:
        looked = [*_corners(box), *(p for p in tuple(known) if _within(p, box))]
        wrong = next((p for p in looked if at(p) is not None and not holds(p)), None)
        if wrong is None:
            return box
        smaller = _without(holds, box, wrong)
        if smaller is None:
            return None
        box = smaller


def _corners(box: Box) -> list[Point]:
    """The corners of a box, the farthest first."""
    return list(dict.fromkeys(product(*((s.farthest, s.span.low) for s in box))))


def _within(point: Point, box: Box) -> bool:
    return all(size in s.span for size, s in zip(point, box, strict=True))


def _without(holds: Callable[[Point], bool], box: Box, wrong: Point) -> Box | None:
    """The box without a point at which the polynomials fail. The first variable is cut that alone leads
    back to where they hold, as far as they do, or else the first that can be cut is, wholly."""
    able = [i for i, s in enumerate(box) if wrong[i] != s.first]
    for axis in able:
        first, bad = box[axis].first, wrong[axis]
        step = box[axis].span.step if bad > first else -box[axis].span.step

        def moved(size: int, axis: int = axis) -> Point:
            return (*wrong[:axis], size, *wrong[axis + 1 :])

        if not holds(moved(first)):
            continue
        good, end = 0, (bad - first) // step
        while end - good > 1:
            middle = (good + end) // 2
            good, end = (middle, end) if holds(moved(first + middle * step)) else (good, middle)
        return _cut(box, axis, first + good * step, upper=step > 0)
    if not able:
        return None
    axis = able[0]
    return _cut(box, axis, box[axis].first, upper=wrong[axis] > box[axis].first)


def _cut(box: Box, axis: int, size: int, *, upper: bool) -> Box:
    """The box with one variable up to a size, or from it on. With an end in one, the others have theirs
    where it was looked: farther out the first may end sooner."""
    cut = box[axis]
    if upper:
        box = tuple(replace(s, span=replace(s.span, high=s.farthest)) for s in box)
        cut = replace(box[axis], span=replace(cut.span, high=size), farthest=size)
    else:
        cut = replace(cut, span=replace(cut.span, low=size))
    return (*box[:axis], cut, *box[axis + 1 :])


def _product(factors: Iterator[Fraction]) -> Fraction:
    result = Fraction(1)
    for factor in factors:
        result *= factor
    return result


def _check_points(box: Box) -> Iterator[Point]:
    """Points off the grid: each variable in turn at sizes that are not sampled, and all of them at once."""
    unused = [s.unused() or s.nodes[-1:] for s in box]
    for k in range(max(map(len, unused))):
        yield tuple(sizes[k % len(sizes)] for sizes in unused)
    for axis, sizes in enumerate(unused):
        point = [s.nodes[0] for s in box]
        point[axis] = sizes[0]
        yield tuple(point)


def _agree(fitted: Mapping[Key, Polynomial], point: Point, sample: Sample) -> bool:
    values: dict[Polynomial, Fraction] = {}
    for key in {*fitted, *sample}:
        polynomial = fitted.get(key, Polynomial())
        if polynomial not in values:
            values[polynomial] = polynomial(point)
        if values[polynomial] != sample.get(key, 0):
            return False
    return True
