"""Windows of pooling and points of interpolation."""

from __future__ import annotations

from tests.costs.hand import case, floats, ints

LINE, IMAGE, VOLUME = floats(2, 3, 8), floats(2, 3, 8, 8), floats(2, 3, 4, 4, 4)
HALF = floats(2, 3, 4, 4)
BLOCK = floats(2, 3, 2, 2, 2)

CASES = [
    # A comparison for each of 2, 4 or 8 elements of a window, for each result.
    *case("max_pool1d", LINE, [2], gives=floats(2, 3, 4), other=2 * 3 * 4 * 2),
    *case("max_pool2d mkldnn_max_pool2d quantized_max_pool2d", IMAGE, [2, 2], gives=HALF, other=96 * 4),
    *case("max_pool2d_with_indices", IMAGE, [2, 2], [2, 2], other=96 * 4, bytes=(4 * 384, (4 + 8) * 96)),
    *case("max_pool3d", VOLUME, [2, 2, 2], gives=BLOCK, other=48 * 8),
    *case("max_pool3d_with_indices", VOLUME, [2, 2, 2], [2, 2, 2], other=48 * 8),
    *case("fractional_max_pool2d", IMAGE, [2, 2], [4, 4], floats(2, 3, 2), other=96 * 4),
    *case("fractional_max_pool3d", VOLUME, [2, 2, 2], [2, 2, 2], floats(2, 3, 3), other=48 * 8),
    # A sum for each, and a quotient for each result.
    *case("avg_pool1d", LINE, [2], gives=floats(2, 3, 4), other=24 * 3),
    *case("avg_pool2d", IMAGE, [2, 2], other=96 * 5),
    *case("avg_pool3d", VOLUME, [2, 2, 2], other=48 * 9),
    # Windows that tile the input: each element once, each result once.
    *case("_adaptive_avg_pool2d", IMAGE, [4, 4], other=384 + 96),
    *case("mkldnn_adaptive_avg_pool2d", IMAGE, [4, 4], gives=HALF, other=384 + 96),
    *case("_adaptive_avg_pool3d", VOLUME, [2, 2, 2], other=384 + 48),
    *case("adaptive_avg_pool1d", LINE, [4], gives=floats(2, 3, 4), other=48 + 24),
    *case("adaptive_max_pool1d", LINE, [4], gives=floats(2, 3, 4), other=48 + 24),
    *case("adaptive_max_pool2d", IMAGE, [4, 4], other=384 + 96),
    *case("adaptive_max_pool3d", VOLUME, [2, 2, 2], other=384 + 48),
    # The gradients: one comes in for each of 96 (48) results.
    *case("max_pool2d_with_indices_backward", HALF, IMAGE, [2, 2], [2, 2], [0, 0], [1, 1], False,
          ints(2, 3, 4, 4), other=96),
    *case("max_pool3d_with_indices_backward", BLOCK, VOLUME, [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1],
          False, ints(2, 3, 2, 2, 2), gives=VOLUME, other=48),
    *case("adaptive_max_pool2d_backward", HALF, IMAGE, ints(2, 3, 4, 4), other=96),
    *case("adaptive_max_pool3d_backward", BLOCK, VOLUME, ints(2, 3, 2, 2, 2), other=48),
    *case("avg_pool2d_backward", HALF, IMAGE, [2, 2], [2, 2], [0, 0], False, True, None, other=96 * 5),
    *case("avg_pool3d_backward", BLOCK, VOLUME, [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None,
          other=48 * 9),
    *case("_adaptive_avg_pool2d_backward", HALF, IMAGE, other=384 + 96),
    *case("_adaptive_avg_pool3d_backward", BLOCK, VOLUME, gives=VOLUME, other=384 + 48),
    # Nearest points are copied. Of 2, 4, 8 and 16 points each but the first is a product and a sum.
    *case("upsample_nearest1d _upsample_nearest_exact1d", LINE, [16]),
    *case("upsample_nearest2d _upsample_nearest_exact2d", IMAGE, [16, 16]),
    *case("upsample_nearest3d _upsample_nearest_exact3d", VOLUME, [8, 8, 8]),
    *case("upsample_linear1d", LINE, [16], False, other=2 * 3 * 16 * 3),
    *case("upsample_bilinear2d", HALF, [8, 8], False, other=384 * 7),
    *case("upsample_trilinear3d", BLOCK, [4, 4, 4], False, other=384 * 15),
    *case("upsample_bicubic2d", HALF, [8, 8], False, other=384 * 31),
    # Gradients: a product and a sum into each point; a sum alone into the nearest.
    *case("upsample_nearest1d_backward _upsample_nearest_exact1d_backward", floats(2, 3, 16), [16],
          [2, 3, 8], other=96),
    *case("upsample_nearest2d_backward _upsample_nearest_exact2d_backward", IMAGE, [8, 8], [2, 3, 4, 4],
          other=384),
    *case("upsample_nearest3d_backward _upsample_nearest_exact3d_backward", VOLUME, [4, 4, 4],
          [2, 3, 2, 2, 2], other=384),
    *case("upsample_linear1d_backward", floats(2, 3, 16), [16], [2, 3, 8], False, other=96 * 4),
    *case("upsample_bilinear2d_backward", IMAGE, [8, 8], [2, 3, 4, 4], False, other=384 * 8),
    *case("upsample_trilinear3d_backward", VOLUME, [4, 4, 4], [2, 3, 2, 2, 2], False, other=384 * 16),
    *case("upsample_bicubic2d_backward", IMAGE, [8, 8], [2, 3, 4, 4], False, other=384 * 32),
    # 8 x 8 to 4 x 4: twice 2 (4) points a side; along the width for 8 rows, then along the height.
    *case("_upsample_bilinear2d_aa", IMAGE, [4, 4], False, other=6 * (8 * 4 * 7 + 4 * 4 * 7)),
    *case("_upsample_bicubic2d_aa", IMAGE, [4, 4], False, other=6 * (8 * 4 * 15 + 4 * 4 * 15)),
    # 4 x 4 to 8 x 8: 2 points a side, as without.
    *case("_upsample_bilinear2d_aa", HALF, [8, 8], False, other=6 * (4 * 8 * 3 + 8 * 8 * 3)),
    *case("_upsample_bilinear2d_aa_backward", HALF, [4, 4], [2, 3, 8, 8], False,
          other=6 * (4 * 4 * 8 + 8 * 4 * 8)),
    *case("_upsample_bicubic2d_aa_backward", HALF, [4, 4], [2, 3, 8, 8], False, gives=IMAGE,
          other=6 * (4 * 4 * 16 + 8 * 4 * 16)),
    # 2 x 5 x 5 places: two coordinates, each scaled (4), rounded (1) and with 2 distances, and 4 products
    # of them are 18, for all 3 channels; then 4 points for each result.
    *case("grid_sampler_2d", IMAGE, floats(2, 5, 5, 2), 0, 0, False, other=50 * 18 + 150 * 7),
    *case("_grid_sampler_2d_cpu_fallback", IMAGE, floats(2, 5, 5, 2), 0, 0, False,
          gives=floats(2, 3, 5, 5), other=50 * 18 + 150 * 7),
    *case("cudnn_grid_sampler", IMAGE, floats(2, 5, 5, 2), gives=floats(2, 3, 5, 5),
          other=50 * 18 + 150 * 7),
    # The nearest: two coordinates scaled and rounded. Cubic: 16 points.
    *case("grid_sampler_2d", IMAGE, floats(2, 5, 5, 2), 1, 0, False, other=50 * 2 * 5),
    *case("grid_sampler_2d", IMAGE, floats(2, 5, 5, 2), 2, 0, False, other=50 * 18 + 150 * 31),
    # 2 x 3 x 3 x 3 places: three coordinates of 7 and 8 products of three distances are 37; 8 points.
    *case("grid_sampler_3d", VOLUME, floats(2, 3, 3, 3, 3), 0, 0, False, other=54 * 37 + 162 * 15),
    # Into each of 4 (8) points a product and a sum; into each of 2 (3) coordinates two products and a sum.
    *case("grid_sampler_2d_backward", floats(2, 3, 5, 5), IMAGE, floats(2, 5, 5, 2), 0, 0, False,
          [True, True], other=50 * 18 + 150 * 4 * (2 + 2 * 3)),
    *case("grid_sampler_2d_backward", floats(2, 3, 5, 5), IMAGE, floats(2, 5, 5, 2), 0, 0, False,
          [True, False], other=50 * 18 + 150 * 4 * 2),
    *case("grid_sampler_3d_backward", floats(2, 3, 3, 3, 3), VOLUME, floats(2, 3, 3, 3, 3), 0, 0, False,
          [True, True], other=54 * 37 + 162 * 8 * (2 + 3 * 3)),
]  # fmt: skip
