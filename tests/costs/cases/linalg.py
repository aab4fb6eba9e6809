"""Factorizations and solutions, of two matrices of 6 x 6 or of 6 x 3; numbers by the tables of LAPACK
Working Note 41 and of Golub and Van Loan's "Matrix Computations"."""

from __future__ import annotations

from tests.costs.hand import case, floats, ints

A = floats(2, 6, 6)
TALL, WIDE = floats(2, 6, 3), floats(2, 3, 6)
SIDES = floats(2, 6, 4)
PIVOTS = ints(2, 6).int()

CASES = [
    # n^3 / 3; the inverse from it, 2/3 n^3.
    *case("linalg_cholesky_ex", A, other=2 * 216 // 3),
    *case("linalg_ldl_factor_ex", A, other=2 * 216 // 3),
    *case("cholesky_inverse", A, other=2 * 2 * 216 // 3),
    # m n^2 - n^3 / 3.
    *case("linalg_lu linalg_lu_factor_ex _linalg_det _linalg_slogdet", A, other=2 * (216 - 72)),
    *case("linalg_lu_factor_ex", TALL, other=2 * (6 * 9 - 9)),
    *case("linalg_lu_factor_ex", WIDE, other=2 * (6 * 9 - 9)),
    # 2/3 n^3 and 4/3 n^3.
    *case("linalg_inv_ex", A, other=2 * 2 * 216),
    # 2 m n^2 - 2/3 n^3 = 108 - 18 for R; as much again for 3 columns of Q; for 6 of them
    # 4 * 6 * 6 * 3 - 2 * 12 * 9 + 4 * 9 = 252.
    *case("geqrf", TALL, gives=(TALL, floats(2, 3)), other=2 * 90),
    *case("linalg_qr", TALL, "r", other=2 * 90),
    *case("linalg_qr", TALL, other=2 * (90 + 90)),
    *case("linalg_qr", TALL, "complete", other=2 * (90 + 252)),
    *case("linalg_householder_product", TALL, floats(2, 3), other=2 * 90),
    # 3 reflections of length 6 for 4 vectors: 4 * 4 * 6 * 3 - 2 * 4 * 9.
    *case("ormqr", TALL, floats(2, 3), SIDES, other=2 * 216),
    *case("ormqr", TALL, floats(2, 3), floats(2, 4, 6), False, other=2 * 216),
    # R as above, and for each of 4 sides 4 * 6 * 3 - 9 = 63.
    *case("linalg_lstsq", TALL, SIDES, gives=(floats(2, 3, 4),), other=2 * (90 + 4 * 63)),
    # Symmetric: 9 n^3, or 4/3 n^3 without vectors. Others: 25 n^3, or 10 n^3 without.
    *case("_linalg_eigh", A, other=2 * 9 * 216),
    *case("_linalg_eigh", A, "L", False, other=2 * 288),
    *case("linalg_eig", A, other=2 * 25 * 216),
    *case("_linalg_eigvals", A, gives=floats(2, 6), other=2 * 10 * 216),
    # Of m = n = 6: 14 + 8 = 22 n^3 against 26; 4 + 8 + 9 = 21 against 26; 8/3 against 4 without vectors.
    *case("_linalg_svd", A, other=2 * 22 * 216),
    *case("_linalg_svd", A, True, other=2 * 21 * 216),
    *case("_linalg_svd", A, False, False, other=2 * 8 * 72),
    # Of 30 x 3, with a QR factorization first: 6 * 30 * 9 + 20 * 27.
    *case("_linalg_svd", floats(30, 3), other=1620 + 540),
    # A triangle: n^2 for each of 4 sides. Two triangles: 2 n^2. With the factorization: 2/3 n^3 more.
    *case("linalg_solve_triangular", A, SIDES, upper=True, other=2 * 36 * 4),
    *case("triangular_solve", SIDES, A, other=2 * 36 * 4),
    *case("linalg_lu_solve linalg_ldl_solve", A, PIVOTS, SIDES, other=2 * 2 * 36 * 4),
    *case("cholesky_solve", SIDES, A, other=2 * 2 * 36 * 4),
    *case("_cholesky_solve_helper", SIDES, A, False, gives=SIDES, other=2 * 2 * 36 * 4),
    *case("_linalg_solve_ex", A, SIDES, other=2 * (144 + 2 * 36 * 4)),
]  # fmt: skip
