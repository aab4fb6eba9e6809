"""Models on an accelerator: a run is on the CPU, with their values, and leaves them where and as they are.
The accelerator here is torch's lazy one, which has its tensors elsewhere and computes on any machine."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from torch import nn
from torch._lazy import ts_backend
from torch.distributed.fsdp import fully_shard

import opgraph
from opgraph.costs.formulas.linalg import stored

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


@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_weight_on_an_accelerator_is_what_it_was(device: str, layout: str) -> None:
    class Thin(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(getattr(torch.eye(8, device=device), layout)())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sparse.mm(self.weight, x)

    model, x = Thin(), torch.randn(8, 8, device=device)
    weight = model.weight
    before = bits(*stored(weight.detach()))
    assert opgraph.profile(model, x).totals.flops == 2 * 8 * 8
    step = opgraph.profile(model, x, mode="train", loss="sum", optimizer="sgd")
    assert step.totals.coverage == 1.0
    assert model.weight is weight
    assert weight.grad is None
    assert weight.device.type == device
    assert all(map(torch.equal, bits(*stored(weight.detach())), before))


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA here")
def test_what_is_asked_of_a_gpu_beside_its_tensors_is_said_or_set_back() -> None:
    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.memory._record_memory_history(max_entries=10)
            return self.linear(x) if x.is_cuda else self.linear(x) * 2

    model, x = Asks().cuda(), torch.randn(4, 8, device="cuda")
    found = opgraph.profile(model, x)
    assert not torch._C._cuda_isHistoryEnabled()
    said = {(remark.code, remark.text.partition(":")[0]) for remark in found.remarks}
    assert ("state", "forward reset the statistics of a GPU's memory") in said
    assert any(code == "branch" and "told that it is not" in text for code, text in said)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA here")
def test_a_replayed_graph_is_in_no_total_and_that_is_said() -> None:
    class Replays(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.last = nn.Linear(8, 8).cuda(), nn.Linear(8, 8).cuda()
            self.x, self.graph = torch.zeros(4, 8, device="cuda"), torch.cuda.CUDAGraph()
            self.linear(self.x)
            with torch.cuda.graph(self.graph), torch.no_grad():
                self.y = self.linear(self.x)
            self.graph.replay()  # or nobody knows what is in `y`

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.x.copy_(x)
            self.graph.replay()
            return self.last(self.y)

    model, x = Replays(), torch.randn(4, 8, device="cuda")
    before = bits(model.x, model.y)
    found = opgraph.profile(model, x)
    assert found.totals.flops == 2 * 4 * 8 * 8  # of the last layer alone
    assert [r.code for r in found.remarks if "CUDA graph" in r.text] == ["not-counted"]
    assert all(map(torch.equal, bits(model.x, model.y), before))
    assert torch.allclose(model(x), model.last(model.linear(x)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA here")
def test_weights_that_are_sharded_on_a_gpu_are_profiled_and_left() -> None:
    """Between calls they have given their memory back."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
    try:
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).cuda()
        x = torch.randn(4, 8, device="cuda")
        for layer in (model[0], model[2], model):
            fully_shard(layer)
        model(x).sum().backward()
        before = bits(*(p.to_local() for p in model.parameters()))
        gradients = bits(*(p.grad.to_local() for p in model.parameters()))
        for mode in ("infer", "train"):
            found = opgraph.profile(model, x, mode=mode)
            assert sum(n.flops for n in found.graph.nodes if n.op == "linear") > 0
        assert all(map(torch.equal, bits(*(p.to_local() for p in model.parameters())), before))
        now = bits(*(p.grad.to_local() for p in model.parameters()))
        assert all(map(torch.equal, now, gradients))
        model(x).sum().backward()
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("real", [False, True])
def test_no_address_of_a_run_is_given_to_what_runs_on_an_accelerator(real: bool) -> None:
    """There is no such tensor there: the work of all of the process on it would end."""

    class Launches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.function = nn.Linear(8, 8), ctypes.c_void_p()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x)
            if real and float(y.sum()) > 1e9:
                return y
            given = (ctypes.c_void_p * 1)(y.data_ptr())
            ctypes.CDLL("libcuda.so.1").cuLaunchKernel(
                self.function, *(1,) * 6, 0, None, given, None
            )
            return y

    with pytest.raises(opgraph.TraceError, match="in the host's memory"):
        opgraph.profile(Launches(), torch.randn(4, 8))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA here")
def test_arrays_and_kernels_of_cupy_are_as_they_were() -> None:
    cupy = pytest.importorskip("cupy")
    kernel = cupy.RawKernel(
        'extern "C" __global__ void f(float* x) { x[threadIdx.x] += 1; }', "f")  # fmt: skip

    class Kernel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.seen = nn.Linear(8, 8), cupy.zeros((4, 8), dtype="float32")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += 1
            y = self.linear(x)
            kernel((1,), (32,), (y.data_ptr(),))
            return y

    model, x = Kernel().cuda(), torch.randn(4, 8, device="cuda")
    with torch.no_grad():
        before = model(x)
        with pytest.raises(opgraph.TraceError, match="in the host's memory"):
            opgraph.profile(model, x)
        assert (model.seen.get() == 1).all()
        assert torch.equal(model(x), before)


def _by_property(x: torch.Tensor, places: torch.Tensor) -> bool:
    return all(t.is_cuda for t in (x, places))


def _by_device(x: torch.Tensor, places: torch.Tensor) -> bool:
    return x.device.type in ("cuda", "xpu") and places.device == x.device


@pytest.mark.parametrize("there", [_by_property, _by_device])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_code_for_a_gpu_alone_is_told_that_its_tensors_are_there(there: Any, mode: str) -> None:
    class Insists(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            if not there(x, places):
                raise ValueError("tensors are to be on cuda")
            with torch.cuda.device(x.device):
                made = torch.ones(8, device=x.device) + torch.zeros(8).to(self.linear.weight.device)
            return self.linear(x)[places] + made

    model, x = Insists(), (torch.randn(4, 8), torch.tensor([0, 2]))
    found = opgraph.profile(model, x, mode=mode)
    assert found.totals.flops == 2 * 4 * 8 * 8 * (1 if mode == "infer" else 2)
    assert [a.tensors for a in found.tracing.attempts] == ["fake", "fake"]
    assert [r.code for r in found.remarks if "on a GPU" in r.text] == ["branch"]
    assert x[0].device.type == "cpu"
    assert not x[0].is_cuda


def test_code_that_runs_anywhere_is_told_that_its_tensors_are_on_the_cpu() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.is_cuda or x.device.type == "cuda":
                raise NotImplementedError
            return self.linear(x)

    found = opgraph.profile(Branches(), torch.randn(4, 8))
    assert len(found.tracing.attempts) == 1
    assert not found.remarks
