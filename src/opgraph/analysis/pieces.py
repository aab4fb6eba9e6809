"""Polynomials on boxes put together to formulas: where one polynomial says it all, boxes are one piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from opgraph.formulas import Formula, Piece, Polynomial, Span

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
