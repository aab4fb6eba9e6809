"""What docs/costs.md says of coefficients against the registry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opgraph.costs import count  # noqa: F401  (registers the formulas)
from opgraph.costs.registry import Call, formulas

TEXT = (Path(__file__).parents[2] / "docs" / "costs.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| (\d+) \| (.*) \|$", TEXT, re.MULTILINE)


@pytest.mark.parametrize(("operator", "flops", "operations"), ROWS)
def test_a_row_of_the_table_is_what_is_counted(operator, flops, operations) -> None:
    sizes = (4, 6)
    found = formulas[f"aten.{operator}"]
    call = Call((sizes, "none", "none"), (sizes,), (sizes,))
    assert found.work(call) == int(flops) * 24
    steps = re.fullmatch(r".*: ([a-z, ]+)", found.source)
    if steps and "," in steps[1]:
        assert operations.startswith(steps[1])


def test_the_table_is_there() -> None:
    assert len(ROWS) > 20
