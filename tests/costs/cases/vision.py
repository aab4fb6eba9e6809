"""torchvision's own operators."""

from __future__ import annotations

import torchvision  # noqa: F401  (registers them)
from tests.costs.hand import case, floats, ints

IMAGE = floats(2, 3, 8, 8)
CELLS = floats(7, 3, 2, 2)

CASES = [
    # 7 regions of 2 x 2 cells and 3 channels, each with 2 x 2 samples of 8; and the least.
    *case("torchvision.roi_align", IMAGE, floats(7, 5), 1.0, 2, 2, 2, False, other=7 * 3 * 4 * 4 * 8),
    *case("torchvision.roi_align", IMAGE, floats(7, 5), 1.0, 2, 2, -1, False, other=7 * 3 * 4 * 4 * 8),
    *case("torchvision.ps_roi_align", floats(2, 12, 8, 8), floats(7, 5), 1.0, 2, 2, 3,
          other=7 * 3 * 4 * 9 * 8),
    *case("torchvision.roi_pool", IMAGE, floats(7, 5), 1.0, 2, 2, other=7 * 3 * 4),
    *case("torchvision.ps_roi_pool", floats(2, 12, 8, 8), floats(7, 5), 1.0, 2, 2, other=7 * 3 * 4),
    # Each sample's gradient goes to its four points, by a product and a sum each.
    *case("torchvision._roi_align_backward", CELLS, floats(7, 5), 1.0, 2, 2, 2, 3, 8, 8, 2, False,
          gives=IMAGE, other=7 * 3 * 4 * 4 * 8),
    *case("torchvision._ps_roi_align_backward", CELLS, floats(7, 5), ints(7, 3, 2, 2), 1.0, 2, 2,
          3, 2, 12, 8, 8, gives=floats(2, 12, 8, 8), other=7 * 3 * 4 * 9 * 8),
    *case("torchvision._roi_pool_backward", CELLS, floats(7, 5), ints(7, 3, 2, 2), 1.0, 2, 2,
          2, 3, 8, 8, gives=IMAGE, other=7 * 3 * 4),
    *case("torchvision._ps_roi_pool_backward", CELLS, floats(7, 5), ints(7, 3, 2, 2), 1.0, 2, 2,
          2, 12, 8, 8, gives=floats(2, 12, 8, 8), other=7 * 3 * 4),
    # 10 areas of 3, and 45 pairs of 13.
    *case("torchvision.nms", floats(10, 4), floats(10), 0.5, gives=ints(10), other=10 * 3 + 45 * 13),
    # 3 x 3 results of 6 channels from a window of 3 x 3 over 4 channels, and over 2 in two groups.
    *case("torchvision.deform_conv2d", floats(1, 4, 5, 5), floats(6, 4, 3, 3), floats(1, 18, 3, 3),
          floats(0), floats(6), 1, 1, 0, 0, 1, 1, 1, 1, False, flops=2 * 9 * 6 * 4 * 9),
    *case("torchvision.deform_conv2d", floats(1, 4, 5, 5), floats(6, 2, 3, 3), floats(1, 18, 3, 3),
          floats(0), floats(6), 1, 1, 0, 0, 1, 1, 2, 1, False, flops=2 * 9 * 6 * 2 * 9),
    # The product of the forward twice, with the gradient in the place of the weight and of the points.
    *case("torchvision._deform_conv2d_backward", floats(1, 6, 3, 3), floats(1, 4, 5, 5), floats(6, 2, 3, 3),
          floats(1, 18, 3, 3), floats(0), floats(6), 1, 1, 0, 0, 1, 1, 2, 1, False,
          gives=(floats(1, 4, 5, 5), floats(6, 2, 3, 3)), flops=2 * 2 * 9 * 6 * 2 * 9),
]  # fmt: skip
