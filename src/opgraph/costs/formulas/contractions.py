"""Contractions that torch's own registry does not know (torch 2.15): grouped products of MoE experts,
products with vectors, recurrent layers, and quantized products; and those that it gets wrong: the gradient
of grouped convolutions, and convolutions by the name of a device."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from opgraph.costs.registry import Call, Contraction, Sizes, contraction, moves, products

products("matmul", "derived here, a product and a sum for each combination of sizes", {
    "k,k": "aten.dot aten.vdot",
    "mk,k": "aten.mv",
    # A bias is left out, as in torch's addmm.
    "_,mk,k": "aten.addmv",
    "_,m,n": "aten.addr",
})  # fmt: skip
products("matmul", "torch/utils/flop_counter.py (mm_flop, baddbmm_flop)", {
    # The sum over the batch is free in the products.
    "_,bnm,bmp": "aten.addbmm",
    "mk,kn": "aten._int_mm",
    "...k,n-": "aten._weight_int8pack_mm aten.mkldnn_linear mkldnn._linear_pointwise",
    # The weight is packed: its columns are known from the result.
    "...k->...n": "aten._weight_int4pack_mm aten._weight_int4pack_mm_for_cpu "
    "quantized.linear quantized.linear_dynamic quantized.linear_relu quantized.linear_relu_dynamic "
    "quantized.linear_dynamic_fp16 bitsandbytes.int8_scaled_mm bitsandbytes.int8_linear_matmul "
    "bitsandbytes.gemv_4bit bitsandbytes.gemm_4bit",
})  # fmt: skip
# Of four elements of the weight two are kept, [n, k / 2]: two FLOPs for each of them and each row.
products("matmul", 'Mishra et al., "Accelerating Sparse Deep Neural Networks", 2021, section 3: zeros are '
         "skipped", {
    "...-,nk": "aten._sparse_semi_structured_linear",
    "mk,_,-n": "aten._sparse_semi_structured_mm",
    "_,mk,_,-n": "aten._sparse_semi_structured_addmm",
})  # fmt: skip


@contraction("matmul", "aten._grouped_mm", "aten._scaled_grouped_mm")
def grouped_mm(a: Sizes, b: Sizes, *args: Any, out_shape: Sizes, **kwargs: Any) -> int:
    """Experts of a mixture: each row of `a` meets the matrix of one group.

    2D x 3D: [tokens x k] @ [groups, k, n] is 2 * tokens * k * n, however the tokens are shared out.
    2D x 2D (the gradient of the weights, [m, tokens] @ [tokens, n]) is 2 * m * tokens * n.
    3D x 3D is a batched product; 3D x 2D has the groups along the columns of `b`.

    Source: derived here, from the rows that meet each matrix (Shazeer et al., "Outrageously Large Neural
    Networks", 2017, section 2: a token is computed by the experts chosen for it alone).
    """
    if len(a) == 2 and len(b) == 3:
        return 2 * a[0] * a[1] * b[2]
    if len(a) == 2:
        return 2 * a[0] * a[1] * b[1]
    if len(b) == 3:
        return 2 * prod(a) * b[2]
    return 2 * a[1] * a[2] * b[1]


@contraction("convolution", "aten.convolution_backward")
def convolution_backward(grad: Sizes, x: Sizes, weight: Sizes, *args: Any, **kwargs: Any) -> int:
    """The gradients of the input and of the weight [out, in / groups, …]: each meets every weight once for
    each position of the result (of the input when transposed), as the forward does: 2 * batch * positions *
    out * in / groups * window.

    torch's own formula for the gradient of the weight leaves the groups out, as it says, and comes out as
    many times too large as there are groups; without groups both agree.

    Source: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016, chapter 4;
    torch/utils/flop_counter.py (conv_backward_flop) without groups.
    """
    transposed, wanted = args[4], args[7]
    positions = prod((x if transposed else grad)[2:])
    return 2 * x[0] * positions * prod(weight) * (bool(wanted[0]) + bool(wanted[1]))


@contraction(
    "convolution",
    "aten._slow_conv2d_forward", "aten.slow_conv3d_forward", "aten.slow_conv_dilated2d",
    "aten.slow_conv_dilated3d", "aten._conv_depthwise2d", "aten.conv_depthwise3d",
    "aten.mkldnn_convolution", "aten.cudnn_convolution", "aten.cudnn_convolution_relu",
    "aten.cudnn_convolution_add_relu", "aten.miopen_convolution", "aten.miopen_depthwise_convolution",
    "torchvision.deform_conv2d",
)  # fmt: skip
def convolution(x: Sizes, weight: Sizes, *args: Any, out_shape: Sizes, **kwargs: Any) -> int:
    """Convolutions of one device, [out, in / groups, window]: 2 * results * in / groups * window.

    torch's registry has two of them, with a formula for other arguments: it takes `benchmark` for saying
    that a convolution is transposed. A deformable one is a convolution over sampled points; the sampling
    itself, which is no contraction, is left out.

    Source: torch/utils/flop_counter.py (conv_flop_count); Dai et al., "Deformable Convolutional Networks",
    2017, section 2.1, equation 2.
    """
    return 2 * prod(out_shape) * prod(weight[1:])


@contraction("convolution", "torchvision._deform_conv2d_backward")
def deform_conv2d_backward(
    gradient: Sizes, x: Sizes, weight: Sizes, *args: Any, **kwargs: Any
) -> int:
    """Two gradients for the product of the forward, of the sampled points and of the weight.

    Source: as `convolution`, differentiated.
    """
    return 2 * convolution(x, weight, out_shape=gradient)


@contraction("matmul", "aten._euclidean_dist")
def euclidean_dist(x: Sizes, y: Sizes, *args: Any, out_shape: Sizes, **kwargs: Any) -> int:
    """Distances by a product: rows [-2 x, |x|^2, 1] meet rows [y, 1, |y|^2]: 2 * pairs * (features + 2).

    Source: aten/src/ATen/native/Distance.cpp (_euclidean_dist).
    """
    return 2 * prod(out_shape) * (x[-1] + 2)


@contraction("matmul", "aten._trilinear")
def trilinear(
    a: Sizes, b: Sizes, c: Sizes, ea: Any, eb: Any, ec: Any, *args: Any, **kwargs: Any
) -> int:
    """The bilinear layer: x1[n, i] W[o, i, j] x2[n, j]: 2 * n * o * i * j for the first product and
    2 * n * o * j for the second. The weight is the second operand.

    Source: derived here, from the definition of torch.nn.Bilinear.
    """
    n, (o, i, j) = a[0], b
    return 2 * n * o * i * j + 2 * n * o * j


@contraction("matmul", "aten._cslt_sparse_mm")
def semi_structured_cslt(weight: Sizes, b: Sizes, *args: Any, **kwargs: Any) -> int:
    """2:4 sparsity by cuSPARSELt, whose packed weight [m, …] holds the positions of what is kept, too:
    half of the k products of each of the m * n results.

    Source: as `_sparse_semi_structured_linear`.
    """
    return weight[0] * prod(b)


@contraction("matmul", "semi_structured.cutlass_mm", "semi_structured.cusparselt_mm")
def semi_structured_layer(dense: Sizes, *args: Any, **kwargs: Any) -> int:
    """The same as torch.sparse's layers call it: rows [rows, k], or transposed, and after the tensors the
    number of features that come out: half of the 2 * rows * k * features.

    Source: as `_sparse_semi_structured_linear`; torch/sparse/semi_structured.py.
    """
    features: int = next(a for a in args if isinstance(a, int))
    return prod(dense) * features


def _gates(weight: Sizes) -> int:
    """2 * 4h * (i or h) for an LSTM: two FLOPs an element of the weight, at each step."""
    return 2 * prod(weight)


@contraction("recurrent", "aten.mkldnn_rnn_layer")
def mkldnn_rnn_layer(
    x: Sizes, w_ih: Sizes, w_hh: Sizes, *args: Any, out_shape: Any, **kwargs: Any
) -> int:
    """One layer in one direction over [steps, batch, i] (or batch first): 2 * 4h(i + h) a step.

    Source: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997, with the forget gate, as in the
    equations of torch.nn.LSTM: four gates, each from the input and from the state.
    """
    return (x[0] * x[1]) * (_gates(w_ih) + _gates(w_hh))


@contraction("recurrent", "aten.mkldnn_rnn_layer_backward")
def mkldnn_rnn_layer_backward(x: Sizes, w_ih: Sizes, w_hh: Sizes, *args: Any, **kwargs: Any) -> int:
    """The gradients of one layer in one direction over [steps, batch, i]: from those of the gates, at each
    step, those of the input, of the state, and of both weights: 2 * 2 * 4h(i + h).

    Source: Werbos, "Backpropagation Through Time", 1990, on the equations of torch.nn.LSTM: each product of
    the forward has two in the backward.
    """
    return 2 * (x[0] * x[1]) * (_gates(w_ih) + _gates(w_hh))


@contraction("recurrent", "aten._cudnn_rnn_backward")
def cudnn_rnn_backward(x: Sizes, weights: list[Sizes], *args: Any, **kwargs: Any) -> int:
    """Two gradients for each product of the forward, of its input and of its weight.

    Source: as `cudnn_rnn`, differentiated.
    """
    return 2 * cudnn_rnn(x, weights)


@contraction("recurrent", "aten._cudnn_rnn", "aten.miopen_rnn")
def cudnn_rnn(x: Sizes, weights: list[Sizes], *args: Any, **kwargs: Any) -> int:
    """All layers and directions over [steps, batch, i], or [positions, i] of sequences of several lengths:
    two FLOPs an element of every weight matrix at each step.

    Source: derived here, from the equations of torch.nn.RNN, LSTM and GRU: 1, 4 and 3 gates are as many
    rows.
    """
    return prod(x[:-1]) * sum(_gates(w) for w in weights if len(w) == 2)


_KEPT_OF_A_STEP = (1, 1, 5, 6)
"""States that cuDNN keeps of each layer at each step, by its number of the kind (ReLU, tanh, LSTM, GRU)."""


def cudnn_reserve(
    mode: int, positions: int, hidden: int, layers: int, directions: int, itemsize: int
) -> int:
    """The bytes that a recurrent layer of cuDNN keeps from its forward for its backward: of each layer, at
    each of `positions` (steps of sequences), 5 states of an LSTM (four gates and the cell), 6 of a GRU, and
    the output of all layers but the last.

    Source: what cuDNN asked for four layers of 320 on a P100 in 2017, 736,000,000 bytes for an LSTM and
    864,000,000 for a GRU (pytorch/pytorch issue 2895): 4 x 320 bytes x 25,000 positions x (4 x 5 + 3) and
    (4 x 6 + 3). For a plain layer the one gate is taken; later versions may keep something else.
    """
    states = _KEPT_OF_A_STEP[mode] * layers + layers - 1
    return positions * hidden * directions * states * itemsize


def _recurrent(args: Any) -> tuple[int, int]:
    """The bytes of the outputs of all layers but the last, and of what is kept for a backward."""
    x, weights, *_, mode, hidden, projected, layers, _, _, train, both = args[:14]
    size, directions, positions = weights[0].element_size(), 1 + bool(both), prod(x[:-1])
    inner = positions * (projected or hidden) * directions * (layers - 1) * size
    kept = cudnn_reserve(mode, positions, hidden, layers, directions, size)
    return inner, kept if train else 0


def _cudnn_traffic(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """What goes in and comes out, the outputs of layers that others read, and what is kept."""
    inner, kept = _recurrent(call.args)
    return sum(sizes) + inner, results + max(inner, kept)


def _cudnn_backward_traffic(sizes: Sequence[int], results: int, call: Call) -> tuple[int, int]:
    """What goes in and comes out, what was kept, and the gradients of outputs between layers."""
    inner, kept = _recurrent((*call.args[:6], *call.args[10:18]))
    return sum(sizes) + kept + inner, results + inner


moves(_cudnn_traffic, "_cudnn_rnn")
moves(_cudnn_backward_traffic, "_cudnn_rnn_backward")


@contraction(
    "convolution",
    *(f"quantized.conv{n}d{then}" for n in (1, 2, 3) for then in ("", "_relu")),
)
def quantized_convolution(
    x: Sizes, packed: Any, *args: Any, out_shape: Sizes, **kwargs: Any
) -> int:
    """A convolution of [b, c, ...] with a packed weight [o, c / groups, ...]: two FLOPs an element of the
    filter, for every element of the result.

    Source: torch/utils/flop_counter.py (conv_flop_count).
    """
    weight: Sizes = tuple(packed.unpack()[0].shape)
    return 2 * prod(out_shape) * prod(weight[1:])


# Attention that the registry of torch lacks, or did before 2.15.


def _attention(query: Sizes, key: Sizes, value: Sizes, *args: Any, **kwargs: Any) -> int:
    """QK^T and AV. Source: torch/utils/flop_counter.py (sdpa_flop_count)."""
    return int(sdpa_flop_count(query, key, value))


def _attention_backward(
    grad: Sizes, query: Sizes, key: Sizes, value: Sizes, *args: Any, **kwargs: Any
) -> int:
    """Five products. Source: torch/utils/flop_counter.py (sdpa_backward_flop_count)."""
    return int(sdpa_backward_flop_count(grad, query, key, value))


_LACKED: dict[str, Contraction] = {
    "aten._scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "aten._scaled_dot_product_attention_math_for_mps": _attention,
}
for _name, _count in _LACKED.items():
    if _name not in map(str, flop_registry):
        contraction("attention", _name)(_count)


# Attention that torch's own registry does not know (torch 2.15), the fused multi-head attention and
# encoder layer, or gets wrong: that of xFormers without offsets.


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
