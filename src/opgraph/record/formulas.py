"""Costs as exact polynomials in the sizes of the inputs: what `opgraph sweep --symbolic` finds and a
profile can carry. Plain data with exact rational coefficients; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Powers = tuple[int, ...]
Point = tuple[int, ...]
"""A size for each variable, in their order."""

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Variable:
    """A size that is left open: its letter ("S"), the option that sets it ("seq_len"), what it means, and
    its value in the profile at hand."""

    name: str
    option: str
    meaning: str
    value: int


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of terms: exact coefficients, each with the power of every variable. Terms are in descending
    order of powers, without zeros."""

    terms: tuple[tuple[Fraction, Powers], ...] = ()

    @classmethod
    def of(cls, coefficients: Mapping[Powers, Fraction]) -> Polynomial:
        """The polynomial with these coefficients."""
        kept = ((c, p) for p, c in coefficients.items() if c)
        return cls(tuple(sorted(kept, key=lambda term: term[1], reverse=True)))

    def __call__(self, point: Point) -> Fraction:
        """The value at a point, exactly."""
        total = Fraction(0)
        for coefficient, powers in self.terms:
            for size, power in zip(point, powers, strict=True):
                coefficient *= size**power  # noqa: PLW2901 - a product in the making
            total += coefficient
        return total

    def __add__(self, other: Polynomial) -> Polynomial:
        sums = {powers: c for c, powers in self.terms}
        for c, powers in other.terms:
            sums[powers] = sums.get(powers, Fraction(0)) + c
        return Polynomial.of(sums)

    def within(self, where: Sequence[Span]) -> Polynomial:
        """The same where some variables have one size only: they are put in."""
        sums: dict[Powers, Fraction] = {}
        for coefficient, powers in self.terms:
            left = []
            for span, power in zip(where, powers, strict=True):
                single = span.high == span.low
                coefficient *= span.low**power if single else 1  # noqa: PLW2901 - as above
                left.append(0 if single else power)
            key = tuple(left)
            sums[key] = sums.get(key, Fraction(0)) + coefficient
        return Polynomial.of(sums)

    def text(self, names: Sequence[str]) -> str:
        """As a person writes it, with common factors in front: B·(36,864·S² + 1,179,648)."""
        if not self.terms:
            return "0"
        common = tuple(min(p[i] for _, p in self.terms) for i in range(len(names)))
        factor = _monomial(common, names)
        rest = [(c, tuple(a - b for a, b in zip(p, common, strict=True))) for c, p in self.terms]
        if len(rest) == 1:
            return "·".join(t for t in (_number(rest[0][0]), factor) if t and t != "1") or "1"
        inner = _sum(rest, names)
        return f"{factor}·({inner})" if factor else inner


def _sum(terms: Sequence[tuple[Fraction, Powers]], names: Sequence[str]) -> str:
    parts: list[str] = []
    for coefficient, powers in terms:
        monomial = _monomial(powers, names)
        number = _number(abs(coefficient))
        text = (
            monomial if number == "1" and monomial else "·".join(t for t in (number, monomial) if t)
        )
        sign = "−" if coefficient < 0 else "+" if parts else ""
        parts.append(f"{sign} {text}" if parts else f"{sign}{text}")
    return " ".join(parts)


def _monomial(powers: Powers, names: Sequence[str]) -> str:
    return "·".join(
        name + (str(power).translate(_SUPERSCRIPTS) if power > 1 else "")
        for name, power in zip(names, powers, strict=True)
        if power
    )


def _number(value: Fraction) -> str:
    whole = f"{value.numerator:,}"
    return whole if value.denominator == 1 else f"{whole}/{value.denominator:,}"


@dataclass(frozen=True, slots=True)
class Span:
    """The sizes from `low` to `high` (None: without an end that was found) in steps of `step`."""

    low: int
    high: int | None = None
    step: int = 1

    def __contains__(self, size: int) -> bool:
        return (
            size >= self.low
            and (self.high is None or size <= self.high)
            and (size - self.low) % self.step == 0
        )

    def text(self, name: str) -> str:
        """S ≥ 2, 1 ≤ S ≤ 512, S = 1, N = 32·k; nothing where every size is meant."""
        if self.high == self.low:
            return f"{name} = {self.low:,}"
        rest = self.low % self.step
        stepped = ""
        if self.step > 1:
            stepped = f"{name} = {self.step}·k" + (f" + {rest}" if rest else "")
        low = self.low > max(1, self.step)
        if self.high is not None:
            bounds = f"{self.low:,} ≤ {name} ≤ {self.high:,}" if low else f"{name} ≤ {self.high:,}"
        else:
            bounds = f"{name} ≥ {self.low:,}" if low else ""
        return ", ".join(t for t in (stepped, bounds) if t)


@dataclass(frozen=True, slots=True)
class Piece:
    """A polynomial and where it holds: a span for each variable."""

    where: tuple[Span, ...]
    polynomial: Polynomial

    def __contains__(self, point: Point) -> bool:
        return all(size in span for size, span in zip(point, self.where, strict=True))


@dataclass(frozen=True, slots=True)
class Formula:
    """A quantity as one polynomial, or as several in pieces."""

    pieces: tuple[Piece, ...]

    def __call__(self, point: Point) -> int | None:
        """The value at a point; None where no piece holds."""
        for piece in self.pieces:
            if point in piece:
                value = piece.polynomial(point)
                return int(value) if value.denominator == 1 else None
        return None


@dataclass(frozen=True)
class Formulas:
    """The formulas of a model: of the whole and of every module, by quantity ("flops", "other_flops",
    "bytes", "peak_memory"), over some variables. `checked` are points that the
    formulas were not made from and at which they gave what tracing gave, to the digit; `notes` say what
    is not covered."""

    variables: tuple[Variable, ...]
    totals: Mapping[str, Formula]
    modules: Mapping[str, Mapping[str, Formula]] = field(default_factory=dict)
    checked: tuple[Point, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.variables)

    def point(self, **sizes: int) -> Point:
        """A point from sizes by letter; those not given are as in the profile."""
        return tuple(sizes.get(v.name, v.value) for v in self.variables)

    def at(self, **sizes: int) -> dict[str, int | None]:
        """The totals at some sizes, by quantity; None where no formula holds."""
        point = self.point(**sizes)
        return {name: formula(point) for name, formula in self.totals.items()}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready data; `from_dict` gives equal formulas back. Equal formulas are written once."""
        table: dict[Formula, int] = {}

        def places(own: Mapping[str, Formula]) -> dict[str, int]:
            return {q: table.setdefault(formula, len(table)) for q, formula in own.items()}

        totals = places(self.totals)
        modules = {path: places(own) for path, own in self.modules.items()}
        return {
            "variables": [
                {"name": v.name, "option": v.option, "meaning": v.meaning, "value": v.value}
                for v in self.variables
            ],
            "totals": totals,
            "modules": modules,
            "formulas": [_encoded(formula) for formula in table],
            "checked": [list(point) for point in self.checked],
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Formulas:
        """The formulas that `to_dict` wrote. Raises `ValueError`, `TypeError` or `KeyError` for data that
        is broken."""
        variables = tuple(
            Variable(
                _text(v["name"]), _text(v["option"]), _text(v["meaning"]), _integer(v["value"])
            )
            for v in data["variables"]
        )
        count = len(variables)
        formulas = [_decoded(f, count) for f in data["formulas"]]

        def chosen(places: Any) -> dict[str, Formula]:
            return {_text(q): formulas[_position(i, len(formulas))] for q, i in places.items()}

        return cls(
            variables,
            chosen(data["totals"]),
            {_text(path): chosen(indices) for path, indices in data["modules"].items()},
            tuple(_point(p, count) for p in data["checked"]),
            tuple(_text(note) for note in data["notes"]),
        )


def _encoded(formula: Formula) -> list[dict[str, Any]]:
    return [
        {
            "where": [[s.low, s.high, s.step] for s in piece.where],
            "terms": [[c.numerator, c.denominator, *p] for c, p in piece.polynomial.terms],
        }
        for piece in formula.pieces
    ]


def _decoded(data: Any, variables: int) -> Formula:
    return Formula(tuple(_piece(piece, variables) for piece in data))


def _piece(data: Any, variables: int) -> Piece:
    spans = []
    for low, high, step in data["where"]:
        spans.append(Span(_integer(low), None if high is None else _integer(high), _natural(step)))
    if len(spans) != variables:
        raise ValueError("a formula has not as many spans as there are variables")
    return Piece(tuple(spans), Polynomial.of(dict(_terms(data["terms"], variables))))


def _terms(data: Any, variables: int) -> Iterator[tuple[Powers, Fraction]]:
    for numerator, denominator, *powers in data:
        if any(p > 20 for p in _point(powers, variables)):
            raise ValueError("a formula has a power above 20")
        yield _point(powers, variables), Fraction(_integer(numerator), _natural(denominator))


def _point(data: Any, length: int) -> Point:
    point = tuple(_integer(size) for size in data)
    if len(point) != length or min(point, default=0) < 0:
        raise ValueError("a point has not one size for each variable")
    return point


def _position(value: Any, length: int) -> int:
    if not 0 <= _integer(value) < length:
        raise ValueError(f"there is no formula {value}")
    return int(value)


def _natural(value: Any) -> int:
    if _integer(value) < 1:
        raise ValueError(f"{value} is not at least 1")
    return int(value)


def _integer(value: Any) -> int:
    if type(value) is not int or abs(value) > 10**30:
        raise TypeError(f"{value!r:.40} is not a number in range")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value
