"""Canonical operator names: the same computation has the same name whichever tracer found it and however
the model spelled it (`x + y`, `torch.add`, `x.add_(y)` and `aten.add.Tensor` are all "add")."""

from __future__ import annotations

from functools import lru_cache

_SYNONYMS = {
    "__iadd__": "add", "__radd__": "add", "__isub__": "sub", "__rsub__": "sub", "rsub": "sub",
    "__imul__": "mul", "__rmul__": "mul", "__truediv__": "div", "__itruediv__": "div",
    "__rtruediv__": "div", "__rdiv__": "div", "__idiv__": "div", "true_divide": "div", "divide": "div",
    "__floordiv__": "floor_divide", "__rfloordiv__": "floor_divide", "__ifloordiv__": "floor_divide",
    "floordiv": "floor_divide", "truediv": "div",
    "__rpow__": "pow", "__ipow__": "pow", "__rmatmul__": "matmul", "__imatmul__": "matmul",
    "__mod__": "remainder", "__rmod__": "remainder", "mod": "remainder", "__imod__": "remainder",
    "__and__": "bitwise_and", "__iand__": "bitwise_and", "__rand__": "bitwise_and",
    "__or__": "bitwise_or", "__ior__": "bitwise_or", "__ror__": "bitwise_or",
    "__xor__": "bitwise_xor", "__ixor__": "bitwise_xor", "__invert__": "bitwise_not",
    "and_": "bitwise_and", "or_": "bitwise_or", "invert": "bitwise_not",
    "multiply": "mul", "subtract": "sub", "negative": "neg", "absolute": "abs",
    "concat": "cat", "concatenate": "cat",
    "view": "reshape", "view_as": "reshape", "reshape_as": "reshape", "_unsafe_view": "reshape",
    "swapaxes": "transpose", "swapdims": "transpose", "T": "transpose", "mT": "transpose",
    "H": "transpose", "mH": "transpose", "t": "transpose", "numpy_T": "transpose",
    "expand_as": "expand", "type_as": "to", "type": "to", "float": "to", "half": "to", "double": "to",
    "bfloat16": "to", "long": "to", "int": "to", "bool": "to", "_to_copy": "to", "cpu": "to",
    "cuda": "to", "clamp_min": "clamp", "clamp_max": "clamp", "clip": "clamp",
    "special_softmax": "softmax", "special_expit": "sigmoid", "expit": "sigmoid",
    "convolution": "conv", "unsafe_chunk": "chunk", "unsafe_split": "split", "split_with_sizes": "split",
    "__bool__": "item", "__int__": "item", "__float__": "item", "__index__": "item",
    "__complex__": "item", "_local_scalar_dense": "item", "tolist": "item",
    "greater": "gt", "less": "lt", "greater_equal": "ge", "less_equal": "le", "not_equal": "ne",
    "arctan2": "atan2", "_softmax": "softmax", "_log_softmax": "log_softmax",
    "native_layer_norm": "layer_norm", "native_group_norm": "group_norm",
    "_native_batch_norm_legit_no_training": "batch_norm", "native_batch_norm": "batch_norm",
    "_adaptive_avg_pool2d": "adaptive_avg_pool2d", "max_pool2d_with_indices": "max_pool2d",
    "upsample": "interpolate", "_in_projection_packed": "linear",
    "select": "getitem", "slice": "getitem", "index": "getitem", "index_put": "setitem",
    "lift_fresh_copy": "tensor", "lift_fresh": "tensor",
    "upsample_nearest1d": "interpolate", "upsample_nearest2d": "interpolate",
    "upsample_nearest3d": "interpolate", "_upsample_nearest_exact2d": "interpolate",
    "upsample_linear1d": "interpolate", "upsample_bilinear2d": "interpolate",
    "upsample_trilinear3d": "interpolate", "upsample_bicubic2d": "interpolate",
    "_upsample_bilinear2d_aa": "interpolate", "_upsample_bicubic2d_aa": "interpolate",
    "allgather_base": "all_gather", "allgather": "all_gather",
    "all_gather_into_tensor": "all_gather", "allgather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_base": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter", "allreduce": "all_reduce",
    "alltoall": "all_to_all", "alltoall_base": "all_to_all", "all_to_all_single": "all_to_all",
    "isend": "send", "irecv": "recv", "_wrap_tensor_autograd": "wait", "wait_tensor": "wait",
    "chunk_cat_mixed_dtype": "chunk_cat",
    "tensor_split": "split", "moveaxis": "movedim", "cond": "cond",
}  # fmt: skip


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """The canonical name of a function, method or operator, given the name as it is spelled."""
    if name in _SYNONYMS:
        return _SYNONYMS[name]
    if name.startswith("__") and name.endswith("__") and len(name) > 4:
        name = name[2:-2]
    else:
        name = name.strip("_") or name
    return _SYNONYMS.get(name, name)
