"""From costs at whole-number sizes to exact formulas: finite differences find the degree, rational
interpolation the coefficients, and points that were not used check the result.

Where one polynomial does not hold everywhere there are pieces: other sizes at the ends of a range (a batch
of one may be computed otherwise), another formula beyond a threshold, or multiples of a step only (strides
and windows make costs jump in between). Nothing here knows what a model is: costs come from a function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from opgraph.analysis.pieces import Key, joined
from opgraph.analysis.stretches import STEPS, Axis, Evaluate, Sample, Stretch
from opgraph.formulas import Formula, Point, Polynomial, Span


@dataclass(frozen=True, slots=True)
class Solution:
    """The formulas found, by key; the points that checked them; and what could not be found."""

    formulas: dict[Key, Formula]
    checked: tuple[Point, ...]
    notes: tuple[str, ...]


def solve(
    evaluate: Evaluate, start: Point, names: Sequence[str], most: Sequence[int | None] = ()
) -> Solution:
    """Find a formula for every key that `evaluate` gives, in variables with these names, from `start` on.

    `most` are the largest sizes to consider (None: no limit). A key's formula has no piece where none
    was found that passes the checks; `notes` say so.
    """
    known: dict[Point, Sample | None] = {}

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
        spans, confirmed = _confirmed(at, box, fitted[0])
        boxes.append((spans, fitted[0]))
        checked += fitted[1] + confirmed
    return Solution(joined(boxes), tuple(dict.fromkeys(checked)), tuple(notes))


def _where(box: Sequence[Stretch], names: Sequence[str]) -> str:
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


def _fit(at: Evaluate, box: Sequence[Stretch]) -> tuple[dict[Key, Polynomial], list[Point]] | None:
    """The polynomials on a box and the points that checked them; None when they fail a check."""
    grid = list(product(*(s.nodes for s in box)))
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
    at: Evaluate, box: Sequence[Stretch], fitted: Mapping[Key, Polynomial]
) -> tuple[tuple[Span, ...], list[Point]]:
    """The spans of a box, and the corner that confirms them; where the polynomials fail at the corner
    (a table is read whole once the batch times the length exceeds it), with the first variable kept
    below that."""
    spans = tuple(s.span for s in box)
    corner = tuple(s.farthest for s in box)
    sample = at(corner)
    if sample is None:
        return spans, []
    if _agree(fitted, corner, sample):
        return spans, [corner]
    good, bad, step = box[0].nodes[-1], corner[0], box[0].span.step
    while bad - good > step:
        middle = good + (bad - good) // (2 * step) * step
        point = (middle, *corner[1:])
        sample = at(point)
        good, bad = (middle, bad) if sample and _agree(fitted, point, sample) else (good, middle)
    ends = (good, *corner[1:])
    spans = tuple(replace(span, high=end) for span, end in zip(spans, ends, strict=True))
    return spans, [ends]


def _product(factors: Iterator[Fraction]) -> Fraction:
    result = Fraction(1)
    for factor in factors:
        result *= factor
    return result


def _check_points(box: Sequence[Stretch]) -> Iterator[Point]:
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
