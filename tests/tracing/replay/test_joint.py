"""TorchInductor's kernels of a step of training, held to what torch itself keeps and to hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import opgraph

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


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)),
            (16, 32)),
    "convolutions": (lambda: nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=16),
        nn.BatchNorm2d(16), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 36, 8)),
        (4, 3, 16, 16)),
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
        ("forward", "pointwise", ["gelu"]),
        ("forward", "mm", ["linear"]),
    ]
    gradients = said[3:]
    assert [op for _, op, _ in gradients if op == "mm"] == ["mm"] * 3
    assert all(nodes.count("mm") == 1 for _, op, nodes in gradients if op == "mm")
    (gelu,) = (k for k in mlp.compiled.kernels if k.phase == "backward" and not k.kernel.flops)
    assert {"gelu_backward", "sum"} <= {graph.node(i).op for i in gelu.nodes}
    assert gelu.kernel.op == "inductor.reduction"
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
