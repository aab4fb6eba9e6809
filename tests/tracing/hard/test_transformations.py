"""Functions and contexts that change how a model runs."""

from __future__ import annotations

import pytest
import torch
from tests.tracing.hard.models import Function, X, agrees, profiled
from torch.utils.checkpoint import checkpoint

import opgraph


def test_checkpoint():
    agrees(Function(lambda self, x: checkpoint(self.linear, x, use_reentrant=False)), X)
    agrees(Function(lambda self, x: checkpoint(self.linear, x, use_reentrant=True)), X)


def test_vmap():
    profile = profiled(Function(lambda self, x: torch.vmap(self.linear)(x)), X)
    assert profile.totals.flops == 2 * 4 * 8 * 8


def test_grad_inside():
    def run(self, x):
        return torch.func.grad(lambda t: self.linear(t).sum())(x)

    profile = profiled(Function(run), X)
    assert profile.totals.flops >= 2 * 4 * 8 * 8


def test_gradients_by_autograd_inside():
    def run(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(self.linear(x).sum(), x)[0]

    assert profiled(Function(run), X).totals.flops >= 2 * 4 * 8 * 8


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.grad])
def test_a_profile_within_a_transform_is_refused_in_a_sentence(transform):
    model = torch.nn.Linear(8, 8)

    def run(x):
        opgraph.profile(model, X)
        return x.sum()

    with pytest.raises(opgraph.InputError, match=r"within a function that torch\.func transforms"):
        transform(run)(torch.ones(3))


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_profile_within_a_checkpoint_is_no_part_of_it(mode):
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), torch.randn(4, 8)
    flops, found = opgraph.profile(model, x, mode=mode).totals.flops, []

    def segment(x):
        found.append(opgraph.profile(model, x.detach(), mode=mode).totals.flops)
        return model(x)

    given = x.clone().requires_grad_()
    checkpoint(segment, given, use_reentrant=False).sum().backward()
    assert found == [flops, flops]
    assert torch.equal(given.grad, torch.autograd.grad(model(given).sum(), given)[0])


class Routed(torch.nn.Module):
    """Drops numbers, and sends each row to one of two layers by what is left of it."""

    def __init__(self):
        super().__init__()
        self.drop, self.route = torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))

    def forward(self, x):
        x = self.drop(x)
        chosen, out = self.route(x).argmax(-1), torch.zeros_like(x)
        for i, layer in enumerate(self.layers):
            rows = torch.where(chosen == i)[0]
            out = out.index_add(0, rows, layer(x[rows]))
        return out


def test_what_a_checkpoint_runs_again_draws_the_same_numbers():
    model = torch.nn.Sequential(Routed(), Routed())
    for _ in range(3):
        profile = opgraph.profile(model, torch.randn(64, 8), mode="train", checkpointing=True)
        assert any("nonzero" in remark for remark in profile.remarks)  # on real tensors
        assert "recompute" in {node.phase for node in profile.graph.nodes}


def test_a_type_of_types_is_said_within_a_forward():
    def run(self, x):
        def of(kind: type[torch.nn.Module]):
            return next(part for part in self.children() if isinstance(part, kind))

        return of(torch.nn.Linear)(x)

    agrees(Function(run), X)


def test_inference_mode_inside():
    def run(self, x):
        with torch.inference_mode():
            return self.linear(x).relu()

    agrees(Function(run), X)
    agrees(Function(torch.inference_mode()(lambda self, x: self.linear(x).softmax(-1))), X)


def test_autocast():
    def run(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)

    profile = agrees(Function(run), X)
    linear = next(n for n in profile.graph.nodes if n.op == "linear")
    assert any(k.dtype == "bfloat16" and k.flops for k in linear.kernels)


def test_cond_counts_the_dearer_branch():
    def run(self, x):
        return torch.cond(x.sum() > 0, lambda t: t @ t.t(), lambda t: (t @ t.t()) * 2, (x,))

    profile = opgraph.profile(Function(run), inputs=X)
    assert profile.totals.flops == 2 * 4 * 4 * 8
