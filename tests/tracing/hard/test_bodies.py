"""Operators that run functions: what these run is counted, as often as it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.apart import thorough
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import opgraph

pytestmark = [pytest.mark.live, pytest.mark.slow]  # they import Dynamo

ROW, ROWS = 2 * 4 * 4, 3


class Layer(nn.Module):
    """One linear layer, and a forward of one's own over three rows of four numbers."""

    def __init__(self, run: Callable[[nn.Module, Tensor], object]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.run = run

    def forward(self, x: Tensor) -> object:
        return self.run(self.layer, x)


def profile(run: Callable[[Any, Tensor], object]) -> opgraph.Profile:
    return opgraph.profile(Layer(run).eval(), torch.ones(ROWS, 4))


def test_scan_runs_its_body_for_each_row() -> None:
    found = profile(lambda m, x: scan(lambda c, y: (c @ m.weight, c + y), x[0], x))
    assert found.totals.flops == ROWS * ROW
    assert found.totals.coverage == 1.0


def test_map_runs_its_body_for_each_row() -> None:
    found = profile(torch_map)
    assert found.totals.flops == ROWS * ROW
    assert found.totals.coverage == 1.0


def test_associative_scan_combines_in_pairs() -> None:
    """Of three rows, the second is combined with the first, and the third with what came out."""
    found = profile(
        lambda m, x: associative_scan(lambda a, b: a @ m.weight + b, x, 0, combine_mode="generic")
    )
    assert found.totals.flops == 2 * ROW
    assert found.totals.coverage == 1.0


def test_while_loop_runs_as_often_as_its_condition_says() -> None:
    def five_times(m: Any, x: Tensor) -> object:
        return while_loop(
            lambda i, y: i < 5, lambda i, y: (i + 1, y @ m.weight), (torch.tensor(0), x)
        )

    found = profile(five_times)
    assert found.tracing.tensors == "fake"
    assert found.totals.flops == 5 * ROWS * ROW
    assert found.totals.coverage == 1.0


def test_while_loop_on_values_runs_on_them() -> None:
    def until_large(m: Any, x: Tensor) -> object:
        return while_loop(lambda y: y.sum() < 40, lambda y: (y + 1 + 0 * m(y),), (x,))

    found = profile(until_large)
    assert found.tracing.tensors == "real"
    assert found.totals.flops == 3 * ROWS * ROW  # 12, 24, 36 and 48
    assert not found.model.notes


def test_a_branch_is_the_one_taken_where_that_is_known() -> None:
    def known(m: Any, x: Tensor) -> object:
        return torch.cond(torch.tensor(False), lambda y: m(m(y)), m, (x,))

    found = profile(known)
    assert found.totals.flops == ROWS * ROW
    assert not found.model.notes


def test_a_branch_that_nothing_decides_is_the_costlier_one_with_a_remark() -> None:
    found = profile(lambda m, x: torch.cond(x.sum() > 0, m, lambda y: m(m(y)), (x,)))
    assert found.totals.flops == 2 * ROWS * ROW
    assert found.model.notes == ("torch.cond is counted with the branch that has more FLOPs",)


@torch.compiler.nested_compile_region
def region(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight


BODIES: dict[str, tuple[Callable[[Any, Tensor], object], int]] = {
    "cond": (lambda m, x: torch.cond(x.sum() > 0, m, lambda y: m(y) + 1, (x,)), 1),
    "cond with the dearer branch last": (
        lambda m, x: torch.cond(x.sum() > 0, m, lambda y: m(m(y)), (x,)), 2),
    "weights as operands": (
        lambda m, x: torch.cond(x.sum() > 0, torch.matmul, lambda y, w: y @ w + 1, (x, m.weight)), 1),
    "scan": (lambda m, x: scan(lambda c, y: (c + 1, m(y) + c), x[0] * 0, x)[1], 1),
    "map": (torch_map, 1),
    "while_loop": (
        lambda m, x: while_loop(
            lambda i, _: i < 2, lambda i, y: (i + 1, m(y)), (torch.tensor(0), x))[1], 2),
    "region": (lambda m, x: region(x, m.weight), 1),
}  # fmt: skip
"""Bodies, and how often all rows go through the layer."""


@pytest.mark.parametrize("tracer", ["auto", "export", "dynamo"])
def test_regions_are_the_same_with_every_tracer(tracer: str) -> None:
    model = Layer(lambda m, x: region(region(x, m.weight), m.weight))
    found = opgraph.profile(model, torch.ones(ROWS, 4), tracer=tracer)
    assert found.totals.flops == 2 * ROWS * 2 * 4 * 4


@pytest.mark.parametrize("kind", BODIES)
def test_gradients_go_through_bodies(kind: str) -> None:
    """A layer before, one within, and one behind: of each but the first, gradients of weights and of what
    it was given."""
    run, times = BODIES[kind]
    model = nn.Sequential(nn.Linear(4, 4), Layer(run), nn.Linear(4, 4))
    found = opgraph.profile(model, torch.ones(ROWS, 4), mode="train")
    flops = {
        phase: sum(n.flops for n in found.graph.nodes if n.phase == phase)
        for phase in ("forward", "backward")
    }
    whole = ROWS * ROW
    assert flops == {"forward": (2 + times) * whole, "backward": (1 + 2 * times + 2) * whole}
    assert {n.scope for n in found.graph.nodes if n.phase == "optimizer"} == {"0", "1.layer", "2"}


@pytest.mark.parametrize("tracer", ["dynamo", *thorough("export")])
@pytest.mark.parametrize("kind", [k for k in BODIES if k != "region"])
def test_bodies_are_captured(kind: str, tracer: str) -> None:
    run, times = BODIES[kind]
    found = opgraph.profile(Layer(run), torch.ones(ROWS, 4), tracer=tracer)
    assert found.totals.flops == times * ROWS * ROW
