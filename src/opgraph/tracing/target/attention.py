"""Which kernel torch runs for `scaled_dot_product_attention` on a device.

The rules were read in aten/src/ATen/native/transformers/cuda/sdp_utils.cpp of PyTorch's main branch at
001f694aef6f (`priority_order`, `can_use_cudnn_attention`, `can_use_flash_attention`,
`can_use_mem_efficient_attention`); what torch 2.15's library for CUDA says when it refuses a kernel has the
same checks. They are for a build with all three kernels and a cuDNN newer than 9.22 (the wheels of torch
2.15 bring 9.26). What only the device at hand could say (a cuDNN of another version, pointers that are not
aligned) is taken for granted. They cannot be asked of torch without a device:
`torch.backends.cuda.can_use_flash_attention` and its kin want tensors on one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AttentionKernel = Literal["flash", "cudnn", "efficient", "metal", "math"]
_HALF = ("float16", "bfloat16")
MOST = 65_535
"""Sequences or heads that cuDNN takes, and that a grid of CUDA has in y and in z."""


@dataclass(frozen=True, slots=True)
class Attention:
    """A call: dtype, dimensions of its tensors, sizes of q [batch, heads, queries, head_size] and of k and
    v beside it, and what is asked for. `dense` says that the last dimension of all three is contiguous;
    `off` are kernels that are not to be taken, `order` is that in which they are to be tried where somebody
    says so (`sdpa_kernel(..., set_priority=True)`)."""

    dtype: str
    queries: int
    keys: int
    head_size: int
    key_size: int
    value_size: int
    batch: int = 1
    heads: int = 1
    key_heads: int = 1
    value_heads: int = 1
    dimensions: int = 4
    mask: bool = False
    mask_gradient: bool = False
    dropout: float = 0.0
    causal: bool = False
    grouped: bool = False
    gradient: bool = False
    dense: bool = True
    off: frozenset[AttentionKernel] = frozenset()
    order: tuple[AttentionKernel, ...] = ()


def attention_kernel(call: Attention, target: str) -> AttentionKernel:
    """The kernel that is chosen on a target ("cpu", "mps", "cuda:9.0", "cuda:gfx942"). On a CPU
    "flash" is its one fused kernel; "metal" is that of MPS without gradients, which keeps all scores."""
    device, _, capability = target.partition(":")
    if device == "cpu":
        fused = call.dropout == 0 and not call.mask_gradient and call.head_size == call.value_size
        laid = call.dimensions == 4 and call.queries and call.keys and call.dense
        return "flash" if fused and laid and "flash" not in call.off else "math"
    if device == "mps":
        return "metal" if call.dropout == 0 and not call.gradient else "math"
    if not _possible(call) or (call.order[:1] == ("math",) and "math" not in call.off):
        return "math"
    if capability.startswith("gfx"):
        return _on_rocm(call)
    generation = tuple(map(int, capability.split(".")))
    preferred = generation[0] in (9, 10) or bool(call.order)
    possible: dict[AttentionKernel, bool] = {
        "cudnn": preferred and generation >= (8, 0) and _cudnn(call),
        "flash": _flash(call, generation),
        "efficient": _efficient(call, generation),
        "math": True,
    }
    order = call.order or tuple(possible)
    return next((k for k in order if possible.get(k, False) and k not in call.off), "math")


def _possible(call: Attention) -> bool:
    """What all fused kernels ask for (`check_tensor_shapes`, `check_batch_size_and_num_heads_dense`,
    `check_nonzero_sequence_lengths_dense`, `check_last_dim_stride_equals_1_dense`)."""
    if call.dimensions != 4 or not call.queries or not call.keys or not call.dense:
        return False
    if call.grouped:
        same = call.key_heads == call.value_heads
        return same and bool(call.key_heads) and not call.heads % call.key_heads
    return call.heads == call.key_heads == call.value_heads


def _flash(call: Attention, generation: tuple[int, ...]) -> bool:
    sizes = call.head_size == call.key_size == call.value_size and call.head_size <= 256
    square = not call.causal or call.queries == call.keys
    if generation < (8, 0) or call.dtype not in _HALF or call.mask or not sizes or not square:
        return False
    small = (8, 6) <= generation <= (8, 9) or generation[0] == 12
    if call.gradient and small:
        return call.head_size <= 192 or (call.dropout == 0 and call.head_size > 224)
    return True


def _efficient(call: Attention, generation: tuple[int, ...]) -> bool:
    half = call.dtype in _HALF
    known = (*_HALF, "float32") if generation >= (8, 0) else ("float16", "float32")
    aligned = (8 if half else 4) if generation >= (8, 0) else (8 if half else 1)
    return (
        call.dtype in known
        and call.head_size == call.key_size
        and not call.head_size % aligned
        and not call.value_size % aligned
    )


def _cudnn(call: Attention) -> bool:
    """Where cuDNN comes first (`check_cudnn_tensor_shapes`). With gradients only some sizes of heads go
    (`check_cudnn_d256_bprop_head_dim`); 192 with values of 128 are those of multi-head latent attention."""
    sizes = (call.head_size, call.value_size)
    most = 128 if call.gradient and sizes not in ((192, 128), (256, 256)) else 256
    return (
        call.dtype in _HALF
        and not call.mask_gradient
        and call.dropout * 16 == int(call.dropout * 16)
        and max(call.batch, call.heads) <= MOST
        and call.head_size <= most and call.value_size <= most
        and not call.head_size % 8 and not call.value_size % 8
        and call.keys != 1
        and not (call.dropout and call.queries == 1)
    )  # fmt: skip


def _on_rocm(call: Attention) -> AttentionKernel:
    """AOTriton's kernels, with heads of up to 512; its efficient one groups no heads."""
    half = call.dtype in _HALF
    same = call.head_size == call.key_size == call.value_size <= 512
    square = not call.causal or call.queries == call.keys
    if half and same and square and not call.mask and "flash" not in call.off:
        return "flash"
    aligned = not call.head_size % (8 if half else 4) and same and "efficient" not in call.off
    return (
        "efficient"
        if aligned and not call.grouped and (half or call.dtype == "float32")
        else "math"
    )
