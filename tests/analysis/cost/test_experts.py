"""Mixtures of experts: what one token uses, found in the graph whichever way the experts are run."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import opgraph
from opgraph.analysis.cost.experts import mixtures
from opgraph.sources import BuildOptions, resolve

SMALL = BuildOptions(
    arguments={
        "num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "head_dim": 16,
        "num_key_value_heads": 2, "num_experts": 6, "num_experts_per_tok": 2,
        "moe_intermediate_size": 48, "vocab_size": 64, "decoder_sparse_step": 1,
    }
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "total", "active", "without_tables", "blocks", "matrix"),
    [
        # Mistral AI, "Mixtral of Experts" (2024): 46.7B and 12.9B.
        ("mixtral-8x7b", 46.7e9, 12.9e9, 12.7e9, (32, 8, 2), 4096 * 14336),
        # "gpt-oss-120b & gpt-oss-20b Model Card" (2025), table 1: 20.91B and 3.61B without embeddings.
        ("openai/gpt-oss-20b", 20.91e9, 4.19e9, 3.61e9, (24, 32, 4), 2880 * 2880),
        # "DeepSeek-V3 Technical Report" (2024): 671B and 37B.
        ("deepseek-ai/DeepSeek-V3", 671e9, 37.6e9, 36.6e9, (58, 256, 8), 7168 * 2048),
    ],
)
def test_published_parameters(name, total, active, without_tables, blocks, matrix):
    found = opgraph.profile(name, seq_len=128)
    totals = found.totals
    assert totals.parameters == pytest.approx(total, rel=0.003)
    assert totals.active_parameters == pytest.approx(active, rel=0.003)
    table = totals.looked_up_parameters
    assert totals.active_parameters - table == pytest.approx(without_tables, rel=0.005)
    every = mixtures(found.graph)
    assert (len(every), every[0].experts, every[0].chosen) == blocks
    assert {m.flops for m in every} == {2 * 128 * every[0].chosen * 3 * matrix}
    assert {m.active_flops for m in every} == {m.flops for m in every}
    assert "active_parameters" in found.to_dict()["totals"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["grouped_mm", "batched_mm", "eager"])
def test_however_the_experts_run(how):
    model = resolve("hf-type:qwen3_moe", SMALL)
    model.module.set_experts_implementation(how)
    found = opgraph.profile(model, seq_len=8)
    (mixture,) = mixtures(found.graph)
    assert (mixture.experts, mixture.chosen, mixture.tokens) == (6, 2, 8)
    assert mixture.flops == mixture.active_flops == 2 * 8 * 2 * 3 * 32 * 48
    assert found.totals.active_parameters == found.totals.parameters - 4 * 3 * 32 * 48


class Experts(nn.Module):
    """Experts as modules side by side; with `dense` all of them run for every token."""

    def __init__(self, dense: bool) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4, bias=False)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.dense = dense

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            if self.dense:
                out = out + expert(x) * weights * (chosen == number)
            else:
                rows = (chosen == number).any(-1).nonzero()[:, 0]
                out[rows] = expert(x[rows]) * weights[rows]
        return out


@pytest.mark.parametrize("dense", [False, True])
def test_experts_side_by_side(dense):
    found = opgraph.profile(Experts(dense), (torch.randn(16, 8),))
    (mixture,) = mixtures(found.graph)
    assert (mixture.scope, mixture.experts, mixture.chosen) == ("", 4, 1)
    assert (mixture.parameters, mixture.active) == (4 * 72, 72)
    assert mixture.active_flops == 2 * 16 * 64
    assert mixture.flops == (4 if dense else 1) * mixture.active_flops
    assert ("more experts are computed" in str(found)) == dense


class Grouped(nn.Module):
    """A router with a single group of experts, whose score is the sum of its best two, as DeepSeek-V3's
    and GLM-4.5's are."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 32, bias=False)
        self.experts = nn.Parameter(torch.zeros(32, 16, 24))

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        groups = scores.view(-1, 1, 32).topk(2, dim=-1)[0].sum(-1)
        mask = torch.zeros_like(groups).scatter_(1, groups.topk(1, dim=-1)[1], 1)
        masked = scores.masked_fill(mask.expand(-1, 32) == 0, 0)
        weights, chosen = masked.topk(8, dim=-1)
        out = torch.einsum("td,edf->tef", x, self.experts)
        return (out.gather(1, chosen[..., None].expand(-1, -1, 24)) * weights[..., None]).sum(1)


def test_scores_of_groups_are_not_the_choice():
    found = opgraph.profile(nn.Sequential(Grouped()), torch.zeros(5, 16))
    (mixture,) = mixtures(found.graph)
    assert (mixture.scope, mixture.experts, mixture.chosen) == ("0", 32, 8)
    assert found.totals.active_parameters == 16 * 32 + 8 * 16 * 24


@pytest.mark.slow
def test_models_without_experts_have_none(resnet18, bert, gpt2, yolov8n):
    for found in (resnet18, bert, gpt2, yolov8n):
        assert mixtures(found.graph) == ()
        assert found.totals.active_parameters is None
        assert "active_parameters" not in found.to_dict()["totals"]


@pytest.mark.slow
def test_experts_without_a_token_are_not_read():
    """One token meets 2 of 6 experts: a third of their weights is read."""
    few = opgraph.profile(resolve("hf-type:qwen3_moe", SMALL), seq_len=1)
    kernels = [k for n in few.nodes for k in n.kernels if k.op == "aten._grouped_mm"]
    assert len(kernels) == 2
    for kernel, (rows, columns) in zip(kernels, ((32, 96), (48, 32)), strict=True):
        assert kernel.read - 6 * 4 - 2 * rows * 4 == 2 * rows * columns * 4
