"""Gradients of work that is not a contraction: FLOPs by the elements of the incoming gradient, which is
the first tensor. (Gradients of contractions are in torch's own registry; those of plain element-wise
operators are tagged as pointwise and count one operation an element.)

The figures count the arithmetic of PyTorch's own CPU kernels, as their definitions have it: normalization
by Ba, Kiros and Hinton, "Layer Normalization" (2016) and aten/src/ATen/native/cpu/layer_norm_kernel.cpp,
softmax by aten/src/ATen/native/cpu/SoftMaxKernel.cpp (grad - y * sum(grad * y)), activations by
aten/src/ATen/native/cpu/Activation.cpp, interpolation by the taps of its kernel (2 x 2, or 4 x 4 cubic).
"""

from __future__ import annotations

from opgraph.costs.registry import Call, Formula, formulas

_FLOPS_PER_ELEMENT = {
    "normalization": {
        # The gradients of weight and bias (3), two sums for the statistics (4), and the result (4).
        11: "native_batch_norm_backward native_layer_norm_backward native_group_norm_backward "
        "cudnn_batch_norm_backward miopen_batch_norm_backward batch_norm_backward "
        "_fused_rms_norm_backward",
    },
    # Product, sum, difference, product.
    "softmax": {4: "_softmax_backward_data _log_softmax_backward_data"},
    "pooling": {
        1: "max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward "
        "avg_pool3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward "
        "adaptive_max_pool2d_backward adaptive_max_pool3d_backward",
    },
    "indexing": {
        1: "embedding_dense_backward index_put slice_backward select_backward unfold_backward "
        "diagonal_backward value_selecting_reduction_backward embedding_backward",
    },
    "interpolation": {
        1: "upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward",
        7: "upsample_bilinear2d_backward upsample_linear1d_backward grid_sampler_2d_backward "
        "_upsample_bilinear2d_aa_backward",
        31: "upsample_bicubic2d_backward _upsample_bicubic2d_aa_backward",
    },
    "reduction": {1: "nll_loss_backward nll_loss2d_backward mse_loss_backward"},
    "elementwise": {
        2: "hardtanh_backward threshold_backward leaky_relu_backward native_dropout_backward "
        "hardsigmoid_backward",
        3: "sigmoid_backward tanh_backward elu_backward hardswish_backward softplus_backward",
        6: "silu_backward mish_backward glu_backward log_sigmoid_backward _prelu_kernel_backward",
        10: "gelu_backward",
    },
}


def _each(flops: int, category: str) -> Formula:
    return Formula(category, lambda call: _work(call, flops))


def _work(call: Call, flops: int) -> int:
    return flops * call.input_elements


for _category, _table in _FLOPS_PER_ELEMENT.items():
    for _flops, _names in _table.items():
        for _name in _names.split():
            formulas.setdefault(f"aten.{_name}", _each(_flops, _category))
