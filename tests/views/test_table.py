"""The table as a person sees it, and that its rows add up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opgraph import Profile, RenderError
from opgraph.views import render
from opgraph.views.text.table import rows


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("name", ["resnet18", "bert-base-uncased"])
def test_the_table_looks_like_its_golden(
    saved: Callable[[str], Profile], golden: Callable[[str, str], None], name: str, width: int
) -> None:
    golden(str(render("table", saved(name).on(), width=width)), f"table-{name}-{width}.txt")


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("fold", [False, True])
def test_the_rows_below_a_module_add_up_to_it(
    saved: Callable[[str], Profile], depth: int, fold: bool
) -> None:
    listed = rows(saved("bert-base-uncased").on(), depth, fold=fold)
    for position, row in enumerate(listed):
        below = []
        for other in listed[position + 1 :]:
            if other.depth <= row.depth:
                break
            below += [other] if other.depth == row.depth + 1 else []
        if below:
            assert sum(b.cost.flops for b in below) == row.cost.flops
            assert sum(b.cost.bytes for b in below) == row.cost.bytes


def test_an_unknown_order_is_refused(saved: Callable[[str], Profile]) -> None:
    with pytest.raises(RenderError, match="cannot sort by 'weight'"):
        render("table", saved("resnet18").on(), sort="weight")
