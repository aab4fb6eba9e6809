"""What costs nothing by nature: other views of the same numbers, and questions about them."""

from __future__ import annotations

import torch
from tests.costs.hand import bools, complexes, floats, free, ints

X = floats(4, 6)

CASES = [
    *free("view", X, [24]),
    *free("_unsafe_view", X, [24]),
    *free("_reshape_alias", X, [24], [1]),
    *free("unsafe_split unsafe_chunk", X, 2),
    *free("unsafe_split_with_sizes", X, [1, 3]),
    *free("lift_fresh detach_ squeeze_ t_ requires_grad_", X, gives=X),
    *free("_conj view_as_real", complexes(4, 6)),
    *free("_neg_view", X),
    *free("view_as_complex", floats(4, 3, 2)),
    *free("unsqueeze_", X, 0, gives=X),
    *free("transpose_ swapaxes_ swapdims_", X, 0, 1, gives=X),
    *free("as_strided_", X, [24], [1], gives=X),
    *free("_version", X, gives=0),
    *free("record_stream", X, torch.Stream("cpu"), gives=()),
    *free("_linalg_check_errors", ints(1).int(), "cholesky", is_matrix=True, gives=()),
    *free("_assert_async", bools(1), gives=()),
    *free("_functional_assert_async", bools(1), "", floats(1), gives=floats(1)),
    *free("_assert_scalar", True, "", gives=()),
    *free("_assert_tensor_metadata", X, gives=()),
    *free("is_same_size _has_same_storage_numel", X, X, gives=True),
    *free("_is_zerotensor", X, gives=False),
    *free("_nested_view_from_buffer", X, ints(2, 2), ints(2, 2), ints(2), gives=X),
    *free("_nested_view_from_jagged", X, ints(3), X, gives=X),
    *free("_nested_get_offsets _nested_get_values _nested_get_lengths", X, gives=X),
    *free("_nested_get_jagged_dummy _nested_get_min_seqlen _nested_get_max_seqlen", X, gives=X),
    *free("_nested_get_ragged_idx", X, gives=1),
]  # fmt: skip
