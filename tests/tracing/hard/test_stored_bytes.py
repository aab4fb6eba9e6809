"""Weights in fewer bits: their bytes are those of the storages they are really kept in, scales included."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

import opgraph

X = torch.randn(4, 256)
FLOPS = 2 * 4 * 256 * 512


def saved_bytes(module: nn.Module) -> int:
    """The size of a file with the module's weights, to within its headers."""
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    return file.tell()


def torchao(config: str) -> nn.Module:
    quantization = pytest.importorskip("torchao.quantization")
    module = nn.Sequential(nn.Linear(256, 512))
    quantization.quantize_(module, getattr(quantization, config)())
    return module


def float8() -> nn.Module:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(
                torch.ones(512, 256).to(torch.float8_e4m3fn), requires_grad=False
            )
            self.scale = nn.Parameter(torch.ones(512, 1))

        def forward(self, x):
            return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale)

    return Scaled()


def by_channel() -> nn.Module:
    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            scales, zeros = torch.full((512,), 0.01), torch.zeros(512)
            weight = torch.quantize_per_channel(torch.ones(512, 256), scales, zeros, 0, torch.qint8)
            self.register_buffer("weight", weight)

        def forward(self, x):
            return nn.functional.linear(x, self.weight.dequantize())

    return Quantized()


@pytest.mark.parametrize(
    ("make", "stored", "exact"),
    [
        (lambda: torchao("Int8WeightOnlyConfig"), 512 * 256 + 512 * 4 + 512 * 4, False),
        (lambda: torchao("Float8WeightOnlyConfig"), 512 * 256 + 512 * 4 + 512 * 4, True),
        (float8, 512 * 256 + 512 * 4, True),
        (by_channel, 512 * 256 + 512 * 4 + 512 * 4, True),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_bytes_are_those_of_the_storages(make, stored, exact):
    module = make()
    profile = opgraph.profile(module, X)
    assert profile.graph.failed is None
    totals = profile.totals
    found = totals.weight_bytes + totals.buffer_bytes
    assert found == stored if exact else found == pytest.approx(stored, rel=0.01)
    assert 0 < saved_bytes(module) - found < 4096
    assert totals.flops == FLOPS


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.filterwarnings("ignore")
def test_bitsandbytes(bits):
    nn_of = pytest.importorskip("bitsandbytes").nn
    layer = (
        nn_of.Linear8bitLt(256, 512, has_fp16_weights=False)
        if bits == 8
        else nn_of.Linear4bit(256, 512, quant_type="nf4")
    )
    module = nn.Sequential(layer.to("cpu"))
    totals = opgraph.profile(module, X).totals
    assert totals.parameters == 512 * 256 + 512
    assert totals.flops == FLOPS
    # Scales: one a row in 8 bits. In 4 bits one byte for 64 numbers, with a scale for 256 of them, their
    # offset, and two tables of values, of 16 and of 256.
    scales = 512 * 4 if bits == 8 else 2048 + 2048 // 256 * 4 + 4 + (16 + 256) * 4
    assert totals.weight_bytes == 512 * 256 * bits // 8 + scales + 512 * 4
