"""Attention that torch's own registry does not know (torch 2.15), the fused multi-head attention and
encoder layer, or gets wrong: that of xFormers without offsets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from opgraph.costs.registry import Sizes, contraction


@contraction("attention", "aten._efficient_attention_forward", raw=True)
def efficient_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Any, offsets: Any, *args: Any, **kwargs: Any
) -> int:
    """QK^T and AV of [batch, s, heads, d] and [batch, t, heads, d or v]: 2 * batch * heads * s * t *
    (d + v). Sequences of several lengths, in one row with offsets, are torch's; without them its own
    formula takes heads for positions.

    Source: Vaswani et al., "Attention Is All You Need", 2017, section 3.2.1.
    """
    if offsets is not None:
        ragged = flop_registry[torch.ops.aten._efficient_attention_forward]
        return int(ragged(query, key, value, bias, offsets, *args, **kwargs))
    return _scores(query, key) * int(query.shape[3] + value.shape[3])


@contraction("attention", "aten._efficient_attention_backward", raw=True)
def efficient_attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Any, out: Any, offsets: Any,
    *args: Any, **kwargs: Any,
) -> int:  # fmt: skip
    """QK^T once more, and two gradients for each of the two products of the forward: 2 * batch * heads *
    s * t * (3 d + 2 v).

    Source: Dao et al., "FlashAttention", 2022, whose backward computes the scores again;
    torch/utils/flop_counter.py (sdpa_backward_flop_count).
    """
    if offsets is not None:
        ragged = flop_registry[torch.ops.aten._efficient_attention_backward]
        return int(ragged(grad, query, key, value, bias, out, offsets, *args, **kwargs))
    return _scores(query, key) * int(3 * query.shape[3] + 2 * value.shape[3])


def _scores(query: Tensor, key: Tensor) -> int:
    """Two FLOPs for each pair of positions, in each head of each sequence."""
    batch, s, heads, _ = query.shape
    return 2 * int(batch * heads * s * key.shape[1])


@contraction("attention", "aten._native_multi_head_attention")
def native_multi_head_attention(
    query: Sizes, key: Sizes, value: Sizes, embed_dim: int, *args: Any, **kwargs: Any
) -> int:
    """The fused multi-head attention: q, k, v and output projections, QK^T and AV.

    query [b, s, e], key and value [b, t, e]: 2be(s + 2t)e + 4bste + 2bse^2.

    Source: Vaswani et al., "Attention Is All You Need", 2017, section 3.2.2, with heads of e in all.
    """
    b, s, e = query
    t = key[1]
    return 2 * b * e * e * (s + 2 * t) + 4 * b * s * t * e + 2 * b * s * e * e


@contraction("attention", "aten._transformer_encoder_layer_fwd")
def transformer_encoder_layer(src: Sizes, embed_dim: int, *args: Any, **kwargs: Any) -> int:
    """The fused encoder layer: self-attention and the two linear layers of the feed-forward part.

    src [b, s, e]; the first feed-forward weight, argument 14, is [hidden, e].

    Source: Vaswani et al., "Attention Is All You Need", 2017, sections 3.1 and 3.3.
    """
    b, s, e = src
    hidden: int = args[12][0]
    return native_multi_head_attention(src, src, src, e) + 4 * b * s * e * hidden
