"""Reductions, softmax, normalizations, pooling and interpolation: FLOPs by the elements they read or by
the windows they cover."""

from __future__ import annotations

from math import log2, prod

from opgraph.costs.registry import Call, Formula, formula, formulas

_FLOPS_PER_INPUT_ELEMENT = {
    "reduction": {
        1: "sum mean prod amax amin max min argmax argmin any all cumsum cumprod cummax cummin aminmax "
        "nansum count_nonzero mode _cummax_helper _cummin_helper _is_all_true _is_any_true",
        2: "norm linalg_vector_norm logcumsumexp mse_loss nll_loss_forward nll_loss2d_forward dist",
        3: "logsumexp",
        # Mean, difference, square, sum.
        4: "var std var_mean std_mean",
    },
    # Maximum, difference, exp, sum, quotient.
    "softmax": {5: "_softmax _log_softmax _safe_softmax softmax log_softmax"},
    "normalization": {
        # Mean, difference, square, sum; times 1/std, times weight, plus bias.
        7: "native_layer_norm native_group_norm _batch_norm_with_update _batch_norm_with_update_functional",
        # The statistics are given: difference, times 1/std, times weight, plus bias.
        4: "_native_batch_norm_legit_no_training _batch_norm_no_update "
        # Square, sum, times 1/rms, times weight.
        "_fused_rms_norm rms_norm _weight_norm_interface",
    },
}


def _per_input(flops: int, category: str) -> Formula:
    return Formula(category, lambda call: flops * call.input_elements)


for _category, _table in _FLOPS_PER_INPUT_ELEMENT.items():
    for _flops, _names in _table.items():
        for _name in _names.split():
            formulas[f"aten.{_name}"] = _per_input(_flops, _category)


@formula(
    "normalization",
    "aten.native_batch_norm", "aten._native_batch_norm_legit", "aten.cudnn_batch_norm",
    "aten._native_batch_norm_legit_functional", "aten.miopen_batch_norm",
)  # fmt: skip
def batch_norm(call: Call) -> int:
    """7 an element with the statistics of the batch (as layer normalization), 4 where they are given; the
    first boolean argument says which. (Ioffe and Szegedy, "Batch normalization", 2015, algorithms 1, 2.)"""
    training = next((a for a in call.args if isinstance(a, bool)), True)
    return (7 if training else 4) * call.input_elements


@formula(
    "pooling",
    "aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices", "aten.max_pool1d",
    "aten.max_pool2d", "aten.max_pool3d", "aten.mkldnn_max_pool2d", "aten.quantized_max_pool2d",
)  # fmt: skip
def max_pool(call: Call) -> int:
    """A comparison for each element of each window."""
    window: int = prod(call.args[1])
    return call.output_elements * window


@formula("pooling", "aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(call: Call) -> int:
    """A sum for each element of each window, and a quotient for each result."""
    window: int = prod(call.args[1])
    return call.output_elements * (window + 1)


@formula(
    "pooling",
    "aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d", "aten.adaptive_avg_pool1d",
    "aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d", "aten.adaptive_max_pool1d",
    "aten.mkldnn_adaptive_avg_pool2d", "aten.fractional_max_pool2d",
)  # fmt: skip
def adaptive_pool(call: Call) -> int:
    """Windows that tile the input: an operation for each input element, one for each result."""
    return call.input_elements + call.output_elements


_TAPS = {"nearest": 0, "linear": 2, "bilinear": 4, "trilinear": 8, "bicubic": 16}


def _interpolation(taps: int) -> Formula:
    """A product and a sum for each tap, less the first sum."""
    flops = max(0, 2 * taps - 1)
    return Formula("interpolation", lambda call: flops * call.output_elements)


for _mode, _taps in _TAPS.items():
    for _dims in ("1d", "2d", "3d"):
        for _spelling in (f"upsample_{_mode}{_dims}", f"_upsample_{_mode}{_dims}_aa"):
            formulas[f"aten.{_spelling}"] = _interpolation(_taps)
for _dims in ("1d", "2d", "3d"):
    formulas[f"aten._upsample_nearest_exact{_dims}"] = _interpolation(0)


@formula(
    "interpolation",
    "aten.grid_sampler_2d",
    "aten.grid_sampler_3d",
    "aten._grid_sampler_2d_cpu_fallback",
    "aten.cudnn_grid_sampler",
)
def grid_sampler(call: Call) -> int:
    """Bilinear (trilinear): 4 (8) taps for each result, with the products of their weights."""
    taps = 4 if len(call.inputs[0]) == 4 else 8
    return (2 * taps - 1) * call.output_elements + 6 * prod(call.inputs[1])


@formula("sorting", "aten.sort", "aten.argsort", "aten.topk", "aten.kthvalue", "aten.median",
         "aten.unique_consecutive", "aten._unique2", "aten.searchsorted", "aten.nonzero",
         "aten._unique", "aten.unique_dim", "aten.nanmedian", "aten.histc", "aten.bincount")  # fmt: skip
def sorting(call: Call) -> int:
    """n log2 n comparisons along the sorted dimension (taken as the last one)."""
    sizes = call.inputs[0]
    n = sizes[-1] if sizes else 1
    return int(prod(sizes) * log2(n)) if n > 1 else 0


@formula("fft", "aten._fft_r2c", "aten._fft_c2r", "aten._fft_c2c")
def fft(call: Call) -> int:
    """5 n log2 n for a complex transform of n points along each dimension, half of it for real data
    (the count of the FFTW benchmarks)."""
    dims = call.args[1]
    sizes = max(call.inputs[0], call.outputs[0], key=prod)
    elements = prod(sizes)
    real = call.inputs[0] != call.outputs[0]
    total = sum(5 * elements * log2(sizes[d]) for d in dims if sizes[d] > 1)
    return int(total / 2 if real else total)


@formula("reduction", "aten._cdist_forward", "aten._euclidean_dist")
def cdist(call: Call) -> int:
    """Difference, square and sum for each feature of each pair."""
    return 3 * call.output_elements * call.inputs[0][-1]
