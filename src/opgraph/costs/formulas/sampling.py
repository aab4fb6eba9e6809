"""Pooling and interpolation: FLOPs by the windows that are covered and the points that are blended."""

from __future__ import annotations

from math import ceil, prod

from opgraph.costs.registry import Call, Formula, Sizes, formula, formulas


@formula(
    "pooling",
    "aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices", "aten.max_pool1d",
    "aten.max_pool2d", "aten.max_pool3d", "aten.mkldnn_max_pool2d", "aten.quantized_max_pool2d",
    "aten.fractional_max_pool2d", "aten.fractional_max_pool3d",
)  # fmt: skip
def max_pool(call: Call) -> int:
    """A comparison for each element of each window.

    Source: the definition in torch's documentation.
    """
    window: int = prod(call.args[1])
    return call.output_elements * window


@formula("pooling", "aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(call: Call) -> int:
    """A sum for each element of each window, and a quotient for each result.

    Source: the definition in torch's documentation.
    """
    window: int = prod(call.args[1])
    return call.output_elements * (window + 1)


@formula("pooling", "aten.avg_pool2d_backward", "aten.avg_pool3d_backward")
def avg_pool_backward(call: Call) -> int:
    """Each incoming gradient is divided once and added to every element of its window.

    Source: derived here, as the transpose of the forward.
    """
    window: int = prod(call.args[2])
    return call.input_elements * (window + 1)


@formula(
    "pooling",
    "aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d", "aten.adaptive_avg_pool1d",
    "aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d", "aten.adaptive_max_pool1d",
    "aten.mkldnn_adaptive_avg_pool2d",
)  # fmt: skip
def adaptive_pool(call: Call) -> int:
    """Windows that tile the input: an operation for each input element, one for each result.

    Source: derived here, for sizes that divide; other windows overlap by an element at their rims.
    """
    return call.input_elements + call.output_elements


@formula("pooling", "aten._adaptive_avg_pool2d_backward", "aten._adaptive_avg_pool3d_backward")
def adaptive_avg_pool_backward(call: Call) -> int:
    """A quotient for each incoming gradient and a sum for each element of the input, which is the second
    tensor.

    Source: derived here, as the transpose of the forward.
    """
    return call.input_elements + prod(call.inputs[1])


_TAPS = {
    0: "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d",
    2: "upsample_linear1d",
    4: "upsample_bilinear2d",
    8: "upsample_trilinear3d",
    16: "upsample_bicubic2d",
}
"""How many points are blended: 2 in each direction, or 4 of a cubic (Keys, "Cubic convolution interpolation
for digital image processing", 1981)."""


def _blend(taps: int) -> Formula:
    flops = max(0, 2 * taps - 1)
    source = f"derived here: a product and a sum for each of {taps} points, less the first sum"
    return Formula("interpolation", lambda call: flops * call.output_elements, source)


def _spread(taps: int) -> Formula:
    flops = max(1, 2 * taps)
    source = (
        f"derived here: a product and a sum into each of {taps} points; one sum for a nearest one"
    )
    return Formula("interpolation", lambda call: flops * call.input_elements, source)


for _taps, _names in _TAPS.items():
    for _name in _names.split():
        formulas[f"aten.{_name}"] = _blend(_taps)
        formulas[f"aten.{_name}_backward"] = _spread(_taps)


def _widened(taps: int, large: Sizes, small: Sizes) -> list[int]:
    """Points that each of height and width blends: the filter widens as the image shrinks."""
    return [
        ceil(taps * max(1.0, before / after))
        for before, after in zip(large[-2:], small[-2:], strict=True)
    ]


def _antialias(taps: int) -> Formula:
    def work(call: Call) -> int:
        before, after = call.inputs[0], call.outputs[0]
        high, wide = _widened(taps, before, after)
        return prod(before[:-1]) * after[-1] * (2 * wide - 1) + prod(after) * (2 * high - 1)

    return Formula("interpolation", work, _ANTIALIAS)


def _antialias_backward(taps: int) -> Formula:
    def work(call: Call) -> int:
        after, before = call.inputs[0], call.outputs[0]
        high, wide = _widened(taps, before, after)
        return 2 * (prod(after) * high + prod(before[:-1]) * after[-1] * wide)

    return Formula("interpolation", work, _ANTIALIAS)


_ANTIALIAS = (
    "derived here, from aten/src/ATen/native/cpu/UpSampleKernel.cpp: a pass along the width, then one "
    "along the height, each blending as many points as the widened filter covers"
)
for _name, _taps in (("bilinear", 2), ("bicubic", 4)):
    formulas[f"aten._upsample_{_name}2d_aa"] = _antialias(_taps)
    formulas[f"aten._upsample_{_name}2d_aa_backward"] = _antialias_backward(_taps)


def _places(grid: Sizes) -> int:
    """FLOPs of finding the points around each place of a grid and their weights: each coordinate is scaled
    (sum, product, difference, quotient), rounded down and has two distances; each point's weight is their
    product."""
    dims = grid[-1]
    return prod(grid[:-1]) * (dims * 7 + (1 << dims) * (dims - 1))


@formula(
    "interpolation",
    "aten.grid_sampler_2d",
    "aten.grid_sampler_3d",
    "aten._grid_sampler_2d_cpu_fallback",
    "aten.cudnn_grid_sampler",
)
def grid_sampler(call: Call) -> int:
    """Bilinear (trilinear): 4 (8) points for each result, and the weights of each place, which all channels
    share: 18 (37). Nearest: scaling and rounding of each coordinate alone. Bicubic: 16 points.

    Source: torch/include/ATen/native/GridSampler.h and grid_sampler_2d in torch/_decomp/decompositions.py,
    counted here; without coefficients of cubics and the checks of bounds.
    """
    grid = call.inputs[1]
    mode = call.args[2] if len(call.args) > 2 else 0
    if mode == 1:
        return 5 * prod(grid)
    taps = 16 if mode == 2 else 1 << grid[-1]
    return (2 * taps - 1) * call.output_elements + _places(grid)


@formula("interpolation", "aten.grid_sampler_2d_backward", "aten.grid_sampler_3d_backward")
def grid_sampler_backward(call: Call) -> int:
    """For each incoming gradient and each of 4 (8) points: a product and a sum into the input; and for each
    coordinate two products and a sum into the grid. The weights of each place as in the forward.

    Source: derived here, by differentiating the forward; bilinear (trilinear), as nearly all uses are.
    """
    of_input, of_grid = (bool(wanted) for wanted in call.args[6])
    grid = call.inputs[2]
    taps = 1 << grid[-1]
    return call.input_elements * taps * (2 * of_input + 3 * grid[-1] * of_grid) + _places(grid)


# torchvision's own operators: boxes and regions of interest.


@formula("pooling", "torchvision.roi_align", "torchvision.ps_roi_align")
def roi_align(call: Call) -> int:
    """Bilinear samples (4 products and 3 sums each) and their mean, for each cell of each region;
    `sampling_ratio` points a side, or 2 where it adapts to the size of the region. Position-sensitive
    regions differ in which channels they read.

    Source: He et al., "Mask R-CNN", 2017, section 3 (RoIAlign), and
    torchvision/csrc/ops/cpu/ps_roi_align_kernel.cpp, counted here.
    """
    ratio: int = call.args[5]
    return call.output_elements * 8 * (ratio if ratio > 0 else 2) ** 2


@formula("pooling", "torchvision._roi_align_backward", "torchvision._ps_roi_align_backward")
def roi_align_backward(call: Call) -> int:
    """4 products and 4 sums for each sample of each cell: its gradient goes to the points it was made of.

    Source: as `roi_align`, differentiated.
    """
    ratio: int = call.args[9 if len(call.inputs) == 2 else 6]
    return call.input_elements * 8 * (ratio if ratio > 0 else 2) ** 2


@formula("pooling", "torchvision._roi_pool_backward", "torchvision._ps_roi_pool_backward")
def roi_pool_backward(call: Call) -> int:
    """At least a sum for each cell of each region, as of the forward.

    Source: as `roi_pool`, differentiated.
    """
    return call.input_elements


@formula("pooling", "torchvision.roi_pool", "torchvision.ps_roi_pool")
def roi_pool(call: Call) -> int:
    """At least an operation for each cell of each region; the areas are in the data.

    Source: derived here, as a lower bound.
    """
    return call.output_elements


@formula("sorting", "torchvision.nms")
def nms(call: Call) -> int:
    """Non-maximum suppression of n boxes: the area of each (two differences and a product), and for each
    pair, at most, 13: four maxima and minima, two differences, two comparisons with 0, a product, a sum, a
    difference, a quotient and the comparison with the threshold.

    Source: torchvision/csrc/ops/cpu/nms_kernel.cpp, counted here; without the sort of the scores.
    """
    boxes = call.inputs[0][0]
    return 3 * boxes + 13 * boxes * (boxes - 1) // 2
