"""Every operator with a cost of its own against figures worked out by hand (tests/costs/cases), and every
formula against having a source."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
import torch
from tests.costs.hand import Case, floats
from torch._higher_order_ops.flex_attention import flex_attention, flex_attention_backward
from torch.utils.flop_counter import flop_registry

from opgraph.costs import count
from opgraph.costs.registry import contractions, formulas, source, traffic

FILES = sorted(p.stem for p in (Path(__file__).parent / "cases").glob("*.py"))
CASES = [c for name in FILES for c in import_module(f"tests.costs.cases.{name}").CASES]


OLDER = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15)
"""Whether this torch is older than what the formulas were written for: it lacks some operators, or does not
run them on tensors without data."""


def _slow(case: Case) -> bool:
    """The first case of bitsandbytes imports it, and TorchInductor with it: five seconds."""
    return case.operator.startswith("bitsandbytes")


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=str(c), marks=[pytest.mark.slow] * _slow(c)) for c in CASES]
)
def test_an_operator_costs_what_it_costs_by_hand(case: Case) -> None:
    if OLDER and not case.exists():
        pytest.skip(f"not in torch {torch.__version__}")
    try:
        kernel = case.kernel()
    except (NotImplementedError, AttributeError):
        if OLDER:
            pytest.skip(f"without data not in torch {torch.__version__}")
        raise
    assert kernel.cost == case.cost
    assert (kernel.flops, kernel.other_flops) == (case.flops, case.other)
    if case.bytes is not None:
        assert (kernel.read, kernel.written) == case.bytes


Q, K = floats(2, 3, 5, 4), floats(2, 3, 7, 4)
"""Two sequences, 3 heads of 4; 5 queries meet 7 keys."""
HIGHER_ORDER = {
    # Two products; the first again, and two gradients of each.
    flex_attention: ((Q, K, K), 2),
    flex_attention_backward: ((Q, K, K, Q, floats(2, 3, 5), Q), 5),
}


@pytest.mark.parametrize("operator", HIGHER_ORDER, ids=str)
def test_a_higher_order_operator_costs_what_it_costs_by_hand(operator) -> None:
    args, products = HIGHER_ORDER[operator]
    kernel = count.cost(count.describe(operator), args, {}, Q)
    assert (kernel.cost, kernel.flops) == ("formula", products * 2 * 2 * 3 * 5 * 7 * 4)


def test_every_entry_has_a_case() -> None:
    """A new formula, rule for bytes or view without a figure worked out by hand fails here."""
    cases = {c.operator for c in CASES} | set(map(str, HIGHER_ORDER))
    theirs = {str(p) for p in flop_registry if not str(p).startswith("opgraph")}
    entries = {*formulas, *contractions, *theirs, *count._VIEWS_IN_ALL_BUT_SCHEMA}
    assert sorted(entries - cases) == []
    assert sorted(set(traffic) - {c.operator for c in CASES if c.bytes is not None}) == []


def test_every_formula_names_its_source() -> None:
    """Literature by its year, a file, torch's documentation, or a derivation made here."""
    sources = {name: f.source for name, f in formulas.items()}
    sources |= {name: source(product.count) for name, product in contractions.items()}
    told = re.compile(
        r"\b(19|20)\d\d\b|\.(py|cpp|h|html)\b|documentation|definition|derived here|\[\w+\]|`\w+`"
    )
    assert [name for name, text in sources.items() if not told.search(text)] == []


def test_in_place_operators_cost_what_their_twins_do() -> None:
    """`x.sigmoid_()` does what `x.sigmoid()` does."""
    twins = 0
    for name, found in formulas.items():
        packet = getattr(torch.ops.aten, name.removeprefix("aten.") + "_", None)
        if name.startswith("aten.") and packet is not None:
            operator = count.describe(getattr(packet, packet.overloads()[0]))
            assert operator.zero or operator.formula is found, name
            twins += 1
    assert twins > 30
