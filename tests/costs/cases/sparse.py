"""Sparse products, by what is stored, and sequences of several lengths in one."""

from __future__ import annotations

import warnings

import torch
from tests.costs.hand import case, floats, free, ints

# 100 x 4 with three values: two in row 0, in columns 1 and 3, and one in row 5, column 1.
DENSE = torch.zeros(100, 4)
DENSE[0, 1] = DENSE[0, 3] = DENSE[5, 1] = 1
COO, CSR, CSC = DENSE.to_sparse(), DENSE.to_sparse_csr(), DENSE.to_sparse_csc()
# 4 x 100 with four values: row 1 has three of them, row 3 one.
OTHER = torch.zeros(4, 100)
OTHER[1, :3] = OTHER[3, 7] = 1
BLOCKS = DENSE.to_sparse_bsr((2, 2))  # three blocks of four values
VECTOR, RIGHT, LEFT = torch.ones(4), torch.ones(4, 5), torch.ones(7, 100)
SUM = torch.ones(100, 5)
# The bytes of three values, their two numbers each, or their columns and 101 beginnings of rows.
COO_BYTES, CSR_BYTES = 3 * 4 + 2 * 3 * 8, 3 * 4 + 3 * 8 + 101 * 8
PLACES = torch.tensor([[0, 0, 1, 1, 2, 2, 3, 3], [1, 1, 0, 0, 3, 3, 2, 2]])
UNSORTED = torch.sparse_coo_tensor(PLACES, torch.ones(8), (4, 4), check_invariants=False)
PARTS = CSR.crow_indices(), CSR.col_indices(), CSR.values()
BLOCK_PARTS = BLOCKS.crow_indices(), BLOCKS.col_indices(), BLOCKS.values()

# Two sequences, of 3 and of 5, in 2 heads of 8; and what each of their positions makes of each other one.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they are a prototype, says torch
    QUERIES, KEYS, SCORES = (
        torch.nested.as_nested_tensor([torch.ones(2, *sizes(n)) for n in (3, 5)])
        for sizes in (lambda n: (n, 8), lambda n: (8, n), lambda n: (n, n))
    )
    ROWS = torch.nested.as_nested_tensor([torch.ones(3, 8), torch.ones(5, 8)])
PAIRS = 2 * (3 * 3 + 5 * 5)
MANY = [floats(6), floats(2, 2)]
ADAM = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": False, "maximize": False}
CASES = [
    *case("mm", CSR, RIGHT, flops=2 * 3 * 5, bytes=(CSR_BYTES + 4 * 5 * 4, 100 * 5 * 4)),
    *case("mm", COO, RIGHT, flops=2 * 3 * 5, bytes=(COO_BYTES + 4 * 5 * 4, 100 * 5 * 4)),
    *case("mm", LEFT, CSC, flops=2 * 3 * 7),
    *case("mm", BLOCKS, RIGHT, flops=2 * 3 * 4 * 5),
    *case("mm", CSR, OTHER.to_sparse_csr(), flops=2 * (2 * 3 + 1)),  # column 1 twice, column 3 once
    *case("addmm", SUM, CSR, RIGHT, flops=2 * 3 * 5),
    *case("_sparse_addmm", SUM, COO, RIGHT, flops=2 * 3 * 5),
    *case("mv", CSR, VECTOR, flops=2 * 3),
    *case("bmm", torch.stack([DENSE, 2 * DENSE]).to_sparse(), torch.ones(2, 4, 5), flops=2 * 2 * 3 * 5),
    *case("_sparse_mm_reduce_impl", CSR, RIGHT, "mean", flops=2 * 3 * 5),
    *case("_sparse_sparse_matmul", COO, OTHER.to_sparse(), flops=2 * (2 * 3 + 1)),
    *case("sparse_sampled_addmm", CSR, torch.ones(100, 6), torch.ones(6, 4), flops=2 * 3 * 6),
    *case("_to_sparse _to_sparse_csr _to_sparse_csc", DENSE, other=400),
    *case("_to_sparse_bsr _to_sparse_bsc", DENSE, [2, 2], other=400),
    # Eight places: 8 x 3 comparisons to sort them, and their values added up.
    *case("_coalesce", UNSORTED, other=8 * 3 + 8),
    *case("_convert_indices_from_coo_to_csr", torch.tensor([0, 0, 5]), 100, other=3,
          bytes=(3 * 8, 101 * 8)),
    *case("_convert_indices_from_csr_to_coo", CSR.crow_indices(), CSR.col_indices(),
          bytes=((101 + 3) * 8, 2 * 3 * 8)),
    *free("_sparse_coo_tensor_unsafe", PLACES, torch.ones(8), (4, 4)),
    *free("_sparse_coo_tensor_with_dims_and_tensors", 2, 0, (4, 4), PLACES, torch.ones(8),
          dtype=torch.float32, layout=torch.sparse_coo),
    *free("sparse_compressed_tensor _sparse_compressed_tensor_unsafe", *PARTS, (100, 4),
          layout=torch.sparse_csr),
    *free("_sparse_csr_tensor_unsafe", *PARTS, (100, 4)),
    *free("_sparse_csc_tensor_unsafe", *PARTS, (4, 100)),
    *free("_sparse_bsr_tensor_unsafe", *BLOCK_PARTS, (100, 4)),
    *free("_sparse_bsc_tensor_unsafe", *BLOCK_PARTS, (4, 100)),
    # Products of nested tensors, one for each tensor in them, and both gradients of one or a single one.
    *case("matmul", QUERIES, KEYS, flops=2 * PAIRS * 8, bytes=(4 * 2 * 128, 4 * PAIRS)),
    *case("matmul_backward", SCORES, QUERIES, KEYS, [True, True], flops=2 * 2 * PAIRS * 8,
          bytes=(4 * (PAIRS + 2 * 128), 4 * 2 * 128)),
    *case("matmul_backward", SCORES, QUERIES, KEYS, [True, False], flops=2 * PAIRS * 8,
          gives=(QUERIES, None)),
    *case("linear", ROWS, torch.ones(6, 8), flops=2 * 64 * 6, bytes=(4 * (64 + 48), 4 * 48)),
    *case("mul", QUERIES, 2.0, other=128, bytes=(4 * 128, 4 * 128)),
    *case("_nested_tensor_from_tensor_list", [torch.ones(3, 8), torch.ones(5, 8)],
          bytes=(4 * 64, 4 * 64)),
    # Rows of 8 that lie one after another, and two sequences in five places each.
    *case("_jagged_to_padded_dense_forward", torch.ones(8, 8), [torch.tensor([0, 3, 8])], [5],
          bytes=(4 * 64 + 8 * 3, 4 * 2 * 5 * 8)),
    *case("_padded_dense_to_jagged_forward", torch.ones(2, 5, 8), [torch.tensor([0, 3, 8])], 8,
          bytes=(4 * 64 + 8 * 3, 4 * 64)),
    *case("to_padded_tensor", ROWS, 0.0, bytes=(4 * 64, 4 * 2 * 5 * 8)),
    *case("_nested_from_padded", torch.ones(2, 5, 8), torch.tensor([[3, 8], [5, 8]]),
          bytes=(4 * 64 + 8 * 4, 4 * 64)),
    *free("_nested_tensor_size _nested_tensor_strides _nested_tensor_storage_offsets", QUERIES),
    *case("sparse_mask", DENSE, CSR, bytes=(CSR_BYTES, CSR_BYTES)),
    *free("is_coalesced", COO),
    *free("sparse_dim", COO),
    *free("dense_dim", COO),
    # By the values that are there.
    *case("relu", CSR, other=3),
    *case("_pack_padded_sequence", torch.ones(5, 2, 3), torch.tensor([5, 3]), False,
          bytes=(30 * 4 + 2 * 8, 8 * 3 * 4 + 5 * 8)),
    *case("_pack_padded_sequence_backward", torch.ones(8, 3), [5, 2, 3], torch.tensor([2, 2, 2, 1, 1]),
          False),
    # Two tensors of 6 and of 4 elements, as one does after the other.
    *case("_foreach_add", [floats(6), floats(2, 2)], [floats(6), floats(2, 2)], other=10,
          bytes=(80, 40)),
    *case("_foreach_add_", [floats(6), floats(2, 2)], [floats(6), floats(2, 2)], other=10, bytes=(80, 40)),
    *case("_foreach_mul _foreach_mul_", [floats(6), floats(2, 2)], 2.0, other=10, bytes=(40, 40)),
    *case("_foreach_addcdiv_", *3 * [[floats(6), floats(2, 2)]], 1.0, other=2 * 10),
    *case("_foreach_lerp_", *2 * [[floats(6), floats(2, 2)]], 0.5, other=3 * 10),
    *case("_foreach_sqrt", [floats(6), floats(2, 2)], other=10),
    *case("_foreach_zero_", [floats(6), floats(2, 2)], bytes=(0, 40)),
    # Adam: lerp, a second moment, its root, a quotient; AdamW's decay; SGD with momentum; GradScaler.
    *case("_fused_adam_", *5 * [MANY], [floats(1), floats(1)], other=11 * 10, **ADAM, weight_decay=0.0),
    *case("_fused_adamw_", *5 * [MANY], [floats(1), floats(1)], other=12 * 10, **ADAM, weight_decay=0.1),
    *case("_fused_sgd_", *3 * [MANY], other=4 * 10, weight_decay=0.0, momentum=0.9, lr=0.1, dampening=0.0,
          nesterov=False, maximize=False, is_first_step=False, gives=()),
    *case("_amp_foreach_non_finite_check_and_unscale_", MANY, floats(1), floats(1), other=2 * 10),
    *case("_amp_update_scale_", floats(1), ints(1), floats(1), 2.0, 0.5, 2000, other=4),
    *case("_foreach_copy_", *2 * [[floats(6), floats(2, 2)]], bytes=(40, 40)),
]  # fmt: skip
