"""Calls that look the same give the same: with and without remembering them, the graph is one."""

from __future__ import annotations

import gc
import os
import weakref

import pytest
import torch
from tests.apart import thorough
from tests.conftest import DATA
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import flop_counter

import opgraph
from opgraph.record.graph import Kernel
from opgraph.sources import resolve
from opgraph.tracing.capture.recorder import Recorder
from opgraph.tracing.fake.cache import SWITCH, cached_call, fake_call_cache, looks
from opgraph.tracing.fake.tensors import fake

SAMPLE = (DATA / "sample.txt").read_text(encoding="utf-8").split()


class Rolling(nn.Module):
    """The same slices, writes, splits and reductions at every step, on memory that moves along."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        memory = x.new_zeros(8, 16)
        for step in range(4):
            row = memory[step + 1 : step + 3]
            row[0].add_(x[step] * self.scale)
            first, second = row.chunk(2, dim=1)
            best, _ = (first * second).max(dim=0)
            memory = memory + nn.functional.pad(best, (0, 8)).t().expand(8, 16)
            memory.mul_(1.0).mul_(1).t_().t_()
        return memory.to(torch.float64).to(torch.float32).reshape(2, 64)[:, ::2].contiguous()


class Halting(nn.Module):
    """How often it goes round only values say: it is run on real tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Sequential(nn.Conv1d(8, 8, 3, padding=1), nn.BatchNorm1d(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while x.mean() < 5:
            x = x + self.step(x).abs() + 1
        return x


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize(
    ("model", "options"),
    [
        (Rolling(), {"inputs": torch.randn(8, 16)}),
        (Halting(), {"inputs": torch.zeros(2, 8, 16)}),
        ("shufflenet_v2_x0_5", {}),
        ("distilgpt2", {"seq_len": 16}),
    ],
    ids=["views", "halting", "shufflenet", "gpt2"],
)
def test_the_cache_changes_nothing(monkeypatch, mode, model, options):
    cached = opgraph.profile(model, mode=mode, partial=True, **options).graph
    monkeypatch.setenv(SWITCH, "0")
    assert opgraph.profile(model, mode=mode, partial=True, **options).graph == cached
    assert cached.failed is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*SAMPLE[::4], *thorough(*(n for n in SAMPLE if n not in SAMPLE[::4]))]
)
def test_the_cache_changes_nothing_of_the_sample(monkeypatch, name):
    """None is run on real tensors, which takes as long as the model does: `Halting` is."""
    model, on_fakes = resolve(name), {"memory_limit": 0.01, "partial": True}
    cached = opgraph.profile(model, **on_fakes).graph
    monkeypatch.setenv(SWITCH, "0")
    plain = opgraph.profile(model, **on_fakes).graph
    assert plain.nodes == cached.nodes
    assert plain == cached


class Repeating(nn.Module):
    """Calls that are known from the first time on: with temporaries, views, several results, defaults,
    arguments that are one tensor or two, numbers that differ, and writes, through views, too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.batch, self.relu = nn.BatchNorm1d(4), nn.ReLU(inplace=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i in range(4):
            x = self.norm(self.linear(x)) + i
            first, second = x.chunk(2, dim=-1)
            x = torch.cat([second, first], -1) * torch.maximum(x, x) - torch.maximum(x, x + 1)
            x = self.attention(x, x, x if i % 2 else x + 1)[0]
            x, _ = x.topk(8)
            x = nn.functional.dropout(x, 0.5, training=i > 1).contiguous()
            x.mul_(2)
            x = self.relu(self.batch(x))
            x[:, 1].add_(x[:, 0])
            torch.add(x, 1, out=x)
            with torch.autocast("cpu", enabled=i == 2):
                x = self.linear(x).float()
            with torch.set_grad_enabled(i == 3):
                x = x.relu().view(1, 4, 8)
        return x


@pytest.mark.slow
def test_known_functions_change_nothing(monkeypatch):
    x = torch.randn(1, 4, 8)
    cached = opgraph.profile(Repeating(), inputs=x).graph
    monkeypatch.setenv(SWITCH, "0")
    assert opgraph.profile(Repeating(), inputs=x).graph == cached


def test_a_function_that_was_called_before_is_not_called_again(monkeypatch):
    heard: list[torch.Tensor] = []
    again = Recorder.again
    monkeypatch.setattr(
        Recorder,
        "again",
        lambda self, func, known, tensors: heard.append(0) or again(self, func, known, tensors),
    )
    block = (nn.Linear(13, 13), nn.BatchNorm1d(13), nn.ReLU(inplace=True))
    model, x = nn.Sequential(*block * 5), torch.randn(3, 13)
    first = opgraph.profile(model, inputs=x)
    assert len(heard) == 4 * 3
    assert opgraph.profile(model, inputs=x).graph == first.graph
    assert len(heard) == 9 * 3


def test_switched_off_it_knows_no_call(monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    x = torch.randn(2, 8)
    assert opgraph.profile(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), x).totals.flops == 512
    known = fake_call_cache()
    assert known.operator(torch.ops.aten.mm.default)[1] is False


class Filled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.full((1 << 12, 4), 1.0, device=x.device)


def test_what_is_remembered_holds_under_the_settings_it_was_seen_with():
    x = torch.randn(1 << 12, 4)
    before = opgraph.profile(Filled(), inputs=x)
    torch.set_default_dtype(torch.float64)
    try:
        after = opgraph.profile(Filled(), inputs=x)
    finally:
        torch.set_default_dtype(torch.float32)
    dtypes = [p.graph.value[p.graph.outputs[0]].dtype for p in (before, after)]
    assert dtypes == ["float32", "float64"]
    assert opgraph.profile(Filled(), inputs=x).graph == before.graph


def test_a_formula_that_is_added_later_counts(monkeypatch):
    x = torch.randn(3, 4)
    assert opgraph.profile(nn.Tanh(), inputs=x).totals.flops == 0
    monkeypatch.setitem(flop_counter.flop_registry, torch.ops.aten.tanh, lambda *_, **__: 77)
    assert opgraph.profile(nn.Tanh(), inputs=x).totals.flops == 77


class Distances(nn.Module):
    """A function of torch calls one of the model's, which does more each time."""

    width = 0

    def apart(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        self.width += 1
        return ((a - b) @ torch.ones(4, self.width)).sum(-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            loss = functional.triplet_margin_with_distance_loss(
                x, x + 1, x - 1, distance_function=self.apart
            )
        return loss


@pytest.mark.slow
def test_a_function_that_calls_the_models_own_is_called_each_time():
    model = Distances()
    kept = weakref.ref(model)
    for begun in (0, 10):
        model.width = begun
        found = opgraph.profile(model, torch.ones(2, 4)).totals.flops
        assert found == sum(2 * 2 * 4 * (begun + n) for n in (1, 2, 3, 4))
    del model
    gc.collect()
    assert kept() is None


def test_what_torch_calls_by_name_may_be_replaced(monkeypatch):
    model, x = nn.Sequential(nn.ReLU(), nn.ReLU()), torch.ones(3, 4)
    assert opgraph.profile(model, x).totals.flops == 0
    weight = torch.ones(4, 4)
    with monkeypatch.context() as patched:
        patched.setattr(torch, "relu", lambda x: x @ weight)
        assert opgraph.profile(model, x).totals.flops == 2 * 2 * 3 * 4 * 4
    assert opgraph.profile(model, x).totals.flops == 0


def test_a_view_is_a_view_of_the_new_argument():
    mode = FakeTensorMode()
    first, other = (fake(torch.randn(6, 4), mode) for _ in range(2))
    seen: list[torch.Tensor] = []
    looks((first,), seen)
    cached = cached_call(seen, first[2:4], Kernel("aten.slice"))
    again = cached.repeat([other[1:]], mode)
    assert again.untyped_storage()._cdata == other.untyped_storage()._cdata
    assert (again.shape, again.storage_offset()) == ((2, 4), 12)


def test_numbers_that_are_equal_but_of_other_kinds_look_different():
    assert len({looks((1,), []), looks((1.0,), []), looks((True,), [])}) == 3


def test_what_is_not_all_in_its_looks_is_not_remembered():
    mode = FakeTensorMode()
    x = fake(torch.randn(4), mode)
    number = torch.tensor(1.0, dtype=torch.float64)
    assert cached_call([x, number], x + 1, Kernel("aten.add")) is None
    assert cached_call([x, number.float()], x + 1, Kernel("aten.add")) is not None
    assert cached_call([x], x.to(torch.complex64), Kernel("aten._to_copy")) is None
    assert cached_call([x, x[1:]], x[2:], Kernel("aten.odd")) is None


def test_what_is_small_for_some_sizes_is_not_for_others():
    read, write = os.pipe()  # what a run puts into a list or a queue is taken out again

    class Tables(nn.Module):
        def forward(self, x):
            for length in (64, 3_000, 64, 3_000):
                places = torch.arange(length)
                found = (places[:, None] * places).__class__  # `type` says what it stands for
                os.write(write, b"F" if found is FakeTensor else b"T")
            return x + 1

    for _ in range(2):
        opgraph.profile(Tables(), inputs=torch.ones(2))
    os.close(write)
    with os.fdopen(read, "rb") as kinds:
        seen = kinds.read().replace(b"TTTT", b"")  # of runs on real tensors
    assert seen == b"TF" * (len(seen) // 2) != b""


@pytest.mark.live
def test_a_setting_that_changes_within_a_forward_is_heeded() -> None:
    """The same calls, on tensors that look the same, give and run something else."""

    class Changing(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            half = x.argmax(-1) / 2
            torch.set_default_dtype(torch.float64)
            double = x.argmax(-1) / 2
            torch.set_default_dtype(torch.float32)
            fused = functional.scaled_dot_product_attention(x, x, x)
            with sdpa_kernel(SDPBackend.MATH):
                return half, double, fused, functional.scaled_dot_product_attention(x, x, x)

    for target, kernel in (("cpu", "flash"), ("cuda", "efficient"), ("cuda:gfx942", "efficient")):
        graph = opgraph.profile(Changing(), torch.ones(1, 2, 16, 8), target=target).graph
        dtypes = [graph.values[v].dtype for v in graph.outputs[:2]]
        assert dtypes == ["float32", "float64"]
        first, second = [[k.op for k in n.kernels] for n in graph.nodes if "attention" in n.op]
        assert any(kernel in op for op in first)
        assert sum(op == "aten.bmm" for op in second) == 2
