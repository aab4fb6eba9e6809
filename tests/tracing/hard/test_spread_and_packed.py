"""Models whose weights are not plain tensors: spread over devices, or packed into fewer bits or places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opgraph
from opgraph import Profile

X = torch.randn(4, 64)
FLOPS = 2 * 4 * 64 * 64


class Choosy(nn.ReLU):
    """Looks at the values, so that only real tensors will do."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() < float("inf") else x


def two_layers(between: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 64), between or nn.ReLU(), nn.Linear(64, 64))


def profiled(model: nn.Module, x: Tensor = X) -> Profile:
    profile = opgraph.profile(model, x)
    assert profile.graph.failed is None, profile.graph.failed
    return profile


@pytest.fixture
def mesh() -> Iterator[Any]:
    """A group of this process alone."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.usefixtures("mesh")
def test_distributed_data_parallel() -> None:
    profile = profiled(nn.parallel.DistributedDataParallel(two_layers()))
    assert profile.totals.flops == 2 * FLOPS
    assert profile.model.notes == ("out of DistributedDataParallel",)


@pytest.mark.usefixtures("mesh")
@pytest.mark.filterwarnings("ignore")
def test_fully_sharded_data_parallel() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(two_layers(), device_id=torch.device("cpu"))
    before = model(X)
    profile = profiled(model)
    # Its weights are parts of one flat parameter, which are cut out of it anew at every call.
    assert [n.op for n in profile.graph.nodes if n.kernels and n.op != "split"][-3:] == [
        "linear",
        "relu",
        "linear",
    ]
    assert profile.totals.flops == 2 * FLOPS
    assert profile.totals.parameters == 2 * (64 * 64 + 64)
    assert torch.equal(model(X), before)
    assert not profile.remarks


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("one_by_one", [False, True])
def test_what_it_has_on_other_ranks_is_said(one_by_one: bool) -> None:
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        model = FullyShardedDataParallel(
            two_layers(), device_id=torch.device("cpu"), use_orig_params=one_by_one
        )
        profile = profiled(model)
    finally:
        dist.destroy_process_group()
    assert profile.totals.flops == 2 * FLOPS
    assert profile.totals.parameters == 64 * 64 + 64
    assert [remark.code for remark in profile.remarks] == ["sharded"]
    assert profile.remarks[0].text.startswith(
        "of 8,320 weights FullyShardedDataParallel has 4,160 "
    )


def fully_sharded(mesh: Any, between: nn.Module | None = None) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    model = two_layers(between)
    fully_shard(model[0], mesh=mesh)
    return fully_shard(model, mesh=mesh)


def tensor_parallel(mesh: Any) -> nn.Module:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(two_layers(), mesh, plan)


@pytest.mark.parametrize("spread", [fully_sharded, tensor_parallel])
@pytest.mark.filterwarnings("ignore")
def test_a_model_that_is_spread_runs_as_on_one_device(spread: Any, mesh: Any) -> None:
    model = spread(mesh)
    before = model(X)
    profile = profiled(model)
    assert [n.op for n in profile.graph.nodes] == ["input", "linear", "relu", "linear", "output"]
    assert profile.totals.flops == 2 * FLOPS
    assert profile.totals.parameters == 2 * (64 * 64 + 64)
    assert profile.totals.weight_bytes == 4 * profile.totals.parameters
    # Its weights are still spread, and it still runs.
    assert torch.equal(model(X), before)
    assert type(model[0].weight).__name__ == "DTensor"


@pytest.mark.parametrize("result", [None, torch.float32])
@pytest.mark.filterwarnings("ignore")
def test_what_a_sharded_model_converts_is_converted(mesh: Any, result: torch.dtype | None) -> None:
    """Before its first call, and where a call has gathered the weights of its root; a step after that is
    the same."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=result)
    model = fully_shard(two_layers(), mesh=mesh, mp_policy=policy)
    converted = ["to"] * 5  # the input, and each weight
    back = [] if result is None else ["to"]
    for _ in range(2):
        profile = profiled(model)
        ops = [n.op for n in profile.graph.nodes]
        assert ops == ["input", *converted, "linear", "relu", "linear", *back, "output"]
        linear = next(n for n in profile.nodes if n.op == "linear")
        assert {v.dtype for v in linear.inputs} == {"bfloat16"}
        assert profile.totals.weight_bytes == 4 * 2 * (64 * 64 + 64)
        with torch.no_grad():
            before = model(X)
    trained = opgraph.profile(model, X, mode="train")
    assert trained.totals.flops == 3 * 2 * FLOPS - FLOPS  # none for the input
    assert torch.equal(model(X), before)
    assert all(type(p).__name__ == "DTensor" for p in fully_sharded_weights(model))


def fully_sharded_weights(model: Any) -> list[Tensor]:
    model.reshard()
    return list(model.parameters())


@pytest.mark.parametrize("between", [None, Choosy()])
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.filterwarnings("ignore")
def test_inputs_that_are_spread_are_meant_whole(
    mesh: Any, mode: Any, between: nn.Module | None
) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor

    model = distribute_module(two_layers(between), mesh)
    whole = opgraph.profile(two_layers(between), X, mode=mode)
    for placement in (Replicate(), Shard(0)):
        x = distribute_tensor(X, mesh, [placement])
        before = model(x).full_tensor()
        profile = opgraph.profile(model, x, mode=mode)
        assert profile.totals == whole.totals
        assert torch.equal(model(x).full_tensor(), before)


def test_what_other_ranks_have_counts_where_a_model_is_taken_as_on_one_device() -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        mesh = init_device_mesh("cpu", (4,))
        model = tensor_parallel(mesh)
        numbers = distribute_tensor(torch.arange(8).view(4, 2), mesh, [Shard(0)])
        profile = profiled(nn.Sequential(nn.Embedding(8, 32), nn.Flatten(), model), numbers)
    finally:
        dist.destroy_process_group()
    assert profile.totals.flops == 2 * FLOPS
    assert profile.totals.weight_bytes == 4 * (2 * (64 * 64 + 64) + 8 * 32)
    assert profile.totals.input_bytes == 8 * 8


@pytest.mark.filterwarnings("ignore")
def test_on_real_tensors_too(mesh: Any) -> None:
    model = fully_sharded(mesh, Choosy())
    profile = profiled(model)
    assert profile.tracing.tensors == "real"
    assert profile.totals.flops == 2 * FLOPS
    model(X)


@pytest.mark.parametrize("config", ["Int8WeightOnlyConfig", "IntxWeightOnlyConfig"])
@pytest.mark.filterwarnings("ignore")
def test_torchao_int8_and_int4(config: str) -> None:
    quantization = pytest.importorskip("torchao.quantization")
    options = {"weight_dtype": torch.int4} if config.startswith("Intx") else {}
    model = two_layers()
    quantization.quantize_(model, getattr(quantization, config)(**options))
    profile = profiled(model)
    assert profile.totals.flops == 2 * FLOPS
    assert profile.totals.coverage == 1
    weight = profile.graph.parameters[0]
    assert weight.numel == 64 * 64
    assert weight.bytes < 4 * 64 * 64  # as it is packed


@pytest.mark.parametrize("library", ["CUTLASS", "CUSPARSELT"])
@pytest.mark.filterwarnings("ignore")
def test_two_to_four_sparsity(library: str) -> None:
    from torch.sparse import semi_structured

    # What `to_sparse_semi_structured` makes of a 128 x 128 weight on a GPU: half, and where it was, in
    # two tensors or in one.
    apart = library == "CUTLASS"
    weight = getattr(semi_structured, f"SparseSemiStructuredTensor{library}")(
        torch.Size((128, 128)), packed=torch.zeros(128, 64 if apart else 72).half(),
        meta=torch.zeros(128, 8, dtype=torch.int16) if apart else None, packed_t=None, meta_t=None,
        compressed_swizzled_bitmask=None,
    )  # fmt: skip
    model = nn.Linear(128, 128).half()
    model.weight = nn.Parameter(weight, requires_grad=False)
    profile = profiled(model, torch.randn(64, 128).half())
    assert [n.op for n in profile.graph.nodes] == ["input", "linear", "output"]
    # Half of the products: the others are with zeros, and are skipped.
    assert profile.totals.flops == 2 * 64 * 128 * 128 // 2
    assert profile.totals.coverage == 1
    assert [p.bytes for p in profile.graph.parameters] == [128 * 72 * 2, 256]


def test_what_is_scaled_in_eight_bits_is_followed() -> None:
    """Numbers and a scale in one tensor, which is made in Python: a product reads what made the two, and
    so does what fuses with it. None of it is a constant."""
    float8 = pytest.importorskip("torchao.float8")
    model = float8.convert_to_float8_training(two_layers())
    graph = opgraph.profile(model, X, mode="train", loss="sum", target="cuda:9.0").graph
    products = [n for n in graph.nodes if any(k.flops for k in n.kernels)]
    assert len(products) == 2 * 3
    assert {n.kind for n in products} == {"call"}
    assert [k.op for n in products for k in n.kernels if k.flops] == ["aten._scaled_mm"] * 6
    before = {n.id: set(graph.reads(n)) for n in graph.nodes}
    for node in graph.nodes:  # in order: all that a node hangs on
        before[node.id] |= {i for made in before[node.id] for i in before[made]}
    assert products[0].id in before[products[1].id]
    eight = [[v for v in n.inputs if "float8" in graph.value[v].dtype] for n in products]
    assert [len(found) for found in eight] == [2] * 6
