"""Comparisons of sorting, selecting and searching, and transforms: 4 x 8 = 32 elements, log2 8 = 3."""

from __future__ import annotations

from tests.costs.hand import case, complexes, floats, ints

X = floats(4, 8)
SORTED = (X, ints(4, 8))

CASES = [
    # n log2 n along the dimension: 8 by default, 4 of the other.
    *case("sort argsort", X, other=32 * 3),
    *case("sort", X, 0, other=32 * 2),
    *case("sort", X, stable=True, dim=0, other=32 * 2),
    *case("mode", X, gives=SORTED, other=32 * 3),
    *case("unique_dim", X, 0, gives=SORTED, other=32 * 2),
    # Of all 32.
    *case("_unique _unique2", X, gives=SORTED, other=32 * 5),
    # The greatest of each row, or four of them: log2 4.
    *case("topk", X, 1, other=32),
    *case("topk", X, 4, other=32 * 2),
    # 8 + 4 + 2 + … comparisons for each row.
    *case("kthvalue", X, 3, other=2 * 32),
    *case("median nanmedian", X, gives=floats(), other=2 * 32),
    *case("median", X, 1, other=2 * 32),
    # One pass.
    *case("nonzero unique_consecutive", X, gives=ints(32, 2), other=32),
    *case("nonzero_static", X, size=9, gives=ints(9, 2), other=32),
    *case("bincount", ints(32), gives=ints(10), other=32),
    *case("histc", X, 10, gives=floats(10), other=4 * 32),
    # 5 values in rows of 8 by bisection; 32 in 16 boundaries; 32 against 3.
    *case("searchsorted", X, floats(4, 5), other=20 * 3),
    *case("bucketize", X, floats(16), other=32 * 4),
    *case("isin", X, floats(3), gives=X, other=32 * 3),
    # 5 n log2 n: 4 transforms of 8 points; of both dimensions; half of it where one side is real.
    *case("_fft_c2c", complexes(4, 8), [1], 0, True, other=4 * 5 * 8 * 3),
    *case("_fft_c2c", complexes(4, 8), [0, 1], 0, True, other=4 * 5 * 8 * 3 + 8 * 5 * 4 * 2),
    *case("_fft_r2c", X, [1], 0, True, other=4 * 5 * 8 * 3 // 2),
    *case("_fft_r2c", floats(2), [0], 0, True, other=5 * 2 * 1 // 2),
    *case("_fft_c2r", complexes(4, 5), [1], 0, 8, other=4 * 5 * 8 * 3 // 2),
]  # fmt: skip
