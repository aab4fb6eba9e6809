"""What training keeps on a GPU, against published formulas and measurements."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import opgraph
from opgraph.analysis.cost.training import training
from opgraph.analysis.memory import reserve
from opgraph.sources import resolve
from opgraph.sources.base import BuildOptions


class Block(nn.Module):
    """A transformer layer as Korthikanti et al. have it ("Reducing Activation Recomputation in Large
    Transformer Models", 2022, section 4)."""

    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.heads, self.drop = heads, nn.Dropout(dropout)

    def forward(self, x):
        b, s, h = x.shape
        parts = self.qkv(self.n1(x)).chunk(3, -1)
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in parts)
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.drop.p, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, s, h)))
        return x + self.drop(self.down(functional.gelu(self.up(self.n2(x)))))


@pytest.mark.slow
@pytest.mark.parametrize(("dropout", "bytes_each"), [(0.1, 34), (0.0, 32)])
def test_a_layer_keeps_what_korthikanti_et_al_say(dropout, bytes_each):
    """34 s b h bytes where attention keeps no scores; without dropout its masks of one byte are none."""
    s, b, h = 1024, 2, 512

    def kept(layers: int) -> int:
        model = nn.Sequential(*(Block(h, 8, dropout) for _ in range(layers))).bfloat16()
        x = torch.zeros(b, s, h, dtype=torch.bfloat16)
        profile = opgraph.profile(model, x, mode="train", loss="sum", target="cuda")
        return training(profile.graph).saved_activations

    each = kept(2) - kept(1)
    assert each == pytest.approx(bytes_each * s * b * h, rel=0.01)
    assert each == pytest.approx(34 * s * b * h, rel=0.08)


@pytest.mark.slow
def test_gpt2_keeps_what_a_gpu_keeps():
    """Activations of GPT-2 at 8 x 1,024 tokens in float32, in units of U = b s h 4 bytes = 24 MiB."""
    unit = 8 * 1024 * 768 * 4
    base, head = (
        opgraph.profile("gpt2", mode="train", batch_size=8, seq_len=1024, target="cuda", loss=loss)
        for loss in ("sum", "auto")
    )
    # A layer: both inputs of normalizations and both results (4); q, k, v (3); what attention returns (1),
    # and its mask of dropout with that of the feed-forward part (1/4 each); in the feed-forward part, 4 U
    # each, its first result, x / 2, tanh, 1 + tanh and their product (20). Attention keeps its sums'
    # logarithms, and the seed and offset of its dropout; a normalization its means and deviations.
    tokens = 8 * 1024
    layer = (4 + 3 + 1 + 0.5 + 20) * unit + tokens * 12 * 4 + 2 * 8 + 2 * (2 * tokens * 4)
    # Beside them the embeddings' mask, the last normalization, two inputs, the positions, and the sum.
    rest = 0.25 * unit + 2 * unit + 2 * tokens * 4 + 2 * tokens * 8 + 1024 * 8 + 4
    kept = training(base.graph).saved_activations
    assert kept == 12 * layer + rest
    assert kept / 2**30 == pytest.approx(8.07, abs=0.01)
    # The peak, in the backward of the last activation. Gone by then: what the last product read (4), its
    # mask (1/4), what the last normalization read (1), with its means and deviations, and what it gave (1).
    gone = (4 + 0.25 + 1 + 1) * unit + 2 * tokens * 4
    # There instead: 1 for the loss; gradients of the last normalization's input (1), weight and bias; of
    # the last product's input (4), weight and bias; and of x / 2 and 1 + tanh (4 each).
    made = 4 + (1 + 4 + 4 + 4) * unit + 3 * 768 * 4 + 4 * 768 * 768 * 4
    peak = base.on().memory.peak - training(base.graph).optimizer_state
    assert peak == kept - gone + made
    assert peak / 2**30 == pytest.approx(8.24, abs=0.01)
    # The 8.51 GiB of a CPU whose attention keeps no scores: its other 25 masks are numbers of 4 bytes, not
    # of one, and attention without dropout has neither seed nor offset.
    plain = resolve("gpt2", BuildOptions(arguments={"attn_pdrop": 0.0}))
    cpu = opgraph.profile(plain, mode="train", batch_size=8, seq_len=1024, target="cpu", loss="sum")
    elsewhere = training(cpu.graph).saved_activations
    assert elsewhere / 2**30 == pytest.approx(8.51, abs=0.01)
    assert elsewhere == kept + 25 * 0.75 * unit - 12 * 2 * 8
    # The loss keeps logits [8 * 1024, 50257] in float32 twice: as they are, and their logarithms.
    logits = 8 * 1024 * 50257 * 4
    more = training(head.graph).saved_activations - kept
    assert more == pytest.approx(2 * logits, rel=0.01)


class Softmax110(torch.autograd.Function):
    """Softmax as torch had it before 1.11, of which the backward took the input, too, for its dtype alone
    (derivatives.yaml; transformers' `softmax_backward_data` tells both versions apart)."""

    @staticmethod
    def forward(ctx, scores):
        result = torch.softmax(scores, -1)
        ctx.save_for_backward(scores, result)
        return result

    @staticmethod
    def backward(ctx, grad):
        scores, result = ctx.saved_tensors
        return torch._softmax_backward_data(grad, result, -1, scores.dtype)


def attention_of_2022(module, query, key, value, mask, dropout=0.0, scaling=None, **_):
    scores = torch.matmul(query, key.transpose(-1, -2)) / query.shape[-1] ** 0.5
    scores = scores if mask is None else scores + mask
    kept = functional.dropout(Softmax110.apply(scores), dropout, module.training)
    return torch.matmul(kept, value).transpose(1, 2).contiguous(), None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "checkpointing", "measured"),
    [(4, False, 14_949), (1, False, 8_681), (1, True, 6_775)],
)
def test_bert_large_against_a_published_walk(batch, checkpointing, measured):
    """MiB in use on a V100, 1,343 of them context (Hugging Face, "Training on a Single GPU", 2022).

    Attention was products and softmax, whose input torch kept then (16 MiB a layer and sample, a third of
    attention's), the optimizer a loop over the weights, and the gradients of the step before were there:
    batches of 1 were accumulated to 4, and `zero_grad` set to zero.
    """
    import transformers

    transformers.AttentionInterface.register("of 2022", attention_of_2022)
    model = resolve("bert-large-uncased", BuildOptions(head="sequence-classification"))
    model.module.config._attn_implementation = "of 2022"
    graph = opgraph.profile(
        model, mode="train", batch_size=batch, seq_len=512, optimizer="adamw-loop",
        checkpointing=checkpointing, accumulation=True, target="cuda:7.0",
    ).graph  # fmt: skip
    kept = [p.bytes for p in graph.parameters]
    taken = reserve(kept, graph.storages, sum(len(n.kernels) for n in graph.nodes))
    assert taken.reserved / 2**20 + 1343 == pytest.approx(measured, rel=0.05)
