"""Products of sparse matrices, by the values that they store, and ways into sparse layouts. What a fake
tensor stores is not known: there a product has no known cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opgraph.costs.registry import contraction, each, first_input

COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
SPARSE = frozenset((torch.sparse_coo, *COMPRESSED))


def stored(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors that a sparse tensor is made of; the last one has the values."""
    with torch._C.DisableTorchFunction():
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
each("indexing", first_input, "derived here: values are moved", {
    "": "_pack_padded_sequence _pack_padded_sequence_backward",
})  # fmt: skip
