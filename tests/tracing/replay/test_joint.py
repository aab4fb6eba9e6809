"""TorchInductor's kernels of a step of training, held to what torch itself keeps and to hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import opgraph
from opgraph.tracing.replay.inductor import on_cuda, properties
from opgraph.tracing.target.autocast import cuda_autocast

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.usefixtures("usual_settings")]


class Block(nn.Module):
    """A pre-norm block of a transformer, with attention by hand: it is the same on every device."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.first(x)).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) * 0.3 + 0.1).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Checkpointed(nn.Module):
    """Blocks that keep their inputs alone."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x * 2


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)),
            (16, 32)),
    "convolutions": (lambda: nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=16),
        nn.BatchNorm2d(16), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 36, 8)),
        (4, 3, 16, 16)),
    "checkpoints": (lambda: Checkpointed(Block(), Block()), (2, 16, 64)),
    "checkpointed normalizations": (lambda: Checkpointed(*(  # whose buffers are written to, both times
        nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(2))),
        (2, 8, 16, 16)),
    "transformer": (lambda: nn.Sequential(Block(), Block(), nn.Linear(64, 8)), (2, 16, 64)),
}  # fmt: skip


def kept_by_torch(model: nn.Module, example: torch.Tensor) -> list[int]:
    """The bytes of each tensor that torch's own compiled function keeps for its backward on this machine,
    without the weights and the input."""
    from torch._dynamo.backends.common import aot_autograd  # these take seconds
    from torch._inductor import compile_fx

    def as_it_is(gm: torch.fx.GraphModule, _inputs: object) -> object:
        return torch._functorch.aot_autograd.make_boxed_func(gm.forward)

    backend = aot_autograd(
        fw_compiler=as_it_is, bw_compiler=as_it_is, partition_fn=compile_fx.partition_fn,
        decompositions=compile_fx.select_decomp_table(),
    )  # fmt: skip
    torch._dynamo.reset()
    result = torch.compile(model, backend=backend)(example)
    given = {
        t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers(), example)
    }
    memory = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
              for t in result.grad_fn.saved_tensors}  # fmt: skip
    return sorted(size for at, size in memory.items() if at not in given)


@pytest.mark.parametrize("target", ["cpu", "cuda:9.0"])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_kept_is_what_torch_keeps(name, target):
    make, shape = MODELS[name]
    found = opgraph.profile(make(), torch.zeros(shape), mode="train", inductor=True, target=target)
    kept = sorted(size for _, size in found.compiled.kept)
    assert kept == kept_by_torch(make().train(), torch.zeros(shape))


@pytest.fixture(scope="module")
def mlp() -> opgraph.Profile:
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8, bias=False))
    return opgraph.profile(
        model, torch.zeros(16, 32), mode="train", inductor=True, target="cuda:9.0", loss="sum"
    )


def test_an_mlp_is_the_kernels_that_one_finds_by_hand(mlp):
    """Forward: a product with its bias, GELU, a product. Backward: the second weight's gradient and its
    input's, which the gradient of GELU is applied to, with the sum that is the bias's gradient in one
    kernel, and then the first weight's. What the first product made, and GELU of it, are kept."""
    graph = mlp.graph
    said = [(k.phase, k.kernel.op.partition(".")[2], [graph.node(i).op for i in k.nodes])
            for k in mlp.compiled.kernels]  # fmt: skip
    assert said[:3] == [
        ("forward", "addmm", ["linear"]),
        ("forward", "poi_fused_gelu", ["gelu"]),
        ("forward", "mm", ["linear"]),
    ]
    gradients = said[3:]
    assert [op for _, op, _ in gradients if op == "mm"] == ["mm"] * 3
    assert all(nodes.count("mm") == 1 for _, op, nodes in gradients if op == "mm")
    (gelu,) = (k for k in mlp.compiled.kernels if k.phase == "backward" and not k.kernel.flops)
    assert {"gelu_backward", "sum"} <= {graph.node(i).op for i in gelu.nodes}
    assert gelu.kernel.op == "inductor.red_fused_gelu_gelu_backward_sum"
    assert (gelu.kernel.read, gelu.kernel.written) == (2 * 4 * 16 * 64, 4 * 16 * 64 + 4 * 64)
    assert [(graph.node(i).op, size) for i, size in mlp.compiled.kept] == [
        ("linear", 4 * 16 * 64),
        ("gelu", 4 * 16 * 64),
    ]
    nodes = [i for k in mlp.compiled.kernels for i in k.nodes if graph.node(i).flops]
    assert len(nodes) == len(set(nodes)) == 5


def test_a_step_costs_what_is_compiled_and_what_is_not(mlp):
    eager, mine = mlp.on("h100-sxm"), mlp.on("h100-sxm", run="compiled")
    assert mine.totals.flops == eager.totals.flops == mlp.totals.flops
    ran = [mine.graph.node(w.node).phase for w in mine.work if w.task.kernel]
    assert list(dict.fromkeys(ran)) == ["forward", "backward", "optimizer"]
    assert mine.speed_up.kept.bytes == 2 * 4 * 16 * 64
    assert any("optimizer" in r for r in mine.remarks)
    # What a host that is the limit saves are calls: a compiler may well make more kernels.
    was, now = (sum(w.calls + w.modules for w in each.work) for each in (eager, mine))
    assert now < was
    assert eager.prediction.limit == "host"
    assert f"{now} calls of operators and modules instead of {was}" in [
        r.text for r in mine.speed_up.reasons
    ]
    steps = [[w.task for w in each.work if each.graph.node(w.node).phase == "optimizer"]
             for each in (eager, mine)]  # fmt: skip
    assert steps[0] == steps[1] != []
    assert opgraph.Profile.from_dict(mlp.to_dict()) == mlp


def test_gradients_of_both_sides_of_a_graph_break_are_compiled():
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x).relu()
            torch._dynamo.graph_break()
            return self.second(x)

    found = opgraph.profile(Broken(), torch.zeros(4, 8), mode="train", inductor=True)
    assert [(k.phase, k.fragment) for k in found.compiled.kernels if k.kernel.flops] == [
        ("forward", 1), ("forward", 2), ("backward", 2), ("backward", 2), ("backward", 1),
    ]  # fmt: skip
    kept = {found.graph.node(i).op for i, _ in found.compiled.kept}
    assert kept == {"relu"} or kept == {"relu", "linear"}


def test_a_gather_reads_what_it_takes_and_a_slice_what_it_is():
    class Looked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(1 << 14, 64)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            rows = self.table(ids)
            return functional.layer_norm(rows * 2, (64,))[:, :32].relu()

    found = opgraph.profile(Looked(), torch.zeros(16, dtype=torch.long), inductor=True)
    assert sum(k.kernel.read for k in found.compiled.kernels) <= 3 * (16 * 64 * 4 + 16 * 8)


@pytest.mark.parametrize(("policy", "again"), [("full", {"mm", "bmm"}), ("selective", set())])
def test_what_checkpoints_run_again_is_compiled_in_the_backward(policy, again):
    """Of two blocks the input of the second is kept, with "selective" also what products make. What runs
    again stands at the nodes that an eager run runs again."""
    found = opgraph.profile(
        nn.Sequential(Block(), Block(), nn.Linear(64, 8)), torch.zeros(2, 16, 64), mode="train",
        inductor=True, target="cuda:9.0", loss="sum", checkpointing=True, checkpointing_policy=policy,
    )  # fmt: skip
    graph, size = found.graph, 4 * 2 * 16 * 64
    kept = [size for _, size in found.compiled.kept]
    assert (kept == [size]) is (policy == "full")
    ran = [
        k for k in found.compiled.kernels
        if k.phase == "backward" and {graph.node(i).phase for i in k.nodes} == {"recompute"}
    ]  # fmt: skip
    assert {k.kernel.op.partition(".")[2] for k in ran if k.kernel.flops} == again
    eager, mine = found.on("h100-sxm"), found.on("h100-sxm", run="compiled")
    last = 2 * 32 * 256 * 64 * (policy == "full")  # torch runs the last product of the blocks again
    assert mine.totals.flops == eager.totals.flops + last
    assert {mine.graph.node(w.node).phase for w in mine.work if w.task.kernel} == {
        "forward", "recompute", "backward", "optimizer",
    }  # fmt: skip


CALLS = [
    lambda a, low: a @ a,
    lambda a, low: functional.linear(a, a, a[0]),
    lambda a, low: functional.conv1d(a[None], a[..., None]),
    lambda a, low: functional.prelu(a, a[0]),
    lambda a, low: functional.scaled_dot_product_attention(*[a[None, None]] * 3),
    lambda a, low: torch.einsum("ij,jk", a, low),
    lambda a, low: functional.layer_norm(low, (8,)),
    lambda a, low: functional.rms_norm(low, (8,)),
    lambda a, low: functional.group_norm(low, 2),
    lambda a, low: functional.batch_norm(low, None, None, training=True),
    lambda a, low: low.softmax(-1),
    lambda a, low: low.softmax(-1, dtype=torch.float16),
    lambda a, low: low.log_softmax(-1),
    lambda a, low: low.sum(),
    lambda a, low: low.mean(),
    lambda a, low: low.exp(),
    lambda a, low: low.pow(2),
    lambda a, low: low.rsqrt(),
    lambda a, low: low.cumsum(0),
    lambda a, low: low.norm(),
    lambda a, low: low.prod(),
    lambda a, low: functional.gelu(low),
    lambda a, low: functional.mse_loss(low, low),
    lambda a, low: functional.cross_entropy(low, torch.zeros(8, dtype=torch.long, device=low.device)),
    lambda a, low: functional.interpolate(low[None, None], scale_factor=2, mode="bilinear"),
    lambda a, low: functional.avg_pool1d(low, 2),
    lambda a, low: functional.pad(low, (1, 1), mode="reflect"),
    lambda a, low: torch.addcmul(a, low, low),
    lambda a, low: torch.cat([a, low]),
    lambda a, low: torch.stack([low, low]),
    lambda a, low: low + a,
    lambda a, low: low.double() @ low.double(),
]  # fmt: skip


def test_mixed_precision_is_that_of_a_gpu_on_tensors_of_the_cpu():
    def dtypes(device: str) -> list[torch.dtype]:
        a = torch.ones(8, 8, device=device)
        return [call(a, a.bfloat16()).dtype for call in CALLS]

    with FakeTensorMode():
        before = torch.autocast("cpu", torch.bfloat16)
        with before:
            cpu = dtypes("cpu")
        with cuda_autocast(torch.bfloat16):
            found = dtypes("cpu")
        with before:
            assert dtypes("cpu") == cpu != found  # nothing of it stays
        with on_cuda(properties("cuda:9.0")), torch.autocast("cuda", torch.bfloat16):
            assert dtypes("cuda") == found


def test_a_step_in_mixed_precision_multiplies_in_it_and_normalizes_in_float32():
    found = opgraph.profile(
        nn.Sequential(Block(), nn.Linear(64, 8)), torch.zeros(2, 16, 64), mode="train", inductor=True,
        inductor_autocast="bfloat16", target="cuda:9.0", loss="sum",
    )  # fmt: skip
    kernels, graph = found.compiled.kernels, found.graph
    assert {k.kernel.dtype for k in kernels if k.kernel.flops} == {"bfloat16"}
    norms = [k for k in kernels if any("layer_norm" in graph.node(i).op for i in k.nodes)]
    assert {k.kernel.dtype for k in norms if "red_fused" in k.kernel.op} == {"float32"}
    mine = found.on("h100-sxm", run="compiled", autocast="bfloat16")
    assert mine.totals.flops == found.totals.flops
    assert mine.profile.convention["autocast"] == "bfloat16"


def test_what_is_drawn_again_asks_no_driver():
    """Attention with dropout draws random numbers in its kernel, the same ones when it runs again."""

    class Drawn(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            attend = functional.scaled_dot_product_attention
            return checkpoint(
                lambda q: attend(q, q, q, dropout_p=0.1).sin(), x * 2, use_reentrant=False
            )

    given = torch.zeros(1, 2, 16, 32, requires_grad=True)
    model = nn.Sequential(nn.Linear(32, 32), Drawn())
    found = opgraph.profile(
        model, given, mode="train", inductor=True, target="cuda:9.0", loss="sum"
    )
    forward = "aten._scaled_dot_product_efficient_attention"
    kernels = [
        (k.phase, k.kernel.op) for k in found.compiled.kernels if k.kernel.op.startswith(forward)
    ]
    assert kernels == [
        ("forward", forward), ("backward", forward), ("backward", f"{forward}_backward"),
    ]  # fmt: skip
    assert found.compiled.again


def test_constants_are_folded_as_they_are_without_gradients():
    """A number is written into the code, and a table is read: where autograd looked on, neither had a
    value, and nothing was compiled."""

    class Constants(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x):
            return self.layer(x) / torch.sqrt(torch.tensor(16)) + torch.tensor([*range(16)])

    parts = []
    for mode in ("infer", "train"):
        found = opgraph.profile(
            Constants(), torch.zeros(2, 16), mode=mode, inductor=True, target="cuda:9.0"
        )
        kernels = [k for k in found.compiled.kernels if k.phase == "forward"]
        parts.append([(k.kernel.read, k.kernel.written) for k in kernels])
    assert parts[0] == parts[1]
