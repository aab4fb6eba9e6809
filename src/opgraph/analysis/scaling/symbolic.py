"""From costs at whole-number sizes to exact formulas: finite differences find the degree, rational
interpolation the coefficients, and points that were not used check the result.

Where one polynomial does not hold everywhere there are pieces: other sizes at the ends of a range (a batch
of one may be computed otherwise), another formula beyond a threshold, or multiples of a step only (strides
and windows make costs jump in between). Nothing here knows what a model is: costs come from a function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, pairwise, product

from opgraph.record.formulas import Formula, Piece, Point, Polynomial, Span

# Polynomials on boxes put together to formulas: where one polynomial says it all, boxes are one piece.

Key = tuple[str, str]
"""What is counted where: the path of a module, and a quantity."""


def joined(
    boxes: Sequence[tuple[tuple[Span, ...], Mapping[Key, Polynomial]]],
) -> dict[Key, Formula]:
    """One formula a key: boxes where one polynomial says it all are taken together."""
    spans = [where for where, _ in boxes]
    made: dict[tuple[Polynomial, ...], Formula] = {}
    formulas = {}
    for key in dict.fromkeys(key for _, fitted in boxes for key in fitted):
        own = tuple(fitted.get(key, Polynomial()) for _, fitted in boxes)
        if own not in made:
            made[own] = Formula(tuple(_merged(spans, own)))
        formulas[key] = made[own]
    return formulas


def _merged(spans: Sequence[tuple[Span, ...]], own: Sequence[Polynomial]) -> list[Piece]:
    """The pieces of one key: each box has the first polynomial that is its own there, and boxes of one
    polynomial that make up a box are one piece."""
    pieces: list[Piece] = []
    for where, polynomial in zip(spans, own, strict=True):
        fitting = (p.polynomial for p in pieces if p.polynomial.within(where) == polynomial)
        pieces.append(Piece(where, next(fitting, polynomial)))
    merging = True
    while merging:
        merging = False
        for one, two in combinations(pieces, 2):
            hull = _hull(one.where, two.where) if one.polynomial == two.polynomial else None
            if hull is not None:
                pieces[pieces.index(one)] = Piece(hull, one.polynomial)
                pieces.remove(two)
                merging = True
                break
    return pieces


def _hull(one: Sequence[Span], two: Sequence[Span]) -> tuple[Span, ...] | None:
    """The box of two boxes that touch on one axis and are equal on the others; None for any others."""
    different = [i for i, (a, b) in enumerate(zip(one, two, strict=True)) if a != b]
    if len(different) != 1:
        return None
    axis = different[0]
    low, high = sorted((one[axis], two[axis]), key=lambda span: span.low)
    if low.high is None or low.high + high.step != high.low or low.step not in (1, high.step):
        return None
    joined = Span(low.low, high.high, high.step)
    return (*one[:axis], joined, *one[axis + 1 :])


# The stretches of one variable on which costs are a polynomial: of what degree, from where to where, and
# at which sizes they are to be sampled.

Sample = Mapping[Key, int]
Evaluate = Callable[[Point], Sample | None]
"""The costs at a point; None where the model does not run."""

MOST_DEGREE = 4
STEPS = (1, 32, 64, 224, 128, 14, 256, 512)
"""Steps that are tried until costs are a polynomial on multiples of one, which is then made smaller."""

FAR = (2, 16)
"""Multiples of the first size at which a formula must still hold."""

PIECES = 4


@dataclass(frozen=True, slots=True)
class Stretch:
    """A span of one variable on which costs are a polynomial of a degree, where it is sampled, and the
    largest size at which that was seen to hold."""

    span: Span
    degree: int
    first: int
    farthest: int

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(self.first + k * self.span.step for k in range(self.degree + 1))

    def unused(self) -> tuple[int, ...]:
        """Sizes in the span that are not sampled: near, farther, and below, as far as there are any."""
        step = self.span.step
        wanted = [self.first + (self.degree + k) * step for k in (3, 11)] + [self.first - 2 * step]
        return tuple(s for s in wanted if s in self.span and s not in self.nodes)


class Axis:
    """One variable, with the others held where the search starts."""

    def __init__(self, at: Evaluate, start: Point, axis: int, most: int | None) -> None:
        self._at = at
        self._start = start
        self._axis = axis
        self._most = sys.maxsize if most is None else most

    def value(self, size: int) -> Sample | None:
        if size > self._most:
            return None
        point = (*self._start[: self._axis], size, *self._start[self._axis + 1 :])
        return self._at(point)

    def stretches(self) -> list[Stretch]:
        """The spans on which costs are polynomials, that with the start in it or next to it first. They
        must go on as far as was looked: else they are but steps of a staircase."""
        start = self._start[self._axis]
        for step in STEPS:
            for first in (start, start + step):
                if self._degree(first, step) is None:
                    continue
                found = self._from(first, self._smallest(first, step))
                if found is None:
                    continue
                above = list(self._above(found))
                if self._goes_on([found, *above][-1].span):
                    return [found, *self._below(found), *above]
        return []

    def _goes_on(self, span: Span) -> bool:
        """Whether a span has no end, or one beyond which the model does not run."""
        return span.high is None or self.value(span.high + span.step) is None

    def _smallest(self, first: int, step: int) -> int:
        """The smallest divisor of a step that does as well."""
        for prime in (2, 7):
            while step % prime == 0 and self._degree(first, step // prime) is not None:
                step //= prime
        return step

    def _from(self, first: int, step: int, low: int = 1) -> Stretch | None:
        """The stretch that is sampled from a size on, as far as its formula holds both ways."""
        degree = self._degree(first, step)
        if degree is None:
            return None
        line = _Line([first + k * step for k in range(degree + 1)], self.value)
        above = [first + (k - 1) * first // step * step for k in FAR]
        most = first + (self._most - first) // step * step
        above = [*(s for s in above if s < most), min(most, above[-1])]
        high = self._edge(line, first, above, step)
        farthest = above[-1] if high is None else high
        if high is None and self._most < sys.maxsize:
            high = most
        down = sorted({(first - size) // step for size in (low, 2, 3, first // 2) if low <= size})
        below = [first - k * step for k in down if k > 0]
        bottom = self._edge(line, first, below, -step)
        span = Span(first if bottom is None else bottom, high, step)
        return Stretch(span, degree, first, farthest)

    def _degree(self, first: int, step: int) -> int | None:
        """The degree on a progression: the lowest whose next differences vanish for every key."""
        samples: list[Sample] = []
        for k in range(MOST_DEGREE + 2):
            sample = self.value(first + k * step)
            if sample is None:
                break
            samples.append(sample)
        if len(samples) < 3:
            return None
        rows = [[s.get(key, 0) for s in samples] for key in {key for s in samples for key in s}]
        for degree in range(len(samples) - 1):
            rows = [[b - a for a, b in pairwise(row)] for row in rows]
            if all(not any(row) for row in rows):
                return degree
        return None

    def _edge(self, line: _Line, first: int, sizes: Sequence[int], step: int) -> int | None:
        """How far the formula holds, looking at sizes ever farther from the first: the last size where it
        does, by bisection; upwards None where it holds as far as was looked."""
        good = first
        for size in sizes:
            if self._holds(line, size):
                good = size
                continue
            bad = size
            while abs(bad - good) > abs(step):
                middle = good + (bad - good) // (2 * step) * step
                if self._holds(line, middle):
                    good = middle
                else:
                    bad = middle
            return good
        return None if step > 0 else good

    def _holds(self, line: _Line, size: int) -> bool:
        sample = self.value(size)
        return sample is not None and line.gives(size, sample)

    def _below(self, above: Stretch) -> list[Stretch]:
        """The sizes under a stretch: one by one where they are few, for those are special, else as a
        stretch from one on, where that reaches up to it."""
        low, step = above.span.low, above.span.step
        start = self._start[self._axis]
        singles = range(1, low) if step == 1 else [start] if start < low else []
        if len(singles) > PIECES:
            found = self._from(1, step)
            if found is None or found.span.high is None or found.span.high < low - step:
                return []
            return [replace(found, span=replace(found.span, high=low - step), farthest=low - step)]
        return [Stretch(Span(s, s), 0, s, s) for s in singles if self.value(s) is not None]

    def _above(self, below: Stretch) -> Iterator[Stretch]:
        """The stretches beyond the end of one."""
        for _ in range(PIECES):
            if below.span.high is None:
                return
            first = below.span.high + below.span.step
            found = self._from(first, below.span.step, low=first)
            if found is None:
                return
            yield found
            below = found


class _Line:
    """A polynomial in one variable for every key, through samples; keys of equal values share one."""

    def __init__(self, nodes: Sequence[int], value: Callable[[int], Sample | None]) -> None:
        self._nodes = nodes
        samples = [value(node) or {} for node in nodes]
        keys = {key for sample in samples for key in sample}
        self._values = {key: tuple(s.get(key, 0) for s in samples) for key in keys}

    def gives(self, size: int, sample: Sample) -> bool:
        """Whether the polynomials give this sample at a size."""
        weights = _lagrange(self._nodes, size)
        distinct = set(self._values.values())
        result = {
            values: sum((w * v for w, v in zip(weights, values, strict=True)), Fraction(0))
            for values in distinct
        }
        known = all(result[values] == sample.get(key, 0) for key, values in self._values.items())
        return known and not any(sample[key] for key in sample.keys() - self._values.keys())


def _lagrange(nodes: Sequence[int], x: int) -> list[Fraction]:
    """The weights of the values at the nodes in the value at x."""
    weights = []
    for i, a in enumerate(nodes):
        weight = Fraction(1)
        for j, b in enumerate(nodes):
            if i != j:
                weight *= Fraction(x - b, a - b)
        weights.append(weight)
    return weights


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
