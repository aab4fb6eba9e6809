"""Contractions that torch's own registry does not know (torch 2.15): grouped products of MoE experts,
products with vectors, the fused encoder layers and recurrent layers, and quantized products; and the one
that it gets wrong, the gradient of grouped convolutions."""

from __future__ import annotations

from math import prod
from typing import Any

from opgraph.costs.registry import Sizes, contraction


@contraction("matmul", "aten._grouped_mm", "aten._scaled_grouped_mm")
def grouped_mm(a: Sizes, b: Sizes, *args: Any, out_shape: Sizes, **kwargs: Any) -> int:
    """Experts of a mixture: each row of `a` meets the matrix of one group.

    2D x 3D: [tokens x k] @ [groups, k, n] is 2 * tokens * k * n, however the tokens are shared out.
    2D x 2D (the gradient of the weights, [m, tokens] @ [tokens, n]) is 2 * m * tokens * n.
    3D x 3D is a batched product; 3D x 2D has the groups along the columns of `b`.
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
    out * in / groups * window. (Dumoulin and Visin, "A guide to convolution arithmetic", 2016, chapter 4.)

    torch's own formula for the gradient of the weight leaves the groups out, as it says, and comes out as
    many times too large as there are groups; without groups both agree.
    """
    transposed, wanted = args[4], args[7]
    positions = prod((x if transposed else grad)[2:])
    return 2 * x[0] * positions * prod(weight) * (bool(wanted[0]) + bool(wanted[1]))


@contraction("matmul", "aten.dot", "aten.vdot")
def dot(a: Sizes, b: Sizes, *args: Any, **kwargs: Any) -> int:
    """[k] . [k]: 2 * k."""
    return 2 * a[0]


@contraction("matmul", "aten.mv")
def mv(a: Sizes, b: Sizes, *args: Any, **kwargs: Any) -> int:
    """[m, k] @ [k]: 2 * m * k."""
    return 2 * prod(a)


@contraction("matmul", "aten.addmv")
def addmv(bias: Sizes, a: Sizes, b: Sizes, *args: Any, **kwargs: Any) -> int:
    """[m] + [m, k] @ [k]: 2 * m * k."""
    return 2 * prod(a)


@contraction("matmul", "aten.addr")
def addr(bias: Sizes, a: Sizes, b: Sizes, *args: Any, **kwargs: Any) -> int:
    """[m, n] + [m] x [n]: 2 * m * n."""
    return 2 * a[0] * b[0]


@contraction("matmul", "aten.addbmm")
def addbmm(bias: Sizes, a: Sizes, b: Sizes, *args: Any, **kwargs: Any) -> int:
    """[n, p] + sum over the batch of [b, n, m] @ [b, m, p]: 2 * b * n * m * p."""
    return 2 * prod(a) * b[2]


@contraction("matmul", "aten._trilinear")
def trilinear(
    a: Sizes, b: Sizes, c: Sizes, ea: Any, eb: Any, ec: Any, *args: Any, **kwargs: Any
) -> int:
    """The bilinear layer: x1[n, i] W[o, i, j] x2[n, j]: 2 * n * o * i * j for the first product and
    2 * n * o * j for the second. The weight is the second operand."""
    n, (o, i, j) = a[0], b
    return 2 * n * o * i * j + 2 * n * o * j


@contraction("matmul", "aten._int_mm", "aten._sparse_semi_structured_linear")
def int_mm(a: Sizes, b: Sizes, *args: Any, **kwargs: Any) -> int:
    """[m, k] @ [k, n]: 2 * m * k * n."""
    return 2 * prod(a) * b[-1]


@contraction("matmul", "aten._weight_int8pack_mm", "aten.mkldnn_linear", "mkldnn._linear_pointwise")
def packed_linear(a: Sizes, weight: Sizes, *args: Any, **kwargs: Any) -> int:
    """[..., k] @ [n, k]^T: 2 * rows * k * n."""
    return 2 * prod(a) * weight[0]


@contraction("matmul", "aten._weight_int4pack_mm", "aten._weight_int4pack_mm_for_cpu")
def int4_linear(a: Sizes, weight: Sizes, *args: Any, out_shape: Sizes, **kwargs: Any) -> int:
    """[m, k] @ packed int4: 2 * m * k * n, with n from the result, since the weight is packed."""
    return 2 * prod(a) * out_shape[-1]


@contraction("attention", "aten._native_multi_head_attention")
def native_multi_head_attention(
    query: Sizes, key: Sizes, value: Sizes, embed_dim: int, *args: Any, **kwargs: Any
) -> int:
    """The fused multi-head attention: q, k, v and output projections, QK^T and AV.

    query [b, s, e], key and value [b, t, e]: 2be(s + 2t)e + 4bste + 2bse^2.
    """
    b, s, e = query
    t = key[1]
    return 2 * b * e * e * (s + 2 * t) + 4 * b * s * t * e + 2 * b * s * e * e


@contraction("attention", "aten._transformer_encoder_layer_fwd")
def transformer_encoder_layer(src: Sizes, embed_dim: int, *args: Any, **kwargs: Any) -> int:
    """The fused encoder layer: self-attention and the two linear layers of the feed-forward part.

    src [b, s, e]; the first feed-forward weight, argument 14, is [hidden, e].
    """
    b, s, e = src
    hidden: int = args[12][0]
    return native_multi_head_attention(src, src, src, e) + 4 * b * s * e * hidden


def _gates(weight: Sizes) -> int:
    """2 * 4h * (i or h) for an LSTM: two FLOPs an element of the weight, at each step."""
    return 2 * prod(weight)


@contraction("recurrent", "aten.mkldnn_rnn_layer")
def mkldnn_rnn_layer(
    x: Sizes, w_ih: Sizes, w_hh: Sizes, *args: Any, out_shape: Any, **kwargs: Any
) -> int:
    """One layer in one direction over [steps, batch, i] (or batch first): 2 * 4h(i + h) a step."""
    return (x[0] * x[1]) * (_gates(w_ih) + _gates(w_hh))


@contraction("recurrent", "aten._cudnn_rnn", "aten.miopen_rnn")
def cudnn_rnn(x: Sizes, weights: list[Sizes], *args: Any, **kwargs: Any) -> int:
    """All layers and directions over [steps, batch, i]: two FLOPs an element of every weight matrix
    at each step."""
    return x[0] * x[1] * sum(_gates(w) for w in weights if len(w) == 2)


@contraction(
    "matmul",
    "quantized.linear",
    "quantized.linear_dynamic",
    "quantized.linear_relu",
    "quantized.linear_relu_dynamic",
    "quantized.linear_dynamic_fp16",
    "bitsandbytes.int8_scaled_mm",
    "bitsandbytes.int8_linear_matmul",
    "bitsandbytes.gemv_4bit",
    "bitsandbytes.gemm_4bit",
)
def quantized_linear(a: Sizes, *args: Any, out_shape: Sizes, **kwargs: Any) -> int:
    """[..., k] @ [k, n] with a packed weight: 2 * rows * k * n, with n from the result."""
    return 2 * prod(a) * out_shape[-1]


@contraction(
    "convolution",
    *(f"quantized.conv{n}d{then}" for n in (1, 2, 3) for then in ("", "_relu")),
)
def quantized_convolution(
    x: Sizes, packed: Any, *args: Any, out_shape: Sizes, **kwargs: Any
) -> int:
    """A convolution of [b, c, ...] with a packed weight [o, c / groups, ...]: two FLOPs an element of the
    filter, for every element of the result."""
    weight: Sizes = tuple(packed.unpack()[0].shape)
    return 2 * prod(out_shape) * prod(weight[1:])
