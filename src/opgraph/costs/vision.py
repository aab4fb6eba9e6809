"""torchvision's own operators: boxes, regions of interest, deformable convolution."""

from __future__ import annotations

from math import prod
from typing import Any

from opgraph.costs.registry import Call, Sizes, contraction, formula


@contraction("convolution", "torchvision.deform_conv2d")
def deform_conv2d(x: Sizes, weight: Sizes, *args: Any, out_shape: Sizes, **kwargs: Any) -> int:
    """A convolution over sampled points: 2 * results * (channels of a group) * (kernel area), with the
    weight [out, in / groups, kh, kw]. The sampling itself, which is no contraction, is left out.

    Source: Dai et al., "Deformable Convolutional Networks", 2017, section 2.1, equation 2.
    """
    return 2 * prod(out_shape) * prod(weight[1:])


@formula("pooling", "torchvision.roi_align")
def roi_align(call: Call) -> int:
    """Bilinear samples (4 products and 3 sums each) and their mean, for each cell of each region;
    `sampling_ratio` points a side, or 2 where it adapts to the size of the region.

    Source: He et al., "Mask R-CNN", 2017, section 3 (RoIAlign), counted here.
    """
    return _samples(call, call.args[5])


@formula("pooling", "torchvision.ps_roi_align")
def ps_roi_align(call: Call) -> int:
    """As `roi_align`: position-sensitive regions differ in which channels they read.

    Source: torchvision/csrc/ops/cpu/ps_roi_align_kernel.cpp, counted here.
    """
    return _samples(call, call.args[5])


def _samples(call: Call, ratio: int) -> int:
    side = ratio if ratio > 0 else 2
    return call.output_elements * 8 * side**2


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
