"""Formulas are found from samples alone, exactly, with their pieces."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opgraph.analysis.scaling.symbolic import Evaluate, Sample, solve
from opgraph.record.formulas import Formula, Formulas, Piece, Polynomial, Span, Variable

KEY = ("", "flops")


def costing(function: object) -> Evaluate:
    def evaluate(point: tuple[int, ...]) -> Sample:
        return {KEY: function(*point)}  # type: ignore[operator]

    return evaluate


def texts(formula: Formula, names: str) -> list[str]:
    return [
        f"{p.polynomial.text(names)} | "
        + ", ".join(filter(None, (s.text(n) for s, n in zip(p.where, names, strict=True))))
        for p in formula.pieces
    ]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-50, 10**9), min_size=8, max_size=8), st.integers(5, 40))
def test_a_polynomial_is_found_again(c: list[int], size: int) -> None:
    def cost(b: int, s: int) -> int:
        return sum(c[4 * i + j] * b**i * s**j for i in range(2) for j in range(4))

    assume(all(cost(b, s) > 0 for b in (1, 2, 3, 8, 64) for s in (1, 5, 16, 64, 1000)))
    found = solve(costing(cost), (2, 16), "BS")
    formula = found.formulas[KEY]
    assert len(formula.pieces) == 1
    assert formula((size, 3 * size)) == cost(size, 3 * size)
    assert len(found.checked) >= 4
    assert not found.notes


def test_a_batch_of_one_may_be_special() -> None:
    found = solve(costing(lambda b, s: 7 * s if b == 1 else 10 * b * s), (2, 16), "BS")
    assert texts(found.formulas[KEY], "BS") == ["10·B·S | B ≥ 2", "7·S | B = 1"]


def test_a_threshold_is_found_to_the_digit() -> None:
    found = solve(costing(lambda s: s * s if s <= 100 else 100 * s), (16,), "S")
    formula = found.formulas[KEY]
    assert texts(formula, "S") == ["S² | S ≤ 100", "100·S | S ≥ 101"]
    assert [formula((s,)) for s in (100, 101)] == [10_000, 10_100]


def test_strides_make_formulas_on_multiples() -> None:
    found = solve(costing(lambda n: (n // 32) ** 2), (224,), "N")
    formula = found.formulas[KEY]
    assert texts(formula, "N") == ["1/1,024·N² | N = 32·k"]
    assert formula((320,)) == 100
    assert formula((321,)) is None


def test_a_table_that_is_read_whole_limits_the_batch() -> None:
    found = solve(costing(lambda b, s: min(b * s, 3000)), (2, 16), "BS", [None, 256])
    formula = found.formulas[KEY]
    assert texts(formula, "BS") == ["B·S | B ≤ 11, S ≤ 256"]


@pytest.mark.parametrize(
    "cost",
    [
        lambda b, s: min(b * s, 3000),
        lambda b, s: 8 * min(b * s, 512) + (200 if b == 1 else 136) * b * s,
        lambda b, s: 256 * b * s if b * s > 1000 else 128 * b * s,
        lambda b, s: s if b == 1 and s <= 300 else b * s * s,
    ],
)
def test_a_formula_is_silent_rather_than_wrong(cost: Callable[[int, int], int]) -> None:
    """Thresholds in the product of two sizes cut corners off the boxes that pieces are, far and near."""
    found = solve(costing(cost), (2, 128), "BS")
    formula = found.formulas[KEY]
    assert found.checked
    assert {p: formula(p) for p in found.checked} == {p: cost(*p) for p in found.checked}
    sizes = product((1, 2, 3, 5, 8, 32), (1, 16, 125, 126, 128, 256, 257, 300, 512, 1001, 2048))
    said = {p: formula(p) for p in sizes if formula(p) is not None}
    assert len(said) > 20
    assert said == {p: cost(*p) for p in said}


def test_what_is_no_polynomial_is_said() -> None:
    found = solve(costing(lambda s: s.bit_count()), (16,), "S")
    assert found.notes == ("not a polynomial in S, nor on multiples of a step up to 512",)


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ({(1, 2): 36864, (1, 1): 169869312}, "B·S·(36,864·S + 169,869,312)"),
        ({(1, 1): 1}, "B·S"),
        ({(0, 0): 5}, "5"),
        ({}, "0"),
        ({(1, 0): 2, (0, 0): -3}, "2·B − 3"),
        ({(0, 2): Fraction(1, 2), (0, 0): 1}, "1/2·S² + 1"),
    ],
)
def test_polynomials_are_written_with_common_factors(
    terms: dict[tuple[int, int], int], text: str
) -> None:
    assert Polynomial.of({p: Fraction(c) for p, c in terms.items()}).text("BS") == text


def test_formulas_come_back_from_their_data() -> None:
    half = Polynomial.of({(1, 2): Fraction(1, 2), (0, 0): Fraction(7)})
    formula = Formula((Piece((Span(2), Span(32, 512, 32)), half),))
    formulas = Formulas(
        (Variable("B", "batch_size", "batch", 1), Variable("S", "seq_len", "tokens", 128)),
        {"flops": formula, "peak_memory": Formula(())},
        {"a.b": {"flops": formula}},
        ((3, 64),),
        ("a note",),
    )
    assert Formulas.from_dict(formulas.to_dict()) == formulas
    assert len(formulas.to_dict()["formulas"]) == 2
    assert formulas.at(B=2, S=64) == {"flops": 4103, "peak_memory": None}


@pytest.mark.parametrize(
    "broken",
    [
        {"totals": {"flops": 9}},
        {"variables": [{"name": "B"}]},
        {"formulas": [[{"where": [[1, None, 0]], "terms": []}]]},
        {"formulas": [[{"where": [[1, None, 1]], "terms": [[1, 1, 99]]}]]},
        {"formulas": [[{"where": [[1, None, 1]], "terms": [[1, 0, 1]]}]]},
        {"checked": [[1, 2, 3]]},
    ],
)
def test_broken_data_is_refused(broken: dict[str, object]) -> None:
    data = Formulas((Variable("B", "batch_size", "batch", 1),), {"flops": Formula(())}).to_dict()
    with pytest.raises((ValueError, TypeError, KeyError)):
        Formulas.from_dict({**data, **broken})


def test_attention_over_all_positions_of_an_image_is_of_degree_four() -> None:
    found = solve(costing(lambda n: 32 * n**4 + 192 * n**2), (224,), "N")
    assert texts(found.formulas[KEY], "N") == ["N²·(32·N² + 192) | "]
