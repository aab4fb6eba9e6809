"""Operators that copy: no FLOPs, and bytes in and out."""

from __future__ import annotations

from tests.costs.hand import case, floats

X = floats(4, 6)
LINE, IMAGE, VOLUME = floats(2, 3, 4), floats(2, 3, 4, 4), floats(2, 3, 4, 4, 4)

CASES = [
    *case("cat stack block_diag", [X, X]),
    *case("cat", [X, X], bytes=(2 * 96, 2 * 96)),
    *case("cartesian_prod", [floats(2), floats(3)]),
    *case("meshgrid", [floats(2), floats(3)], indexing="ij"),
    # A rim of one element: 6, 6 x 6 and 6 x 6 x 6 of each of 6 channels.
    *case("constant_pad_nd", X, [1, 1], bytes=(96, 4 * 4 * 8)),
    *case("reflection_pad1d replication_pad1d", LINE, [1, 1], bytes=(4 * 24, 4 * 36)),
    *case("reflection_pad2d replication_pad2d", IMAGE, [1] * 4, bytes=(4 * 96, 4 * 216)),
    *case("reflection_pad3d replication_pad3d", VOLUME, [1] * 6, bytes=(4 * 384, 4 * 1296)),
    # Their gradients are added where they came from.
    *case("reflection_pad1d_backward replication_pad1d_backward", floats(2, 3, 6), LINE, [1, 1], other=36),
    *case("reflection_pad2d_backward replication_pad2d_backward", floats(2, 3, 6, 6), IMAGE, [1] * 4,
          other=216),
    *case("reflection_pad3d_backward replication_pad3d_backward", floats(2, 3, 6, 6, 6), VOLUME, [1] * 6,
          other=1296),
    *case("repeat tile", X, [2, 1], bytes=(96, 192)),
    *case("repeat_interleave", X, 2, 0, gives=floats(8, 6), bytes=(96, 192)),
    *case("flip roll", X, [1], gives=X, bytes=(96, 96)),
    *case("rot90", X, bytes=(96, 96)),
    *case("pixel_shuffle", floats(1, 4, 4, 6), 2, bytes=(4 * 96, 4 * 96)),
    *case("pixel_unshuffle", floats(1, 1, 8, 12), 2, bytes=(4 * 96, 4 * 96)),
    *case("channel_shuffle native_channel_shuffle", floats(1, 4, 4, 6), 2, gives=floats(1, 4, 4, 6),
          bytes=(4 * 96, 4 * 96)),
    # 2 x 2 windows of 4 x 4: 12 numbers for each of 9 places; back, each number is added to its place.
    *case("im2col", IMAGE, [2, 2], [1, 1], [0, 0], [1, 1], bytes=(4 * 96, 4 * 2 * 12 * 9)),
    *case("col2im", floats(2, 12, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1], other=2 * 12 * 9),
    # Windows of 2 every 2.
    *case("unfold_copy", X, 1, 2, 2, bytes=(96, 96)),
    *case("split_with_sizes_copy", X, [1, 3], bytes=(96, 96)),
    *case("split_copy", X, 2, bytes=(96, 96)),
    *case("expand_copy", floats(1, 6), [4, 6], bytes=(24, 96)),
    *case("view_copy", X, [24], bytes=(96, 96)),
    *case("slice_copy", X, 0, 1, 3, bytes=(96, 48)),
    *case("select_copy", X, 0, 1, bytes=(96, 24)),
    *case("permute_copy", X, [1, 0], bytes=(96, 96)),
    *case("transpose_copy", X, 0, 1, bytes=(96, 96)),
    *case("t_copy squeeze_copy unbind_copy", X, bytes=(96, 96)),
    *case("unsqueeze_copy", X, 0, bytes=(96, 96)),
    *case("narrow_copy", X, 0, 1, 2, bytes=(96, 48)),
    *case("diagonal_copy", X, bytes=(96, 16)),
    *case("alias_copy", X, bytes=(96, 96)),
    *case("as_strided_copy", X, [3], [1], bytes=(96, 12)),
    *case("_reshape_copy", X, [24], bytes=(96, 96)),
    *case("as_strided_scatter", X, floats(6), [6], [1], bytes=(96 + 24, 96)),
    *case("diag_embed", floats(4), bytes=(16, 64)),
    *case("diag", floats(4), bytes=(16, 64)),
    *case("to_mkldnn to_dense _to_dense _pin_memory", X, gives=X, bytes=(96, 96)),
    *case("_nested_tensor_from_mask", floats(2, 3, 4), floats(2, 3), gives=floats(2, 3, 4)),
    # A new size or another storage is no traffic.
    *case("resize_", X, [4, 6], bytes=(0, 0)),
    *case("set_", floats(4, 6), bytes=(0, 0)),
]  # fmt: skip
