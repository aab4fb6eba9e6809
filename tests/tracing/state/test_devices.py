"""Models on an accelerator: a run is on the CPU, with their values, and leaves them where and as they are.
The accelerator here is torch's lazy one, which has its tensors elsewhere and computes on any machine."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from torch import nn
from torch._lazy import ts_backend

import opgraph

CUDA = pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no CUDA here"))  # fmt: skip
EVERYWHERE = pytest.mark.parametrize("device", ["lazy", CUDA])


@pytest.fixture(scope="module", autouse=True)
def _lazy() -> None:
    ts_backend.init()


def bits(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [t.detach().cpu().clone() for t in tensors]


class Spread(nn.Module):
    """What has tensors in all places, whose path hangs on their values, and that writes to all of them."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8).to(device)
        self.gate = nn.Parameter(torch.tensor(5.0, device=device))
        self.register_buffer("seen", torch.tensor([5.0], device=device))
        self.scale, self.shared = torch.rand(8).to(device), self.linear.weight
        self.many = [torch.ones(8, device=device)]
        self.index = torch.arange(8, device=device)
        self.device = device

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for each in (self.scale, self.many[0], self.seen, self.linear.weight, x):
                each.add_(1)
        self.many.append(x)
        for _ in range(int(self.index.max())):
            if float(self.gate) > 1 and float(self.seen) > 5:
                x = self.linear(x)
        made = torch.arange(8, device=self.device) + torch.ones(8).to(self.device)
        return x[:, self.index] * self.scale + self.many[0] + made + self.shared.sum()

    def everything(self) -> list[torch.Tensor]:
        return [
            *self.parameters(),
            *self.buffers(),
            self.scale,
            self.shared,
            *self.many,
            self.index,
        ]


@EVERYWHERE
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_values_on_an_accelerator_say_which_way_a_run_goes(device: str, mode: str) -> None:
    model, x = Spread(device), torch.randn(4, 8).to(device)
    tensors = [*model.everything(), x]
    before = bits(*tensors)
    profile = opgraph.profile(model, x, mode=mode)
    assert profile.tracing.tensors == "real"
    calls = [n for n in profile.graph.nodes if n.op == "linear" and n.phase == "forward"]
    assert len(calls) == 7
    assert all("linear.bias" in node.parameters for node in calls)
    now = [*model.everything(), x]
    assert len(now) == len(tensors)
    assert all(
        one is other and one.device.type == device for one, other in zip(now, tensors, strict=True)
    )
    assert all(map(torch.equal, bits(*now), before))


@EVERYWHERE
def test_numbers_that_are_given_on_an_accelerator_are_known(device: str) -> None:
    class Repeats(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
            for _ in range(int(times.max())):
                x = self.linear(x)
            return x

    model = Repeats().to(device)
    given = torch.randn(4, 8).to(device), torch.tensor([1, 5], device=device)
    assert opgraph.profile(model, given).totals.flops == 5 * 2 * 4 * 8 * 8


@EVERYWHERE
def test_what_is_on_an_accelerator_is_measured_with_its_values(device: str) -> None:
    """And nobody draws random numbers for it."""
    model, x = nn.Linear(8, 8).to(device), torch.randn(4, 8).to(device)
    before, state = bits(*model.parameters()), torch.get_rng_state()
    found = opgraph.measure(model, x, device="cpu" if device == "lazy" else device, steps=2)
    assert found.seconds > 0
    assert all(map(torch.equal, bits(*model.parameters()), before))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("device", [CUDA])
def test_copies_of_what_is_on_an_accelerator_count_against_the_limit(device: str) -> None:
    model, x = Spread(device), torch.randn(4, 8).to(device)
    before = bits(*model.everything())
    with pytest.raises(opgraph.TraceError, match="--memory-limit"):
        opgraph.profile(model, x, memory_limit=1e-7)
    assert all(map(torch.equal, bits(*model.everything()), before))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA here")
def test_what_a_forward_sets_of_a_gpu_is_set_back() -> None:
    class Sets(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.stream = nn.Linear(8, 8), torch.cuda.Stream()
            self.generator = torch.Generator("cuda").manual_seed(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.cuda.manual_seed_all(5)
            torch.cuda.set_stream(self.stream)
            torch.cuda.set_sync_debug_mode(1)
            torch.cuda.set_per_process_memory_fraction(0.5)
            torch.backends.cuda.cufft_plan_cache.max_size = 10
            noise = torch.randn(8, device="cuda", generator=self.generator)
            return self.linear(x.cuda()) + noise

    def now() -> list[Any]:
        return [
            torch.cuda.current_stream(), torch.cuda.current_device(), torch.cuda.get_sync_debug_mode(),
            torch.cuda.get_per_process_memory_fraction(), torch.cuda.memory_allocated(),
            torch.backends.cuda.cufft_plan_cache.max_size, torch.cuda.get_rng_state().tolist(),
            model.generator.get_state().tolist(),
        ]  # fmt: skip

    model, x = Sets().cuda(), torch.randn(4, 8, device="cuda")
    before = now()
    assert opgraph.profile(model, x).totals.flops == 2 * 4 * 8 * 8
    assert now() == before
