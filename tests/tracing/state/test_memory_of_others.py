"""Memory that is written to without a word: by other processes, by operators whose schemas do not say it,
through a fake tensor that was given a real one's; and what is left of a model of very many objects."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, List, Tuple  # noqa: UP035  (what torch scripts reads)
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import DataLoader, TensorDataset

import opgraph
from opgraph.record.errors import TraceError
from opgraph.tracing.state import meeting

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


class Held(nn.Module):
    """Holds tensors, to which something writes; asks for a value where it `asks`."""

    def __init__(self, write: Callable[[Held, Tensor], Any], *, asks: bool = False) -> None:
        super().__init__()
        self.layer, self.write, self.asks = nn.Linear(8, 8), write, asks
        self.register_buffer("sum", torch.ones(8))
        self.parts, self.other = [torch.zeros(8)], torch.arange(8.0)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.write(self, y)
        return y * y.sum().item() if self.asks else y

    @property
    def held(self) -> list[Tensor]:
        return [self.sum, *self.parts, self.other]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process that is a group of its own."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0,
                            world_size=1)  # fmt: skip
    yield
    dist.destroy_process_group()


COLLECTIVES: dict[str, Callable[[Held, Tensor], Any]] = {
    "all_reduce": lambda m, _: dist.all_reduce(m.sum.add_(1)),
    "all_gather": lambda m, _: dist.all_gather(m.parts, m.other),
    "all_gather_into_tensor": lambda m, _: dist.all_gather_into_tensor(m.sum, m.other),
    "reduce_scatter_tensor": lambda m, _: dist.reduce_scatter_tensor(m.sum, m.other),
    "scatter": lambda m, _: dist.scatter(m.sum, [m.other], src=0),
    "async": lambda m, _: dist.all_gather(m.parts, m.other, async_op=True),
}


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("which", COLLECTIVES)
@pytest.mark.usefixtures("group")
def test_what_collectives_write_to_is_as_before(which: str, asks: bool, mode: str) -> None:
    """On fake tensors nothing is exchanged; on real ones it is, and a remark says so."""
    model = Held(COLLECTIVES[which], asks=asks)
    before = [t.clone() for t in model.held]
    profile = opgraph.profile(model, X, mode=mode)
    assert all(map(torch.equal, before, model.held))
    said = [r.text for r in profile.remarks if "exchanged tensors" in r.text]
    assert len(said) == (profile.tracing.tensors == "real")


@pytest.mark.parametrize("asks", [False, True])
def test_ranks_that_a_person_pretends_are_sent_nothing(asks: bool) -> None:
    """Nor is there a word of it, and what is real keeps its values."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        model = Held(COLLECTIVES["all_reduce"], asks=asks)
        profile = opgraph.profile(model, X)
    finally:
        dist.destroy_process_group()
    assert torch.equal(model.sum, torch.ones(8))
    assert not [r for r in profile.remarks if r.code == "state"]


def _late(rank: int, store: str) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    model = Held(lambda m, _: (time.sleep(rank), dist.all_reduce(m.sum)), asks=True)
    dist.barrier()
    opgraph.profile(model, X)
    at_once = model.sum.clone()
    dist.barrier()
    time.sleep(1)
    dist.barrier()
    dist.destroy_process_group()
    assert at_once.tolist() == model.sum.tolist() == [1.0] * 8


@pytest.mark.slow
def test_a_rank_that_comes_late_writes_to_nothing_afterwards(tmp_path: Path) -> None:
    _of_two(_late, tmp_path)


def _of_two(what: Callable[[int, str], None], folder: Path) -> None:
    """Run in two processes, each of which is a rank."""
    command = [sys.executable, __file__, what.__name__, str(folder / "store")]
    ranks = [subprocess.Popen([*command, str(rank)]) for rank in range(2)]
    assert [rank.wait(timeout=300) for rank in ranks] == [0, 0]


def _alone(rank: int, store: str) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2,
                            timeout=timedelta(seconds=60))  # fmt: skip
    model = Held(lambda m, y: dist.all_reduce(m.parts[0].copy_(y.detach()[0])), asks=True)
    result = model(X + rank)
    for tracer in ("auto", "hybrid") if rank == 0 else ():
        with (
            patch.object(meeting, "PATIENCE", timedelta(seconds=2)),
            pytest.raises(TraceError, match="1 came to it within 2 seconds: do this on every rank"),
        ):
            opgraph.profile(model, X, tracer=tracer)
    assert torch.equal(model(X + rank), result)
    assert torch.equal(model(X + rank), result)
    for options in ({}, {"mode": "train", "loss": "sum"}):  # on every rank
        assert opgraph.profile(model, X + rank, **options).tracing.tensors == "real"
    assert {r.error for r in opgraph.check(model, X + rank).readings} == {
        "would exchange tensors with other ranks"
    }
    with pytest.raises(TraceError, match="when its own median"):
        opgraph.measure(model, X + rank, device="cpu")
    assert (
        len(opgraph.measure(model, X + rank, device="cpu", steps=3).profile.measured.repeats) == 3
    )
    assert torch.equal(model(X + rank), result)
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
def test_what_one_rank_profiles_alone_meets_no_others_next_exchange(tmp_path: Path) -> None:
    """It is refused before it sends anything; on all of them it is profiled."""
    _of_two(_alone, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("asks", [False, True])
def test_a_data_loaders_workers_go_on(asks: bool) -> None:
    """What they have sent is gone, which a remark says: nothing else of them is put back."""
    model = Held(lambda m, _: m.parts.append(next(m.batches)[0]), asks=asks)
    model.batches = iter(DataLoader(TensorDataset(torch.arange(40.0)), batch_size=2, num_workers=1))
    profile = opgraph.profile(model, X)
    assert sum("DataLoader's workers" in r.text for r in profile.remarks) == 1
    taken = len(profile.tracing.attempts)
    assert next(model.batches)[0].tolist() == [2.0 * taken, 2.0 * taken + 1]


@pytest.mark.parametrize("asks", [False, True])
def test_statistics_that_no_schema_names_are_as_before(asks: bool) -> None:
    model = Held(lambda m, y: torch.batch_norm_update_stats(y.detach(), m.sum, m.other, 0.5),
                 asks=asks)  # fmt: skip
    before = [t.clone() for t in model.held]
    opgraph.profile(model, X)
    assert all(map(torch.equal, before, model.held))


THROUGH: dict[str, Callable[[Tensor], Any]] = {
    "address": lambda w: w.untyped_storage().data_ptr(),
    "freed": lambda w: w.untyped_storage().resize_(0),
    "filled": lambda w: w.untyped_storage().fill_(0),
    "set": lambda w: torch.empty(0).set_(w.untyped_storage()).zero_(),
}


@pytest.mark.parametrize("which", THROUGH)
@pytest.mark.parametrize("options", [{}, {"mode": "train"}, {"tracer": "dynamo"}])
def test_memory_that_a_fake_weight_was_given(which: str, options: dict[str, str]) -> None:
    """As who swaps weights for others by `.data` does, and looks where they are or gives it back."""
    if which == "set" and options.get("tracer"):
        pytest.skip("Dynamo's own fake tensors write there, which docs/tracers.md says")

    def swapped(model: Held, _: Tensor) -> None:
        model.layer.bias.data = model.other
        THROUGH[which](model.layer.bias)

    model = Held(swapped)
    values, place = model.other.clone(), model.other.data_ptr()
    bias = model.layer.bias.detach().clone()
    try:
        opgraph.profile(model, X, **options)
    except opgraph.TraceError:
        assert which == "freed"  # there is nothing to compute with on real tensors, either
    assert torch.equal(model.other, values)
    assert torch.equal(model.layer.bias, bias)
    assert model.other.untyped_storage().data_ptr() == model.other.data_ptr()
    assert which == "freed" or model.other.data_ptr() == place  # what was freed lies elsewhere


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.list: List[Tensor] = [torch.zeros(4, 8)]  # noqa: UP006
        self.table: Dict[str, Tensor] = {"a": torch.zeros(4, 8)}  # noqa: UP006
        self.pair: Tuple[Tensor, Tensor] = (torch.zeros(4, 8), torch.zeros(4, 8))  # noqa: UP006
        self.sign: float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.list[0] = self.list[0] + y
        self.table["a"] = self.table["a"] + y
        self.pair = (self.pair[0] + y, self.pair[1] + 1)
        self.sign = -self.sign
        return y


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_what_a_scripted_module_keeps_in_containers(mode: str) -> None:
    model = torch.jit.script(Scripted().eval())
    opgraph.profile(model, X, mode=mode)
    zero = torch.zeros(4, 8)
    assert all(torch.equal(t, zero) for t in (*model.list, *model.table.values(), *model.pair))
    assert str(model.sign) == "0.0"


class Large(nn.Module):
    """Leads to more than can be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout())
        self.table = {i: [i] for i in range(250_000)}

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return y * y.sum().item()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_model_of_very_many_objects_has_its_own_weights_and_modes(mode: str) -> None:
    model = Large().train()
    weights = dict(model.named_parameters())
    values = {name: weight.detach().clone() for name, weight in weights.items()}
    profile = opgraph.profile(model, X, mode=mode)
    assert profile.tracing.tensors == "real"
    assert all(module.training for module in model.modules())
    for name, weight in model.named_parameters():
        assert weight is weights[name]
        assert weight.grad is None
        assert torch.equal(weight, values[name])


def test_flags_that_a_forward_freezes_may_be_set_afterwards() -> None:
    opgraph.profile(Held(lambda *_: torch.backends.disable_global_flags()), X)
    assert not torch.backends.flags_frozen()


def test_views_of_what_was_written_to_do_not_stop_a_profile() -> None:
    """Autograd does not say any more what made them."""
    model = Held(lambda m, y: y.add_(m.parts[0]))
    base = torch.zeros(16, requires_grad=True) * 1
    model.parts = list(base.chunk(2))
    with torch.no_grad():
        base.add_(1)
    assert opgraph.profile(model, X).totals.flops


@pytest.mark.usefixtures("group")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize("strategy", list(ShardingStrategy)[:3])
def test_there_is_nothing_to_be_said_of_weights_that_fsdp_has_in_one(
    strategy: ShardingStrategy, original: bool
) -> None:
    """Views of them are those of the step before, and what it exchanges has numbers drawn at random."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    wrapped = FullyShardedDataParallel(
        model, sharding_strategy=strategy, use_orig_params=original, device_id=torch.device("cpu")
    )
    wrapped(X).sum().backward()
    before = [(p, p.detach().clone(), p.grad) for p in wrapped.parameters()]
    assert opgraph.profile(wrapped, X).remarks == ()
    found = opgraph.profile(wrapped, X, mode="train", loss="sum")
    assert found.remarks == ()
    assert any("adamw" in n.name for n in found.graph.nodes)
    for now, (weight, values, grad) in zip(wrapped.parameters(), before, strict=True):
        assert now is weight
        assert now.grad is grad
        assert torch.equal(now, values)


def _ring(rank: int, store: str) -> None:
    """Keeps what it is under way with, and waits for it itself."""

    def round_(model: Any, y: Tensor) -> None:
        model.parts[0] = torch.empty(8)
        model.works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, y.detach()[0].contiguous(), 1 - rank),
            dist.P2POp(dist.irecv, model.parts[0], 1 - rank),
        ])  # fmt: skip
        for work in model.works:
            work.wait()

    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    model = Held(round_, asks=True)
    result, received = model(X + rank), model.parts[0]
    assert opgraph.profile(model, X + rank).tracing.tensors == "real"
    assert torch.equal(model(X + rank), result)
    assert torch.equal(model.parts[0], received)
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
def test_what_ranks_send_each_other_is_waited_for_once(tmp_path: Path) -> None:
    _of_two(_ring, tmp_path)


def _sharded(rank: int, store: str) -> None:
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    model = Held(lambda _, __: None, asks=True)
    fully_shard(model)
    with torch.no_grad():
        result = model(X + rank)
        if rank == 0:
            with (
                patch.object(meeting, "PATIENCE", timedelta(seconds=2)),
                pytest.raises(TraceError, match="do this on every rank"),
            ):
                opgraph.profile(model, X)
        dist.barrier()
        assert torch.equal(model(X + rank), result)
        assert opgraph.profile(model, X + rank).tracing.tensors == "real"
        assert torch.equal(model(X + rank), result)
    dist.barrier()
    dist.destroy_process_group()


def _by_tensor(scale: float) -> Tensor:
    return torch.quantize_per_tensor(torch.ones(8), scale, 0, torch.quint8)


def _by_channel(scale: float) -> Tensor:
    scales, zeros = torch.full((8,), scale), torch.zeros(8)
    return torch.quantize_per_channel(torch.ones(8), scales, zeros, 0, torch.quint8)


@pytest.mark.filterwarnings("ignore:torch.quantize")
@pytest.mark.parametrize("made", [_by_tensor, _by_channel])
@pytest.mark.parametrize("asks", [False, True])
def test_a_quantized_tensor_that_another_is_copied_to_has_its_scale(
    made: Callable[[float], Tensor], asks: bool
) -> None:
    model = Held(lambda m, _: m.state.copy_(made(0.5)), asks=asks)
    model.state = made(0.1)
    opgraph.profile(model, X)
    assert torch.equal(model.state.dequantize(), made(0.1).dequantize())
    assert torch.equal(model.state.int_repr(), made(0.1).int_repr())


class Apart(nn.Module):
    """Computes with what has no history."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.layer.weight.detach().requires_grad_()


def test_a_step_that_updates_nothing_says_so() -> None:
    profile = opgraph.profile(Apart(), X, mode="train", loss="sum")
    assert any("no weight has a gradient of its own" in r.text for r in profile.remarks)
    assert not any("adamw" in n.name for n in profile.graph.nodes)


@pytest.mark.slow
def test_weights_are_gathered_from_ranks_that_have_met(tmp_path: Path) -> None:
    _of_two(_sharded, tmp_path)


if __name__ == "__main__":
    globals()[sys.argv[1]](int(sys.argv[3]), sys.argv[2])
