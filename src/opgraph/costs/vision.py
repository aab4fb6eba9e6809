"""torchvision's own operators: boxes, regions of interest, deformable convolution."""

from __future__ import annotations

from math import prod
from typing import Any

from opgraph.costs.registry import Call, Sizes, contraction, formula


@contraction("convolution", "torchvision.deform_conv2d")
def deform_conv2d(x: Sizes, weight: Sizes, *args: Any, out_shape: Sizes, **kwargs: Any) -> int:
    """A convolution over sampled points: 2 * results * (channels of a group) * (kernel area), with the
    weight [out, in / groups, kh, kw]. The sampling itself is element-wise work."""
    return 2 * prod(out_shape) * prod(weight[1:])


@formula("pooling", "torchvision.roi_align", "torchvision.ps_roi_align")
def roi_align(call: Call) -> int:
    """Bilinear samples (4 products and 3 sums each) and their mean, for each cell of each region;
    `sampling_ratio` points a side, or 2 where it adapts to the size of the region."""
    ratio = call.args[5] if call.args[5] > 0 else 2
    return call.output_elements * 8 * int(ratio) ** 2


@formula("pooling", "torchvision.roi_pool", "torchvision.ps_roi_pool")
def roi_pool(call: Call) -> int:
    """At least a comparison for each cell of each region; the areas are in the data."""
    return call.output_elements


@formula("sorting", "torchvision.nms")
def nms(call: Call) -> int:
    """Non-maximum suppression of n boxes: an intersection over union (16 operations) for each pair, at
    most."""
    boxes = call.inputs[0][0]
    return 16 * boxes * (boxes - 1) // 2
