"""One rank of many in one process: what it runs and keeps, and that nothing of it stays."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.tracing.ranks import programs
from tests.tracing.ranks.programs import PROGRAMS, WORLD, Model, inputs
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import opgraph
from opgraph.analysis.cost.conventions import counted
from opgraph.analysis.timing.workload import workload
from opgraph.options import Options
from opgraph.record.graph import Collective
from opgraph.record.kinds import CollectiveKind
from opgraph.record.loading import load

pytestmark = [pytest.mark.live, pytest.mark.slow]


def profiled(name: str, rank: int = 0) -> opgraph.Profile:
    with opgraph.ranks(WORLD, rank):
        return opgraph.profile(PROGRAMS[name](), inputs(), mode="train", loss="sum", target="cpu")


@pytest.mark.parametrize(("name", "copies"), [("fsdp", 4), ("tensor_fsdp", 2), ("replicated", 4)])
def test_all_ranks_together_do_the_work_of_the_model(name: str, copies: int) -> None:
    """Each copy has a batch of its own. The head is not split by tensor parallelism: each rank does it."""
    alone = opgraph.profile(Model(), inputs(), mode="train", loss="sum", target="cpu")
    head = sum(n.flops for n in alone.graph.nodes if n.scope == "head")
    one = profiled(name)
    twice = (WORLD - copies) * head
    assert one.totals.flops * WORLD == alone.totals.flops * copies + twice


def test_a_step_of_a_sharded_model_leaves_all_as_it_was() -> None:
    names = dict(os.environ), sys.excepthook, DeviceMesh.__init__, torch.UntypedStorage.resize_
    backend = dist.distributed_c10d._backend
    with opgraph.ranks(WORLD):
        model = PROGRAMS["fsdp"]()
        weights = dict(model.named_parameters())
        first = opgraph.profile(model, inputs(), mode="train", loss="sum")
        assert all(p is weights[n] and p.grad is None for n, p in model.named_parameters())
        again = opgraph.profile(model, inputs(), mode="train", loss="sum")
        assert again.graph == first.graph
    after = dict(os.environ), sys.excepthook, DeviceMesh.__init__, torch.UntypedStorage.resize_
    assert names == after
    assert not dist.is_initialized()
    assert dist.distributed_c10d._backend == backend


def test_gathered_weights_are_alive_while_they_are_used() -> None:
    one = profiled("fsdp").on()
    whole = opgraph.profile(Model(), inputs(), mode="train", loss="sum", target="cpu").on()
    assert one.totals.weight_bytes < whole.totals.weight_bytes / 3
    block = 4 * (2 * 48 + 48 * 192 + 192 + 192 * 48 + 48)
    gathered = [s for s in one.graph.storages if s.bytes == block]
    assert gathered
    assert all(s.died is not None for s in gathered)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_peak_memory_is_that_of_torchs_own_tracker(checkpointing: bool) -> None:
    """And without what is sharded, where the host keeps it."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    def build(**more: Any) -> torch.nn.Module:
        with torch.device("meta"):
            model = Model()
        for i, block in enumerate(model.blocks):
            model.blocks[i] = checkpoint_wrapper(block) if checkpointing else block
            fully_shard(model.blocks[i], **more)
        return fully_shard(model, **more)

    x = torch.zeros(16, 256, programs.WIDTH)
    given: Any = {"mode": "train", "loss": "sum", "optimizer": "adamw-loop"}
    with opgraph.ranks(WORLD):
        profile = opgraph.profile(build(), x, target="cpu", **given)
    with opgraph.ranks(WORLD):
        kept = build(offload_policy=CPUOffloadPolicy())
        offloaded = opgraph.profile(kept, x, target="cuda", **given)
    with opgraph.ranks(WORLD):
        model = build()
        with FakeTensorMode(allow_non_fake_inputs=True):
            model.to_empty(device="cpu").train()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
            tracker = FSDPMemTracker(model, optimizer)
            tracker.track_inputs((x,))
            with tracker:
                for _ in range(2):
                    tracker.reset_mod_stats()
                    model(x).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
            found = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    peak = {str(getattr(kind, "name", kind)): size for kind, size in found.items()}
    assert profile.on().peak_memory == pytest.approx(peak["Total"], rel=0.03)
    beside = peak["Total"] - peak["SHARDED_PARAM"] - peak["SHARDED_GRAD"] - peak["OPT"]
    assert offloaded.on().peak_memory == pytest.approx(beside, rel=0.03)


def test_a_program_in_a_file(tmp_path: object) -> None:
    spec = f"{programs.__file__}:fsdp"
    options = Options(mode="train", loss="sum", world_size=WORLD, rank=1, input_shape=(2, 8, 48))
    profile = opgraph.profile(
        spec,
        **{n: getattr(options, n) for n in ("mode", "loss", "world_size", "rank", "input_shape")},
    )
    assert str(profile.world) == "rank 1 of 4"
    path = f"{tmp_path}/p.json"
    profile.save(path)
    read = load(path)
    assert read.graph == profile.graph
    assert read.world == profile.world
    sent = [k.collective for n in read.graph.nodes for k in n.kernels if k.collective]
    assert sent[1] == Collective(CollectiveKind.ALL_GATHER, 75072, WORLD)
    said = [n.arguments for n in read.graph.nodes if n.op == "all_gather"]
    assert said[1] == "all-gather of 73.31 KiB between 4 ranks"


@pytest.mark.parametrize(("size", "rank"), [(4, 4), (0, 0), (4, -1)])
def test_a_rank_that_is_not_there(size: int, rank: int) -> None:
    with pytest.raises(opgraph.InputError, match="there is no rank"), opgraph.ranks(size, rank):
        pass


def test_any_model_is_sharded_by_an_option() -> None:
    """Over 4 ranks it does on each what it does alone, and keeps a fourth of its weights there."""
    sizes = {"mode": "train", "batch_size": 1, "seq_len": 32, "target": "cpu"}
    alone = opgraph.profile("gpt2", **sizes)
    one = opgraph.profile("gpt2", fsdp=4, **sizes)
    assert one.totals.flops == alone.totals.flops
    assert one.totals.parameters == pytest.approx(alone.totals.parameters / 4, rel=1e-3)
    assert str(one.world) == "rank 0 of 4"
    gathered = [e for e in one.on().exchanged if e.kind is CollectiveKind.ALL_GATHER]
    assert [(e.phase, e.times) for e in gathered] == [("forward", 13), ("backward", 12)]


def test_a_module_that_is_sharded_by_an_option_stays_as_it_is() -> None:
    model = Model()
    weights = dict(model.named_parameters())
    one = opgraph.profile(model, inputs(), fsdp=4, mode="train", loss="sum")
    assert one.world is not None
    assert type(model) is Model
    assert all(p is weights[n] and not p.is_meta for n, p in model.named_parameters())


@pytest.mark.parametrize("asked", [{"world_size": 4, "fsdp": 4}, {"fsdp": 4, "tracer": "fx"}])
def test_what_ranks_do_not_go_with(asked: dict[str, object]) -> None:
    with pytest.raises(opgraph.InputError):
        opgraph.profile(Model(), inputs(), **asked)
    with pytest.raises(opgraph.InputError, match="only traced"):
        opgraph.sweep(Model(), batch_size=[1, 2], fsdp=2)


@pytest.mark.parametrize("batches", [1, 2])
def test_weights_are_kept_on_the_host_by_an_option(batches: int) -> None:
    """They go to the device before each gather, and gradients from there behind each reduction. What is
    kept of them is in the memory of the host, where the optimizer runs; exchanges stay as they are. On a
    CPU nothing moves."""
    given = {"mode": "train", "loss": "sum", "micro_batches": batches, "fsdp": WORLD, "zero": 3}
    plain, one, there = (
        opgraph.profile(Model(), inputs(), target=target, cpu_offload=offload, **given).on(
            "h100-sxm"
        )
        for target, offload in (("cuda", False), ("cuda", True), ("cpu", True))
    )
    found = {(e.phase, str(e.kind)): (e.times, e.bytes) for e in one.exchanged}
    own, head = plain.totals.weight_bytes, 4 * 3 * programs.WIDTH  # three of its ten rows
    assert found.pop(("forward", "upload")) == (19 * batches, batches * own)
    assert found.pop(("backward", "download")) == (19 * batches, batches * own)
    assert found.pop(("backward", "upload")) == (18 * batches, batches * (own - head))
    assert found == {(e.phase, str(e.kind)): (e.times, e.bytes) for e in plain.exchanged}
    graph = one.graph
    assert graph.on_host.parameters == {p.name for p in graph.parameters}
    assert {n.phase for n in graph.nodes if n.id in graph.on_host.nodes} == (
        {"optimizer"}
        if batches == 1
        else {"backward", "optimizer"}  # where gradients are added up, too
    )
    before = sum(s.bytes for s in graph.on_device if graph.was_there(s))
    assert before == one.totals.input_bytes + 4 * 19  # and the numbers of steps
    assert one.fit.weights == 0
    assert (
        plain.peak_memory - one.peak_memory >= 3 * own
    )  # weights, and two of each in the optimizer
    assert "host" in {r.code for r in one.remarks}
    together = one.profile.on("xeon-8480")  # whose memory is the host's
    assert "host" not in {r.code for r in together.remarks}
    assert together.fit.needed > own + one.fit.peak
    uploads = {n.id for n in graph.nodes if n.op == "upload"}
    took = sum(k.seconds for k in together.prediction.kernels if k.node in uploads)
    assert took < 1e-3  # calls alone
    assert not there.graph.on_host.storages


class Saving(torch.nn.Module):
    """Keeps what its backward needs in the host's memory."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(48, 4096), torch.nn.Linear(4096, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            y = torch.relu(self.up(x))
        return self.down(y)


def test_what_autograd_keeps_on_the_host() -> None:
    """Without ranks, too: the input and what ReLU gives go there, and come back."""
    x = torch.zeros(256, 48)
    found = opgraph.profile(Saving(), x, mode="train", loss="sum", target="cuda").on("h100-sxm")
    moved = {(e.phase, str(e.kind), e.group): (e.times, e.bytes) for e in found.exchanged}
    kept = 2, 4 * (256 * 48 + 256 * 4096)
    assert moved == {("forward", "download", "saved"): kept, ("backward", "upload", "saved"): kept}
    assert found.graph.on_host.nodes == frozenset()


def test_weights_are_gathered_in_eight_bits() -> None:
    """As torchao casts them before its gathers; normalizations and biases stay as they are. Weights on meta
    are no others, and are trained, and scales that are there before a step are exchanged no more."""
    float8 = pytest.importorskip("torchao.float8")
    from torch.distributed.fsdp import fully_shard

    config = float8.Float8LinearConfig(enable_fsdp_float8_all_gather=True)
    with opgraph.ranks(WORLD):
        with torch.device("meta"):
            built = Model()
        model = float8.convert_to_float8_training(built, config=config)
        for block in model.blocks:
            fully_shard(block)
        x = torch.zeros(2, 16, programs.WIDTH)
        profile = opgraph.profile(model, x, mode="train", loss="sum")
        float8.precompute_float8_dynamic_scale_for_fsdp(model)
        scaled = opgraph.profile(model, x, mode="train", loss="sum")
    found = {(e.phase, str(e.kind)): (e.times, e.bytes) for e in profile.on().exchanged}
    width = programs.WIDTH
    block = 2 * width * 4 * width + 4 * (2 * width + 4 * width + width)
    assert found["forward", "all-gather"] == (3, 3 * block)
    updated = {n.scope for n in profile.graph.nodes if n.phase == "optimizer"}
    assert updated == {p.scope for p in profile.graph.parameters}
    later = {(e.phase, str(e.kind)): (e.times, e.bytes) for e in scaled.on().exchanged}
    assert found.keys() - later.keys() == {("forward", "all-reduce")}
    assert found.items() >= later.items()


def test_weights_that_are_gathered_in_eight_bits_are_kept_on_the_host() -> None:
    """They go to the device as they are, and are cast there. What torchao hands on of them has no scale
    that was there before, which is exchanged all the same."""
    float8 = pytest.importorskip("torchao.float8")
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    config = float8.Float8LinearConfig(enable_fsdp_float8_all_gather=True)
    found = []
    for before in (False, True):
        with opgraph.ranks(WORLD):
            with torch.device("meta"):
                model = float8.convert_to_float8_training(Model(), config=config)
            for block in (*model.blocks, model):
                fully_shard(block, offload_policy=CPUOffloadPolicy())
            if before:
                float8.precompute_float8_dynamic_scale_for_fsdp(model)
            x = torch.zeros(2, 16, programs.WIDTH)
            profile = opgraph.profile(model, x, mode="train", loss="sum", target="cuda:9.0")
        costed = profile.on("h100-sxm")
        found.append({(e.phase, str(e.kind)): (e.times, e.bytes) for e in costed.exchanged})
        assert costed.fit is not None
        assert costed.fit.weights == 0  # of the device
        kept = [p for p in profile.graph.parameters if p.kind == "parameter"]
        every = len(kept), sum(4 * p.numel for p in kept)  # beside which there may be scales
        assert found[-1]["forward", "upload"] == found[-1]["backward", "download"] == every
    assert found[0] == found[1]
    assert ("forward", "all-reduce") in found[0]


@pytest.mark.filterwarnings("ignore:Passing `tp_plan` directly:FutureWarning")
def test_a_model_that_transformers_splits_by_its_own_plan(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, vocab_size=128,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    whole = opgraph.profile(LlamaForCausalLM.from_pretrained(tmp_path), seq_len=16)
    with opgraph.ranks(WORLD):
        model = LlamaForCausalLM.from_pretrained(tmp_path, tp_plan="auto")
        profile = opgraph.profile(model, seq_len=16)
    assert profile.totals.flops * WORLD == whole.totals.flops
    found = {str(e.kind): e.times for e in profile.on().exchanged}
    assert found == {"all-reduce": 5, "all-gather": 1}


class Fused(torch.nn.Module):
    """A gather and a product in one kernel, and a product and a scatter, as in asynchronous tensor
    parallelism."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = (torch.nn.Parameter(torch.empty(4096, 4096)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        name = dist.group.WORLD.group_name
        _, (y,) = torch.ops.symm_mem.fused_all_gather_matmul(x, [self.up], 0, name)
        return torch.ops.symm_mem.fused_matmul_reduce_scatter(y, self.down, "sum", 0, name)


def test_what_a_product_exchanges_piece_by_piece() -> None:
    """It takes little more than the product alone, and less than one after the other."""
    import torch.distributed._symmetric_memory

    rows = 1024
    with opgraph.ranks(WORLD), torch.device("meta"):
        profile = opgraph.profile(Fused(), torch.zeros(rows, 4096))
    kernels = [k for n in profile.graph.nodes for k in n.kernels]
    assert [k.flops for k in kernels] == [2 * WORLD * rows * 4096 * 4096] * 2
    whole = 4 * WORLD * rows * 4096
    found = profile.on("h100-sxm")
    assert [(str(e.kind), e.bytes, e.ranks) for e in found.exchanged] == [
        ("all-gather", whole, WORLD), ("reduce-scatter", whole, WORLD),
    ]  # fmt: skip
    assert found.remarks == ()
    alone = opgraph.profile(torch.nn.Linear(4096, 4096, bias=False, device="meta"),
                            torch.zeros(WORLD * rows, 4096, device="meta")).on("h100-sxm")  # fmt: skip
    sent = whole / found.device.link_reached
    for kernel in found.prediction.kernels:
        assert alone.prediction.device_seconds < kernel.seconds
        assert kernel.seconds < alone.prediction.device_seconds + sent


class Summing(torch.nn.Module):
    """Exchanges something by itself, within its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(programs.WIDTH, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        dist.all_reduce(y)
        return y


def test_a_model_that_exchanges_by_itself() -> None:
    with opgraph.ranks(WORLD):
        profile = opgraph.profile(Summing(), inputs())
    (each,) = profile.on().exchanged
    assert (each.phase, each.kind, each.times) == ("forward", CollectiveKind.ALL_REDUCE, 1)
    assert each.bytes == programs.BATCH * programs.TOKENS * 8 * 4
    assert profile.model.notes == ()


def step(schedule: Callable[[], Any], rank: int) -> opgraph.Profile:
    batch = programs.batch_of_a_step
    with opgraph.ranks(WORLD, rank):
        made = schedule()
        return opgraph.profile(made, batch(), {"target": batch()}, mode="train", target="cpu")


def test_ranks_of_a_pipeline_agree_and_leave_its_schedule_as_it_was() -> None:
    """All are of one batch and one loss, whichever of them has inputs, and the last one's outputs."""
    batch = programs.batch_of_a_step()
    said = []
    for rank in (0, 1, WORLD - 1):
        with opgraph.ranks(WORLD, rank):
            made: Any = programs.pipeline()
            before = [repr(vars(thing)) for thing in (made, made._stage)]
            found = opgraph.profile(made, batch, mode="train", loss="sum", target="cpu")
            assert [repr(vars(thing)) for thing in (made, made._stage)] == before
        assert not found.remarks
        assert found.pipeline is not None
        said.append((found.pipeline.batch, found.convention["loss"]))
        names = [found.graph.value[v].name for v in found.graph.inputs]
        assert names == ["input"] * (rank == 0)
    assert said == [(batch.shape[0], "the sum of what the model returns")] * 3


@pytest.mark.parametrize("rank", [0, 2])
def test_stages_that_do_not_say_what_they_hand_on(rank: int) -> None:
    found, said = (step(p, rank) for p in (programs.unsaid, programs.pipeline))
    assert [(n.op, n.kernels) for n in found.graph.nodes] == [
        (n.op, n.kernels) for n in said.graph.nodes
    ]
    assert found.graph.storages == said.graph.storages
    guessed = [n for n in found.remarks if "is taken to be handed 2x8x48" in n]
    assert len(guessed) == (rank > 0)


def test_a_stage_of_which_nobody_knows_what_it_is_handed() -> None:
    """A convolution does not run on positions: what to write is said."""
    with opgraph.ranks(2, 1):
        part, device = torch.nn.Conv2d(4, 4, 3, device="meta"), torch.device("cuda")
        schedule = ScheduleGPipe(PipelineStage(part, 1, 2, device), 2, loss_fn=torch.sub)
        with pytest.raises(opgraph.InputError, match=r"PipelineStage.*output_args=…. says it"):
            opgraph.profile(schedule, torch.empty(2, 3, 8, 8), mode="train", loss="sum")


def test_what_a_stage_runs_again_is_heard_as_in_its_forward() -> None:
    """Its backward is torch's own call, within which a checkpoint runs the forward anew."""
    plain, again = step(programs.unsaid, 0), step(partial(programs.unsaid, again=True), 0)
    forward = sum(n.flops for n in plain.graph.nodes if n.phase == "forward")
    # The last product of each block gives nothing that the backward needs: torch stops before it.
    assert 2 * (again.totals.flops - plain.totals.flops) == forward
    scopes = [n.scope for n in again.graph.nodes if n.op == "layer_norm"]
    assert len(scopes) == 2 * len([n for n in plain.graph.nodes if n.op == "layer_norm"])


class Routed(torch.nn.Module):
    """Counts by flags how often each of 8 experts is chosen, tells the others, and sends tokens."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ids = torch.topk(x, 2, dim=-1, sorted=False).indices
        chosen = torch.zeros_like(x, dtype=torch.bool).scatter_(-1, ids, True)
        counts = chosen.sum(dim=0).view(WORLD, -1)
        told = [torch.empty_like(c) for c in counts]
        dist.all_to_all(told, list(counts))
        sizes = torch.stack(told).sum(dim=1).tolist()
        sent = x[torch.argsort(ids.flatten()) // 2]
        out = [sent.new_empty(n, x.shape[1]) for n in sizes]
        dist.all_to_all(out, list(sent.split(counts.sum(dim=1).tolist())))
        return torch.cat(out)


def test_experts_whose_choice_is_counted_by_flags() -> None:
    with opgraph.ranks(WORLD):
        profile = opgraph.profile(Routed(), torch.empty(64, 8, device="meta"))
    sent = [k.collective for n in profile.graph.nodes for k in n.kernels if k.collective]
    assert [c.bytes for c in sent] == [8 * 8, 64 * 2 * 8 * 4]


class Attending(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


@pytest.mark.parametrize(("rotates", "forward"), [("allgather", 1), ("alltoall", WORLD - 1)])
def test_attention_in_a_ring(rotates: str, forward: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's `context_parallel`: of the keys and values that go round, a rank attends to its own, and to
    half of each other rank's, since the rest is masked for one or the other half of its tokens."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import _cp_options, set_rotate_method

    monkeypatch.setattr(_cp_options, "rotate_method", _cp_options.rotate_method)
    x = torch.zeros(2, 4, 256, 16)
    with opgraph.ranks(WORLD):
        mesh = init_device_mesh("cuda", (WORLD,), mesh_dim_names=("cp",))
        set_rotate_method(rotates)
        with context_parallel(mesh, buffers=(x,), buffer_seq_dims=(2,)):
            profile = opgraph.profile(Attending(), x, target="cuda")
    own = 2 * 2 * (2 * 4 * 64 * 64 * 16)
    assert profile.totals.flops == own + (WORLD - 1) * own // 2
    (sent,) = profile.on().exchanged
    assert (sent.ranks, sent.times) == (WORLD, forward)
    rounds = WORLD if rotates == "allgather" else WORLD - 1
    assert sent.bytes == rounds * 2 * (2 * 4 * 64 * 16 * 4)
    assert sent.sent == (WORLD - 1) * 2 * (2 * 4 * 64 * 16 * 4)  # either way, and all of it
    # What a rank attends to of others is not masked, and waits for what came round.
    graph = profile.graph
    masked = [k.causal for n in graph.nodes for k in n.kernels if k.category == "attention"]
    assert masked == [True] + [False] * (WORLD - 1)
    half = own * 65 // 128
    assert [w.task.flops for w in workload(graph) if w.task.flops] == [
        half,
        *[own // 2] * (WORLD - 1),
    ]
    attention = [n for n in graph.nodes if any(k.flops for k in n.kernels)]
    exchanging = {n.id for n in graph.nodes if any(k.collective for k in n.kernels)}
    assert [exchanging.isdisjoint(graph.reads(n)) for n in attention[:2]] == [True, False]
    left = counted(profile, {"attention": "causal"})
    assert left.totals.flops == half + (WORLD - 1) * own // 2
    assert [w.task.flops for w in workload(left.graph)] == [w.task.flops for w in workload(graph)]


def test_variables_that_are_set_in_a_world_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPGRAPH_TESTED", "before")
    monkeypatch.delenv("RANK", raising=False)
    with opgraph.ranks(4):
        assert os.environ["RANK"] == "0"
        os.environ["OPGRAPH_TESTED"] = "within"
    assert os.environ["OPGRAPH_TESTED"] == "within"
    assert "RANK" not in os.environ
