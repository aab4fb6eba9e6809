"""Dense linear algebra, for each matrix [..., m, n] of a batch: leading terms.

[LAPACK] is Anderson, Dongarra and Ostrouchov, "Installation Guide for LAPACK", LAPACK Working Note 41,
1992, revised 1999, "Operation Counts for the LAPACK Routines"; [Golub] is Golub and Van Loan, "Matrix
Computations", 4th ed., 2013.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import log2, prod
from typing import Any

import torch
from torch import Tensor

from opgraph.costs.registry import (
    Call,
    Formula,
    Sizes,
    contraction,
    each,
    first_input,
    formula,
    formulas,
    moves,
)


def _matrix(call: Call) -> tuple[int, int, int]:
    """How many matrices there are in the first tensor, their longer and their shorter side."""
    *batch, m, n = call.inputs[0]
    return prod(batch), max(m, n), min(m, n)


def _cubes(call: Call, factor: float) -> int:
    """factor * n^3 for each matrix."""
    batch, _, n = _matrix(call)
    return round(batch * factor * n**3)


def _solved(call: Call, triangles: int, position: int) -> int:
    """Triangles of n rows solved for each element of the right-hand sides."""
    return triangles * call.inputs[position][-1] * call.output_elements


def _factor(m: int, n: int) -> float:
    """Householder's factorization of m x n, m >= n."""
    return 2 * m * n**2 - 2 * n**3 / 3


def _orthogonal(m: int, n: int, k: int) -> float:
    """n columns of the product of k reflections of length m."""
    return 4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 / 3


for _names, _times, _source in (
    # Also where the matrix is symmetric and not definite.
    ("linalg_cholesky_ex linalg_ldl_factor_ex", 1 / 3, "[LAPACK] POTRF, SYTRF"),
    # The inverse from the factor.
    ("cholesky_inverse", 2 / 3, "[LAPACK] POTRI"),
    # The LU factorization (2/3) and the inverse from it (4/3).
    ("linalg_inv_ex", 2, "[LAPACK] GETRF and GETRI"),
    # The real Schur form with its vectors, and alone.
    ("linalg_eig", 25, "[Golub] section 7.5"),
    ("_linalg_eigvals", 10, "[Golub] section 7.5"),
):
    for _name in _names.split():
        _work = partial(_cubes, factor=_times)
        formulas[f"aten.{_name}"] = Formula("linear_algebra", _work, f"{_source}: {_times:.3g} n^3")

for _names, _triangles, _position, _source in (
    # n^2 for each right-hand side and triangle; which tensor holds the n rows.
    ("linalg_solve_triangular", 1, 0, "[LAPACK] TRTRS"),
    ("triangular_solve", 1, 1, "[LAPACK] TRTRS"),
    ("linalg_lu_solve linalg_ldl_solve", 2, 0, "[LAPACK] GETRS, SYTRS"),
    ("cholesky_solve _cholesky_solve_helper", 2, 1, "[LAPACK] POTRS"),
):
    for _name in _names.split():
        _work = partial(_solved, triangles=_triangles, position=_position)
        formulas[f"aten.{_name}"] = Formula("linear_algebra", _work, f"{_source}: {_triangles} n^2")


@formula(
    "linear_algebra",
    "aten.linalg_lu", "aten.linalg_lu_factor_ex", "aten._linalg_det", "aten._linalg_slogdet",
)  # fmt: skip
def lu(call: Call) -> int:
    """m n^2 - n^3 / 3 for m >= n: 2/3 n^3 of a square; a determinant is a product more.

    Source: [LAPACK] GETRF.
    """
    batch, m, n = _matrix(call)
    return round(batch * (m * n**2 - n**3 / 3))


@formula("linear_algebra", "aten.geqrf")
def qr_factor(call: Call) -> int:
    """2 m n^2 - 2/3 n^3 for m >= n: R and the reflections.

    Source: [LAPACK] GEQRF.
    """
    batch, m, n = _matrix(call)
    return round(batch * _factor(m, n))


@formula("linear_algebra", "aten.linalg_qr")
def qr(call: Call) -> int:
    """As `qr_factor`, and the columns of Q where they are wanted: 4 m p k - 2 (m + p) k^2 + 4/3 k^3 for p
    of them, with k = min(m, n).

    Source: [LAPACK] GEQRF and ORGQR.
    """
    *batch, m, n = call.inputs[0]
    k = min(m, n)
    total = _factor(max(m, n), k)
    if call.args[1] != "r":
        total += _orthogonal(m, m if call.args[1] == "complete" else k, k)
    return round(prod(batch) * total)


@formula("linear_algebra", "aten.linalg_householder_product")
def householder_product(call: Call) -> int:
    """4 m n k - 2 (m + n) k^2 + 4/3 k^3 for n columns of the product of k reflections of length m.

    Source: [LAPACK] ORGQR.
    """
    *batch, m, n = call.inputs[0]
    return round(prod(batch) * _orthogonal(m, n, call.inputs[1][-1]))


@formula("linear_algebra", "aten.ormqr")
def multiply_by_orthogonal(call: Call) -> int:
    """k reflections of length q applied to p vectors: 4 p q k - 2 p k^2.

    Source: [LAPACK] ORMQR.
    """
    *batch, m, n = call.inputs[2]
    k = call.inputs[1][-1]
    length, vectors = (m, n) if call.args[3] else (n, m)
    return prod(batch) * (4 * vectors * length * k - 2 * vectors * k**2)


@formula("linear_algebra", "aten.linalg_lstsq")
def least_squares(call: Call) -> int:
    """2 m n^2 - 2/3 n^3 for m >= n, and 4 m n - n^2 for each right-hand side: reflections applied (4 m n -
    2 n^2) and a triangle solved (n^2).

    Source: [LAPACK] GEQRF, ORMQR, TRTRS.
    """
    batch, m, n = _matrix(call)
    sides = prod(call.outputs[0]) // max(1, batch * call.inputs[0][-1])
    return round(batch * (_factor(m, n) + sides * (4 * m * n - n**2)))


@formula("linear_algebra", "aten._linalg_eigh")
def symmetric_eigenvalues(call: Call) -> int:
    """9 n^3 with the vectors and 4/3 n^3 without: the reduction to three diagonals, and the rotations.

    Source: [Golub] section 8.3 (symmetric QR).
    """
    return _cubes(call, 9 if call.args[2] else 4 / 3)


@formula("linear_algebra", "aten._linalg_svd")
def svd(call: Call) -> int:
    """For m >= n: 4 m n^2 - 4/3 n^3 or 2 m n^2 + 2 n^3 for the values, 14 m n^2 + 8 n^3 or 6 m n^2 + 20 n^3
    with n vectors of each side, 4 m^2 n + 8 m n^2 + 9 n^3 or 4 m^2 n + 22 n^3 with all; the lesser of the
    two, which are the methods of Golub and Reinsch and of a QR factorization first.

    Source: [Golub] section 8.6, figure 8.6.1.
    """
    batch, m, n = _matrix(call)
    full, vectors = call.args[1:3]
    if not vectors:
        counts = (4 * m * n**2 - 4 * n**3 / 3, 2 * m * n**2 + 2 * n**3)
    elif full:
        counts = (4 * m**2 * n + 8 * m * n**2 + 9 * n**3, 4 * m**2 * n + 22 * n**3)
    else:
        counts = (14 * m * n**2 + 8 * n**3, 6 * m * n**2 + 20 * n**3)
    return round(batch * min(counts))


@formula("linear_algebra", "aten._linalg_solve_ex")
def solve(call: Call) -> int:
    """2/3 n^3 for the LU factorization and 2 n^2 for each right-hand side.

    Source: [LAPACK] GETRF, GETRS.
    """
    return _cubes(call, 2 / 3) + _solved(call, 2, 0)


# Fast Fourier transforms.


def _complex(sizes: Sizes, dims: list[int]) -> float:
    """5 n log2 n for n points along each dimension."""
    return sum(5 * prod(sizes) * log2(sizes[d]) for d in dims if sizes[d] > 1)


@formula("fft", "aten._fft_c2c")
def complex_transform(call: Call) -> int:
    """5 n log2 n for a transform of n points along each dimension.

    Source: Frigo and Johnson, benchFFT (fftw.org/speed/method.html), after the radix-2 algorithm of Cooley
    and Tukey, 1965: n / 2 log2 n butterflies, each a complex product (6) and two complex sums (4).
    """
    return int(_complex(call.inputs[0], call.args[1]))


@formula("fft", "aten._fft_r2c")
def real_transform(call: Call) -> int:
    """2.5 n log2 n for a transform of n real points: half of a complex one.

    Source: Frigo and Johnson, benchFFT (fftw.org/speed/method.html).
    """
    return int(_complex(call.inputs[0], call.args[1]) / 2)


@formula("fft", "aten._fft_c2r")
def real_inverse(call: Call) -> int:
    """2.5 n log2 n for n real results: half of a complex transform.

    Source: Frigo and Johnson, benchFFT (fftw.org/speed/method.html).
    """
    return int(_complex(call.outputs[0], call.args[1]) / 2)


# Products of sparse matrices, by the values that they store, and ways into sparse layouts. What a fake
# tensor stores is not known: there a product has no known cost.


COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
SPARSE = frozenset((torch.sparse_coo, *COMPRESSED))


def stored(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors that a sparse tensor is made of, the last of which has the values; any other itself."""
    if tensor.layout not in SPARSE:
        return (tensor,)
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        tensor = tensor.detach()
        if tensor.layout is torch.sparse_coo:
            return tensor._indices(), tensor._values()
        if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            return tensor.crow_indices(), tensor.col_indices(), tensor.values()
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()


def sparse_product(name: str, inputs: Sequence[Tensor]) -> int:
    """The FLOPs of a product whose operands are the last two tensors: each value that a sparse one stores
    meets each column (or row) of the other. Where both are sparse, a value at [i, k] meets those in row k.

    Raises ValueError where that is not known.

    Source: Saad, "Iterative Methods for Sparse Linear Systems", 2003, section 3.4.
    """
    if name == "aten.sparse_sampled_addmm":
        return 2 * _values(inputs[0]) * int(inputs[1].shape[-1])
    a, b = inputs[-2:]
    if a.layout in SPARSE and b.layout in SPARSE:
        with torch._C.DisableTorchFunction():
            columns, rows = (t.to_sparse_coo()._indices()[axis] for t, axis in ((a, 1), (b, 0)))
            met = (t.bincount(minlength=int(b.shape[0])) for t in (columns, rows))
            return 2 * int((next(met) * next(met)).sum())
    if a.layout in SPARSE:
        return 2 * _values(a) * (int(b.shape[-1]) if b.dim() > 1 else 1)
    if b.layout in SPARSE:
        return 2 * _values(b) * (int(a.shape[-2]) if a.dim() > 1 else 1)
    raise ValueError(name)


NESTED_PRODUCTS = {
    "aten.matmul": (0, 1, -1), "aten.matmul_backward": (1, 2, -1),
    "aten.linear": (0, 1, 0), "aten.linear_backward": (0, 2, 0),
}  # fmt: skip
"""Products that are whole for nested tensors alone: where their operands stand, and the dimension of the
second that the result has."""


def nested_product(name: str, args: Sequence[Any]) -> int:
    """The FLOPs of a product [..., m, k] by [..., k, n] (or [n, k]) of tensors nested in others, or of the
    gradients of both that are asked for.

    Source: torch/utils/flop_counter.py (bmm_flop), for each.
    """
    left, right, kept = NESTED_PRODUCTS[name]
    asked = sum(args[3][:2]) if name.endswith("_backward") else 1
    return 2 * asked * int(args[left].numel() * args[right].shape[kept])


def _values(tensor: Tensor) -> int:
    if tensor.__class__.__name__ == "FakeTensor":
        raise ValueError("what a fake tensor stores is not known")
    return int(stored(tensor)[-1].numel())


@contraction(
    "matmul", "aten._sparse_addmm", "aten._sparse_mm_reduce_impl", "aten._sparse_sparse_matmul",
    "aten.sparse_sampled_addmm", raw=True,
)  # fmt: skip
def product(*args: Any, out_val: Any, **kwargs: Any) -> int:
    """Products that are for sparse tensors alone: see `sparse_product`.

    Source: as `sparse_product`.
    """
    raise ValueError("none of the tensors is sparse")


each("indexing", first_input, "derived here: every element is compared with zero", {
    "comparison": "_to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc",
})  # fmt: skip
each("indexing", first_input, "derived here: each index against the one before it", {
    "comparison": "_convert_indices_from_coo_to_csr",
})  # fmt: skip
each("indexing", first_input, "derived here: values are moved", {
    "": "_convert_indices_from_csr_to_coo _pack_padded_sequence _pack_padded_sequence_backward "
    "sparse_mask",
})  # fmt: skip
# Only the places that the mask stores are read, and what is there.
moves(lambda _sizes, results, _call: (results, results), "sparse_mask")


@formula("indexing", "aten._coalesce")
def coalesce(call: Call) -> int:
    """n log2 n comparisons of n stored places, and a sum of each value with the one before it.

    Source: as `sort` (aten/src/ATen/native/sparse/SparseTensor.cpp sorts flat indices), derived here.
    """
    places = call.inputs[0][0]
    return int(places * log2(places)) + call.input_elements if places else 0
