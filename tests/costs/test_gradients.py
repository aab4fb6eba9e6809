"""FLOPs of gradients, worked out by hand: of the weights and, behind a learned scale, of the inputs."""

from __future__ import annotations

import pytest
import torch
from benchmarks.training import Behind
from torch import nn
from torch.nn import functional

import opgraph
from opgraph.record.errors import InputError


class Attention(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, x):
        if self.fused:
            return functional.scaled_dot_product_attention(x, x, x)
        return (x @ x.transpose(-1, -2)) @ x


class Jagged(nn.Module):
    """Attention within sequences of 3 and of 5 that lie one after another."""

    def forward(self, x):
        rows = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 3, 8]))
        heads = rows.unflatten(-1, (2, 8)).transpose(1, 2)
        found = functional.scaled_dot_product_attention(heads, heads, heads)
        return found.transpose(1, 2).values()


def backward(module, x):
    profile = opgraph.profile(module, (x,), mode="train")
    assert profile.graph.failed is None
    assert profile.totals.coverage == 1.0
    return [k for n in profile.nodes if n.phase == "backward" for k in n.kernels]


CONVOLUTION = 2 * 2 * (4 * 4) * 6 * 4 * 9
"""Two images, 4 x 4 positions, 4 to 6 channels, a window of 3 x 3."""


@pytest.mark.parametrize(
    ("module", "shape", "flops"),
    [
        # Y = X W^T: dX = dY W and dW = dY^T X, each of the size of the forward.
        (nn.Linear(8, 16), (5, 8), 2 * (2 * 5 * 8 * 16)),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1), (2, 4, 8, 8), 2 * CONVOLUTION),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 8, 8), 2 * CONVOLUTION // 2),
        (nn.Conv2d(8, 8, 3, padding=1, groups=8), (1, 8, 5, 5), 2 * (2 * 25 * 8 * 9)),
        # A transposed convolution meets its weights once for each position of its input.
        (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), (2, 4, 4, 4), 2 * CONVOLUTION // 2),
        # Two products, each with two gradients of its size.
        (Attention(fused=False), (1, 2, 7, 4), 4 * (2 * 2 * 7 * 7 * 4)),
        # Fused attention keeps no scores: the first product is computed once more.
        (Attention(fused=True), (1, 2, 7, 4), 5 * (2 * 2 * 7 * 7 * 4)),
    ],
)
def test_contractions(module, shape, flops):
    assert sum(k.flops for k in backward(Behind(module), torch.ones(shape))) == flops


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "dtype", "kernel", "products"),
    [
        ("cpu", torch.float32, "matmul", 2 + 4),
        ("cuda:8.0", torch.float32, "_efficient_attention_forward", 2 + 5),
        ("cuda:8.0", torch.bfloat16, "_flash_attention_forward", 2 + 5),
        ("cuda:7.5", torch.float16, "_efficient_attention_forward", 2 + 5),
    ],
)
def test_attention_of_jagged_tensors(target, dtype, kernel, products):
    """Of 2 heads of 8, two products in the forward, and two gradients of each, or the first once more; for
    the pairs of positions within a sequence alone."""
    model, x = Behind(Jagged()).to(dtype), torch.ones(8, 16, dtype=dtype)
    profile = opgraph.profile(model, (x,), mode="train", loss="sum", target=target)
    ran = [k for n in profile.nodes for k in n.kernels if k.flops]
    assert ran[0].op == f"aten.{kernel}"
    assert sum(k.flops for k in ran) == products * 2 * 2 * 8 * (3 * 3 + 5 * 5)
    assert profile.totals.coverage == 1.0


@pytest.mark.parametrize(
    ("module", "x", "op", "other"),
    [
        # Each row of the gradient is added to the row of the table that was looked up.
        (nn.Embedding(9, 6), torch.zeros(2, 5, dtype=torch.long), "embedding_dense_backward", 60),
        # 3 for weight and bias, 3 for the normalized x and g * weight, 8 for the result, an element.
        (Behind(nn.LayerNorm(6)), torch.ones(5, 6), "native_layer_norm_backward", 14 * 30),
    ],
)
def test_other_work(module, x, op, other):
    (kernel,) = (k for k in backward(module, x) if k.op == f"aten.{op}")
    assert (kernel.flops, kernel.other_flops) == (0, other)


def test_convolutions_go_by_their_groups():
    kinds = {
        groups: {k.category for k in backward(Behind(nn.Conv2d(8, 8, 3, groups=groups)),
                                              torch.ones(1, 8, 5, 5)) if k.flops}
        for groups in (1, 2, 8)
    }  # fmt: skip
    assert kinds == {1: {"convolution"}, 2: {"grouped_convolution"}, 8: {"depthwise_convolution"}}


def test_checkpointing_runs_blocks_again():
    """Three blocks of two layers of 8 x 8: all but what nobody needs again, and far fewer activations."""
    block = lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU())  # noqa: E731
    module = nn.Sequential(*(block() for _ in range(3)))
    x = torch.ones(64, 8)
    plain, spared = (
        opgraph.profile(module, (x,), mode="train", checkpointing=c) for c in (False, True)
    )
    flops = {p: _flops(spared, p) for p in ("forward", "recompute", "backward")}
    one = 2 * 64 * 8 * 8
    assert flops == {"forward": 6 * one, "recompute": 6 * one, "backward": 11 * one}
    assert _flops(plain, "recompute") == 0
    assert _flops(plain, "backward") == flops["backward"]
    from opgraph.analysis.cost.training import training

    kept = [training(p.graph).saved_activations for p in (plain, spared)]
    assert kept[1] < kept[0] / 2
    assert "checkpointed" in str(spared)
    assert all("forward" not in vars(part) for part in module.modules())


def _flops(profile, phase):
    return sum(n.flops for n in profile.nodes if n.phase == phase)


def test_checkpointing_needs_blocks_and_training():
    with pytest.raises(InputError, match="no repeated blocks"):
        opgraph.profile(nn.Linear(2, 2), (torch.ones(1, 2),), mode="train", checkpointing=True)
    with pytest.raises(InputError, match="checkpointing has no effect where the mode is infer"):
        opgraph.profile("gpt2", checkpointing=True)
