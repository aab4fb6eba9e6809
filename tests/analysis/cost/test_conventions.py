"""Conventions of counting: what each changes, worked out by hand, and what cannot be counted anew."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import opgraph
from opgraph.analysis.cost.conventions import counted
from opgraph.record.errors import InputError

PRODUCTS = 12 * 2 * (2 * 128 * 128 * 768)
"""12 layers of GPT-2, two products of attention over 128 x 128 pairs of 768 channels."""


@pytest.mark.slow
def test_causal_attention(gpt2):
    """Of 128 x 128 pairs a causal mask leaves 128 x 129 / 2."""
    found = counted(gpt2, {"attention": "causal"})
    assert gpt2.totals.flops - found.totals.flops == PRODUCTS - PRODUCTS * 129 // (2 * 128)
    assert found.convention["attention"] == "causal"
    assert "no pairs that a mask hides in 12 of 12 attentions" in str(found)
    assert "all pairs of attention" in str(gpt2)


@pytest.mark.slow
def test_attention_that_is_not_causal_stays(bert):
    found = counted(bert, {"attention": "causal"})
    assert found.totals.flops == bert.totals.flops
    assert "in 0 of 12 attentions" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "count",
    [
        {"attention": "causal"},
        {"embedding": "matmul"},
        {"attention": "causal", "embedding": "matmul"},
    ],
)
def test_time_does_not_hang_on_how_flops_are_counted(gpt2, count):
    other = counted(gpt2, count)
    assert other.totals.flops != gpt2.totals.flops
    for name in ("h100-sxm", "rtx-4090"):
        own, found = gpt2.on(name).prediction, other.on(name).prediction
        assert found.device_seconds == pytest.approx(own.device_seconds, rel=1e-9)
        assert found.interval == pytest.approx(own.interval, rel=1e-9)


class ByPosition(nn.Module):
    """Attention that is told by position, or by name, that it is causal."""

    def __init__(self, by_position: bool) -> None:
        super().__init__()
        self.by_position = by_position

    def forward(self, x):
        if self.by_position:
            return functional.scaled_dot_product_attention(x, x, x, None, 0.0, True)
        return functional.scaled_dot_product_attention(x, x, x, is_causal=True)


@pytest.mark.slow
@pytest.mark.parametrize("tracer", ["eager", "fx", "dynamo", "export"])
@pytest.mark.parametrize("by_position", [True, False])
def test_however_attention_is_told_that_it_is_causal(by_position, tracer):
    """Of 100 x 100 pairs 100 x 101 / 2 are left: two products of 4 heads over 32 channels."""
    found = opgraph.profile(
        ByPosition(by_position),
        torch.zeros(1, 4, 100, 32),
        tracer=tracer,
        count={"attention": "causal"},
    )
    assert found.totals.flops == 2 * 2 * 4 * 32 * (100 * 101 // 2)


@pytest.mark.slow
def test_look_ups_as_products(gpt2):
    """128 tokens by a table of 50257 x 768, and their positions by one of 1024 x 768."""
    found = opgraph.profile("gpt2", seq_len=128, count={"embedding": "matmul"})
    assert found.totals.flops - gpt2.totals.flops == 2 * 128 * 768 * (50257 + 1024)


@pytest.mark.slow
def test_saved_profiles_are_counted_once(gpt2, tmp_path):
    counted(gpt2, {"attention": "causal"}).save(tmp_path / "causal.json")
    again = opgraph.load(tmp_path / "causal.json")
    assert again.convention["attention"] == "causal"
    with pytest.raises(InputError, match="was counted with attention=causal"):
        counted(again, {"embedding": "matmul"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"pixels": "all"}, "there is no 'pixels'"),
        ({"attention": "half"}, "attention is not 'half'"),
    ],
)
def test_unknown_conventions(gpt2, asked, reason):
    with pytest.raises(InputError, match=reason):
        counted(gpt2, asked)
