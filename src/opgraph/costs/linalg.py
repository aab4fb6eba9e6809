"""Dense linear algebra: the operation counts of LAPACK (Installation Guide for LAPACK, LAPACK Working
Note 41, appendix C), leading terms, for each matrix [..., m, n] of a batch."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from opgraph.costs.registry import Call, Formula, formulas

Count = Callable[[int, int], float]

_COUNTS: dict[str, Count] = {
    "linalg_cholesky_ex cholesky cholesky_inverse": lambda m, n: n**3 / 3,
    "linalg_lu linalg_lu_factor_ex linalg_ldl_factor_ex _linalg_det _linalg_slogdet": (
        lambda m, n: m * n * n - n**3 / 3
    ),
    "linalg_inv_ex": lambda m, n: 2 * n**3,
    "linalg_qr geqrf linalg_householder_product ormqr": lambda m, n: 2 * m * n * n - 2 * n**3 / 3,
    # Reduction to tridiagonal form, 4/3 n^3, and the vectors.
    "_linalg_eigh": lambda m, n: 4 * n**3 / 3 + 4 * n**3,
    # Reduction to Hessenberg form, 10/3 n^3, and the iterations on it.
    "linalg_eig _linalg_eigvals": lambda m, n: 10 * n**3 / 3 + 15 * n**3,
    # Reduction to bidiagonal form and both sets of vectors.
    "_linalg_svd linalg_lstsq": lambda m, n: 4 * m * n * n + 8 * n**3,
}


def _factorization(count: Count) -> Formula:
    def work(call: Call) -> int:
        *batch, m, n = call.inputs[0]
        return int(prod(batch) * count(max(m, n), min(m, n)))

    return Formula("linear_algebra", work)


def _solve(call: Call) -> int:
    """One triangle with n rows: n^2 for each right-hand side, in whichever operand they are."""
    n = call.inputs[0][-1]
    return n * call.output_elements


for _names, _count in _COUNTS.items():
    for _name in _names.split():
        formulas[f"aten.{_name}"] = _factorization(_count)
for _name in ("linalg_solve_triangular", "triangular_solve", "cholesky_solve", "linalg_lu_solve",
              "_cholesky_solve_helper", "linalg_ldl_solve"):  # fmt: skip
    formulas[f"aten.{_name}"] = Formula("linear_algebra", _solve)


def _solve_ex(call: Call) -> int:
    """LU factorization, 2/3 n^3, and two triangular solves for each right-hand side."""
    *batch, n, _ = call.inputs[0]
    return int(prod(batch) * 2 * n**3 / 3) + 2 * n * prod(call.inputs[1])


formulas["aten._linalg_solve_ex"] = Formula("linear_algebra", _solve_ex)
