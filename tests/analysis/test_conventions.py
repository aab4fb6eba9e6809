"""Conventions of counting: what each changes, worked out by hand, and what cannot be counted anew."""

from __future__ import annotations

import pytest

import opgraph
from opgraph.analysis.conventions import counted
from opgraph.errors import InputError

PRODUCTS = 12 * 2 * (2 * 128 * 128 * 768)
"""12 layers of GPT-2, two products of attention over 128 x 128 pairs of 768 channels."""


def test_causal_attention(gpt2):
    """Of 128 x 128 pairs a causal mask leaves 128 x 129 / 2."""
    found = counted(gpt2, {"attention": "causal"})
    assert gpt2.totals.flops - found.totals.flops == PRODUCTS - PRODUCTS * 129 // (2 * 128)
    assert found.convention["attention"] == "causal"
    assert "no pairs that a mask hides in 12 of 12 attentions" in str(found)
    assert "all pairs of attention" in str(gpt2)


def test_attention_that_is_not_causal_stays(bert):
    found = counted(bert, {"attention": "causal"})
    assert found.totals.flops == bert.totals.flops
    assert "in 0 of 12 attentions" in str(found)


def test_look_ups_as_products(gpt2):
    """128 tokens by a table of 50257 x 768, and their positions by one of 1024 x 768."""
    found = opgraph.profile("gpt2", seq_len=128, count={"embedding": "matmul"})
    assert found.totals.flops - gpt2.totals.flops == 2 * 128 * 768 * (50257 + 1024)


def test_saved_profiles_are_counted_once(gpt2, tmp_path):
    counted(gpt2, {"attention": "causal"}).save(tmp_path / "causal.json")
    again = opgraph.load(tmp_path / "causal.json")
    assert again.convention["attention"] == "causal"
    with pytest.raises(InputError, match="was counted with attention=causal"):
        counted(again, {"embedding": "matmul"})


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"pixels": "all"}, "no convention 'pixels'"),
        ({"attention": "half"}, "not counted as 'half'"),
    ],
)
def test_unknown_conventions(gpt2, asked, reason):
    with pytest.raises(InputError, match=reason):
        counted(gpt2, asked)
