"""The stretches of one variable on which costs are a polynomial: of what degree, from where to where, and
at which sizes they are to be sampled."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from opgraph.analysis.pieces import Key
from opgraph.formulas import Point, Span

Sample = Mapping[Key, int]
Evaluate = Callable[[Point], Sample | None]
"""The costs at a point; None where the model does not run."""

MOST_DEGREE = 3
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
