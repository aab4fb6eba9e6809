"""The ladder: symbolic tracing, Dynamo, a plain run; the first that gets through, and why not before."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import opgraph


def attempts(profile: opgraph.Profile) -> list[tuple[str, str, bool]]:
    return [(a.tracer, a.tensors, a.error is None) for a in profile.tracing.attempts]


def test_symbolic_tracing_wins_where_it_can() -> None:
    found = opgraph.profile(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(1, 4), tracer="hybrid"
    )
    assert attempts(found) == [("fx", "fake", True)]


class Late(nn.Module):
    """Makes its table at the first call, as detectors make their anchors."""

    table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.full((4,), torch.ones(1).item())
        if x.shape[0] > 1:
            x = x.flip(0)
        return x + self.table


@pytest.mark.slow
def test_a_warm_model_has_no_break_where_a_cold_one_has() -> None:
    model = Late()
    x = torch.ones(1, 4)
    cold = opgraph.profile(model, x, tracer="dynamo")
    warm = opgraph.profile(model, x, tracer="dynamo", warm_up=True)
    assert (len(cold.graph.breaks), len(warm.graph.breaks)) == (1, 0)
    assert model.table is None


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"tracer": "dynamo"}, {"inductor": True}])
def test_a_warm_up_compiles_nothing_of_the_model_s(how) -> None:
    shapes: list[list[int]] = []

    def backend(module, given):
        shapes.append([each.dim() if isinstance(each, torch.Tensor) else -1 for each in given])
        return module.forward

    class Compiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.inner = torch.compile(self.layer.forward, backend=backend)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).relu()

    model = Compiled()
    opgraph.profile(model, torch.ones(8, 4), warm_up=True, **how)
    assert shapes == []
    model(torch.ones(2, 4))
    assert len(shapes) == 1
    assert -1 not in shapes[0]  # of sizes that were not seen to change


class HalfMade(nn.Module):
    """Remembers that it has begun before it is known whether it gets through."""

    begun = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.begun:
            return x.exp()
        self.begun = True
        return x.relu() if x.sum() >= 0 else x


def test_a_warm_up_that_fails_leaves_nothing_to_the_attempt() -> None:
    # On fake tensors the warm-up fails at the branch; the run after it must fail there too, and not go on
    # from what the warm-up began.
    found = opgraph.profile(HalfMade(), torch.ones(4), warm_up=True)
    assert found.tracing.attempts[0].error is not None
    assert found.tracing.attempts[-1].tensors != "fake"
    assert [n.op for n in found.graph.nodes if n.kind == "call"] == ["exp"]


class Leaves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.relu()
        raise SystemExit(3)


@pytest.mark.parametrize("how", [{"warm_up": True}, {"tracer": "hybrid"}])
def test_a_warm_up_that_leaves_python_does_not(how) -> None:
    found = opgraph.profile(Leaves(), torch.ones(4), partial=True, **how)
    assert found.graph.failed.error.startswith("SystemExit")


class Data(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0] if x.sum() > 0 else -x


def test_every_failure_is_kept_with_its_reason() -> None:
    found = opgraph.profile(Data(), torch.ones(4), tracer="hybrid")
    assert attempts(found)[-1] == ("dynamo", "fake weights", True)
    assert all(a.error for a in found.tracing.attempts[:-1])
    assert found.graph.failed is None


class Unfollowable(nn.Module):
    @torch._dynamo.disable
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > len(str(x)):
            raise ValueError("too many")
        return x.relu()


def test_a_model_that_dynamo_does_not_enter_is_still_recorded() -> None:
    found = opgraph.profile(Unfollowable(), torch.ones(4), tracer="hybrid")
    assert [n.op for n in found.graph.nodes if n.kind == "call"] == ["relu"]
    assert found.tracing.attempts[0].error is not None
