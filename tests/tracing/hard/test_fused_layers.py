"""Layers that torch runs as one kernel where it can: attention, transformers, recurrent layers."""

from __future__ import annotations

import pytest
import torch
from tests.tracing.hard.models import Function, profiled
from torch import nn

import opgraph


@pytest.mark.parametrize("batch_first", [True, False])
def test_multi_head_attention(batch_first):
    model = nn.MultiheadAttention(16, 4, batch_first=batch_first)
    x = torch.randn(3, 5, 16)
    b, s = (3, 5) if batch_first else (5, 3)
    projections = 2 * b * s * 16 * 16 * 4
    attention = 2 * 2 * b * s * s * 16
    assert profiled(model, x, x, x).totals.flops == projections + attention


def test_transformer_encoder_with_a_mask():
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    x = torch.randn(2, 5, 16)
    mask = torch.zeros(2, 5, dtype=torch.bool)
    tokens = 2 * 5
    layer_flops = 2 * tokens * 16 * 16 * 4 + 2 * 2 * tokens * 5 * 16 + 2 * 2 * tokens * 16 * 32
    assert profiled(model, x, src_key_padding_mask=mask).totals.flops == 2 * layer_flops


@pytest.mark.slow
@pytest.mark.parametrize("tracer", ["fx", "dynamo", "export"])
def test_a_layer_is_the_same_to_all_tracers(tracer):
    """Torch has one kernel for a whole layer, which only a compiler would get to see."""
    model = nn.Sequential(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2),
        Function(
            lambda self, x: self.parts[0](x, x, x)[0],
            nn.MultiheadAttention(16, 4, batch_first=True),
        ),
    )
    x = torch.randn(2, 5, 16)
    plain = profiled(model, x).totals
    found = opgraph.profile(model.eval(), inputs=(x,), tracer=tracer).totals
    assert found.other_flops == plain.other_flops > 0
    assert found.flops == plain.flops
    assert found.bytes == plain.bytes
    assert torch.backends.mha.get_fastpath_enabled()


def test_packed_sequences():
    lstm = nn.LSTM(8, 16, batch_first=True)

    def run(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3], batch_first=True)
        output, _ = self.parts[0](packed)
        return nn.utils.rnn.pad_packed_sequence(output, batch_first=True)[0]

    profile = profiled(Function(run, lstm), torch.randn(2, 5, 8))
    assert profile.totals.flops == 8 * 2 * 4 * 16 * (8 + 16)


def test_flex_attention():
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 16, 8)
    profile = profiled(Function(lambda self, q: flex_attention(q, q, q)), q)
    assert profile.totals.flops == 2 * 2 * 2 * 16 * 16 * 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_products_in_groups_of_any_dtype(dtype, mode):
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 16, 32, dtype=dtype))

        def forward(self, x):
            offsets = torch.arange(2, 10, 2, dtype=torch.int32)
            return nn.functional.grouped_mm(x, self.weight, offs=offsets).relu()

    x = torch.randn(8, 16, dtype=dtype, requires_grad=True)
    p = opgraph.profile(Experts(), x, mode=mode)
    flops = 2 * 8 * 16 * 32
    assert p.totals.flops == flops * (
        3 if mode == "train" else 1
    )  # of the weight, and of x, which asks for it
    assert "real-tensors" not in {r.code for r in p.remarks}
    made = [v.dtype for v in p.graph.values if v.shape == (8, 32)]
    assert set(made) == {str(dtype).removeprefix("torch.")}
