"""From one call of an ATen operator to its `Kernel`: category, FLOPs, bytes, and where they come from."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import flop_counter
from torch.utils._pytree import tree_map_only

from opgraph.costs import formulas as _formulas  # noqa: F401  (they register)
from opgraph.costs.collectives import COLLECTIVES, collective_of, product_of, written_by
from opgraph.costs.formulas.linalg import (
    NESTED_PRODUCTS,
    SPARSE,
    nested_product,
    sparse_product,
    stored,
)
from opgraph.costs.registry import (
    Call,
    Contraction,
    Formula,
    Sizes,
    Traffic,
    contractions,
    first_input,
    first_output,
    formulas,
    traffic,
)
from opgraph.record.graph import Kernel

_VIEWS_IN_ALL_BUT_SCHEMA = frozenset(
    "aten._unsafe_view aten._reshape_alias aten.unsafe_split aten.unsafe_split_with_sizes "
    "aten.unsafe_chunk aten.lift_fresh aten._conj aten._neg_view aten.view_as_real "
    "aten.view_as_complex aten.detach_ aten.unsqueeze_ aten.squeeze_ aten.transpose_ aten.t_ "
    "aten.as_strided_ aten.swapaxes_ aten.swapdims_ aten.requires_grad_ aten._version "
    "aten.record_stream aten._linalg_check_errors aten._assert_async aten._assert_scalar "
    "aten._assert_tensor_metadata fsdp.record_grad_output_stream "
    "aten._functional_assert_async aten.is_same_size aten._has_same_storage_numel "
    "aten._is_zerotensor aten.is_coalesced aten.sparse_dim aten.dense_dim "
    "aten._nested_view_from_buffer aten._nested_view_from_jagged "
    "aten._nested_get_offsets aten._nested_get_values aten._nested_get_lengths "
    "aten._nested_tensor_size aten._nested_tensor_strides aten._nested_tensor_storage_offsets "
    "aten._nested_get_jagged_dummy aten._nested_get_ragged_idx aten._nested_get_min_seqlen "
    "aten._nested_get_max_seqlen aten.sparse_compressed_tensor aten._sparse_compressed_tensor_unsafe "
    "aten._sparse_csr_tensor_unsafe aten._sparse_csc_tensor_unsafe aten._sparse_bsr_tensor_unsafe "
    "aten._sparse_bsc_tensor_unsafe aten._sparse_coo_tensor_unsafe "
    "aten._sparse_coo_tensor_with_dims_and_tensors".split()
)
_POINTWISE = Formula("elementwise", first_output, "torch.Tag.pointwise: one operation an element")
_REDUCTION = Formula("reduction", first_input, "torch.Tag.reduction: one operation an element")
Answer = TypeVar("Answer")
_MISFITS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RuntimeError,
)
"""What a formula raises that does not fit a call."""
_CONTRACTION_CATEGORIES = (
    ("attention", "attention"),
    ("convolution", "convolution"),
    ("conv", "convolution"),
)


@dataclass(frozen=True, slots=True)
class Operator:
    """What is known of an operator before any call: found once, used at every call."""

    func: Any
    name: str
    zero: bool
    contraction: Contraction | None
    category: str
    formula: Formula | None
    traffic: Traffic | None
    mutated: frozenset[str]


def describe(func: Any) -> Operator:
    """Look an `OpOverload` up in the registries. An in-place operator does the work of its functional
    twin (`addmm_`, `addmm`)."""
    packet = getattr(func, "_overloadpacket", func)
    name = f"{getattr(func, 'namespace', '')}.{packet.__name__}"
    twin = _functional(packet, name)
    count = flop_counter.flop_registry.get(packet) or flop_counter.flop_registry.get(twin)
    found = formulas.get(name) or formulas.get(name.removesuffix("_"))
    zero = bool(getattr(func, "is_view", False)) or name in _VIEWS_IN_ALL_BUT_SCHEMA
    category = "other"
    if name in COLLECTIVES:
        return Operator(func, name, zero, None, "collective", None, None, frozenset())
    own = contractions.get(name.removesuffix("_"))
    if own is not None:
        category = own.category
        count = own.count if own.raw else flop_counter.shape_wrapper(own.count)
    elif count is not None:
        category = next((c for word, c in _CONTRACTION_CATEGORIES if word in name), "matmul")
    elif found is None:
        found = _foreach(name) or _by_tag(func, twin)
    if zero:
        category = "view"
    elif count is None and found is not None:
        category = found.category
    return Operator(
        func, name, zero, count, category, found, traffic.get(name), _mutated_names(func)
    )


def _foreach(name: str) -> Formula | None:
    """The formula of an operator on lists: that of the same on one tensor, for each of the first list."""
    if not name.startswith("aten._foreach_"):
        return None
    single = name.removeprefix("aten._foreach_").removesuffix("_")
    packet = getattr(torch.ops.aten, single, None)
    of_one = formulas.get(f"aten.{single}") or (packet and _by_tag(None, packet))
    if not of_one:
        return None

    def work(call: Call) -> int:
        shapes = [sizes_of(t) for t in call.args[0]]
        return sum(of_one.work(Call((s,), (s,), (s,))) for s in shapes)

    return Formula(of_one.category, work, of_one.source)


def _functional(packet: Any, name: str) -> Any:
    if not name.endswith("_") or name.endswith("__"):
        return packet
    namespace = getattr(torch.ops, name.partition(".")[0])
    return getattr(namespace, packet.__name__[:-1], packet)


def _by_tag(func: Any, twin: Any) -> Formula | None:
    """A formula from what torch itself says of an operator: pointwise, or a reduction."""
    tags = set(getattr(func, "tags", ()))
    if hasattr(twin, "overloads"):
        tags.update(*(getattr(twin, overload).tags for overload in twin.overloads()))
    if torch.Tag.pointwise in tags:
        return _POINTWISE
    if torch.Tag.reduction in tags:
        return _REDUCTION
    return None


def _mutated_names(func: Any) -> frozenset[str]:
    schema = getattr(func, "_schema", None)
    return frozenset(
        a.name
        for a in (schema.arguments if schema is not None else ())
        if a.alias_info is not None and a.alias_info.is_write
    )


def tensors_of(arguments: Any) -> list[Tensor]:
    """All tensors among arguments, in order, through lists and tuples."""
    found: list[Tensor] = []
    for item in arguments:
        if isinstance(item, Tensor):
            found.append(item)
        elif isinstance(item, (list, tuple)):
            found.extend(tensors_of(item))
    return found


class Packed:
    """An object that torch's quantized layers keep a weight and a bias in. What is asked of these is
    remembered as long as it is there: to unpack them takes as long as a small model does."""

    def __init__(self, item: Any, key: int) -> None:
        self._item = weakref.ref(item, partial(_PACKED.pop, key))
        self._answers: dict[Any, tuple[Any, ...]] = {}

    def each(self, ask: Callable[[Tensor], Answer]) -> tuple[Answer, ...]:
        """What `ask` gives of the weight, and of the bias."""
        if ask not in self._answers:
            self._answers[ask] = tuple(map(ask, tensors_of(self._item().unpack())))  # type: ignore[union-attr]
        return self._answers[ask]


_PACKED: dict[int, Packed] = {}
"""By the address of an object in C, of which Python makes others as often as it is asked for."""


def packed(item: Any) -> Packed | None:
    """What is known of such an object; None of anything else."""
    if not issubclass(type(item), torch.ScriptObject):
        return None
    key = hash(item)
    known = _PACKED.get(key)
    if known is None and getattr(item, "unpack", None) is not None:
        known = _PACKED[key] = Packed(item, key)
    return known


@cache
@cache
def dtype_name(dtype: Any) -> str:
    """ "float32" for torch.float32."""
    return str(dtype).rpartition(".")[2]


def touched_bytes(tensor: Tensor) -> int:
    """The bytes that a tensor's elements occupy: an expanded dimension is there once."""
    try:
        if tensor.is_nested and tensor.layout is torch.strided:
            return int(tensor.numel() * tensor.element_size())
        sizes = tensor.shape
        if tensor.layout is torch.strided:
            elements = prod(
                n for n, step in zip(sizes, tensor.stride(), strict=True) if step or not n
            )
        elif tensor.layout is not torch.jagged:
            return sum(map(touched_bytes, stored(tensor)))
        else:
            elements = tensor.numel()
        return int(elements) * int(tensor.element_size())
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        return 0


def sizes_of(tensor: Tensor) -> tuple[int, ...]:
    """The shape as plain numbers; a ragged dimension of a jagged tensor is taken as 0, and tensors that are
    nested in another are taken as one row."""
    try:
        sizes = tuple(tensor.shape)
    except RuntimeError:
        return (tensor.numel(),) if tensor.is_nested else ()
    if _NUMBERS.issuperset(map(type, sizes)):
        return sizes
    return tuple(n if type(n) is int else 0 for n in sizes)


_NUMBERS = frozenset({int})


def cost(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Kernel:
    """The kernel of one call.

    Raises nothing: where a formula does not fit the call, the kernel's cost is "unknown".
    """
    inputs = tensors_of((*args, *kwargs.values()))
    results = tensors_of((out,))
    if any(t.is_nested for t in inputs) and not operator.zero:
        return _of_each(operator, args, kwargs, out)
    dtype = next(
        (t.dtype for t in (*inputs, *results) if t.dtype.is_floating_point or t.dtype.is_complex),
        next((t.dtype for t in (*inputs, *results)), None),
    )
    shapes = tuple(map(sizes_of, inputs))
    out_shapes = tuple(map(sizes_of, results))
    label = dtype_name(dtype) if dtype is not None else ""
    if operator.zero:
        return Kernel(
            operator.name, "view", label, cost="zero", shapes=shapes, out_shapes=out_shapes
        )
    if operator.category == "collective":
        named = by_name(operator, args, kwargs)
        into = tensors_of((written_by(operator.name, named),))
        written = sum(map(touched_bytes, into or results))
        read = sum(touched_bytes(t) for t in inputs if all(t is not i for i in into)) or written
        found = collective_of(operator.name, named, results)
        if (product := product_of(operator.name, named)) is not None:
            *operands, given = map(tuple, product)
            return Kernel(operator.name, "matmul", label, 2 * prod(given) * product[0][1], 0, read, written,
                          "formula", tuple(operands), (given,), found)  # fmt: skip
        return Kernel(operator.name, "collective", label, read=read, written=written, shapes=shapes,
                      out_shapes=out_shapes, collective=found)  # fmt: skip
    call = None
    if operator.formula is not None or operator.traffic is not None:
        numbers = shapes, out_shapes
        if any(t.layout in SPARSE for t in (*inputs, *results)):
            numbers = tuple(map(_numbers, inputs)), tuple(map(_numbers, results))
        call = Call(_positional(operator.func, args, kwargs), *numbers)
    read, written = _traffic(operator, args, kwargs, inputs, results, call)
    flops = other = 0
    known = True
    category = operator.category
    try:
        if operator.contraction is not None:
            if any(t.layout in SPARSE for t in inputs):
                flops = sparse_product(operator.name, inputs)
            else:
                flops = int(operator.contraction(*args, **kwargs, out_val=out))
            if sum(t.dtype.is_complex for t in inputs) > 1:
                flops *= 4  # a complex product is four real ones
            category = _convolution_kind(category, operator.func, args)
        elif operator.formula is not None and call is not None:
            other = int(operator.formula.work(call))
        else:
            known = False
    except _MISFITS:
        known = False
    return Kernel(
        operator.name,
        category,
        label,
        flops,
        other,
        read,
        written,
        "formula" if known else "unknown",
        shapes,
        out_shapes,
        compute_dtype="tfloat32" if label == "float32" and category in tfloat32() else "",
        causal=_causal(operator, args, kwargs) if category == "attention" else None,
    )


def _causal(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | None:
    """Whether a causal mask leaves out pairs of what is called, where that is asked for by name."""
    if "scaled_dot_product" not in operator.name:
        return None
    return bool(by_name(operator, args, kwargs).get("is_causal"))


def tfloat32() -> tuple[str, ...]:
    """The categories whose products of float32 torch computes in TensorFloat-32 now, where a device has
    such units: recurrent layers and convolutions unless it is told otherwise, matrix products where it is
    told so (`fp32_precision` of torch.backends.cudnn and torch.backends.cuda.matmul)."""
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    found = {
        "convolution": cudnn.conv, "grouped_convolution": cudnn.conv, "recurrent": cudnn.rnn,
        "matmul": products,
    }  # fmt: skip
    return tuple(name for name, place in found.items() if place.fp32_precision == "tf32")


def _of_each(operator: Operator, args: Any, kwargs: Any, out: Any) -> Kernel:
    """The kernel of a call with nested tensors (not jagged ones, which are computed on as one tensor): what
    it costs for each tensor in them, added up. What they have in common is read, and written, once."""

    def nth(at: int, tree: Any) -> Any:
        return tree_map_only(Tensor, lambda t: parts[id(t)][at] if t.is_nested else t, tree)

    with torch._C.DisableTorchFunction():
        nested = [t for t in tensors_of((*args, *kwargs.values(), out)) if t.is_nested]
        parts = {id(t): t.unbind() for t in nested}
        each = []
        for at in range(len(parts[id(nested[0])])):
            given = nth(at, args), nth(at, kwargs)
            kernel = cost(operator, *given, nth(at, out))
            if operator.name in NESTED_PRODUCTS:
                flops = nested_product(operator.name, given[0])
                kernel = replace(kernel, flops=flops, category="matmul", cost="formula")
            each.append(kernel)
    again = len(each) - 1
    total = {
        n: sum(getattr(k, n) for k in each) for n in ("flops", "other_flops", "read", "written")
    }
    for kind, tensors in (
        ("read", tensors_of((*args, *kwargs.values()))),
        ("written", tensors_of((out,))),
    ):
        total[kind] -= again * sum(touched_bytes(t) for t in tensors if not t.is_nested)
    known = all(k.cost != "unknown" for k in each)
    return replace(
        each[0],
        **total,
        cost="formula" if known else "unknown",
        shapes=((),) * (len(nested)),
        out_shapes=(),
    )


def _numbers(tensor: Tensor) -> Sizes:
    """The shape of what is computed on: of a sparse tensor, the values it stores."""
    return sizes_of(stored(tensor)[-1] if tensor.layout in SPARSE else tensor)


def _convolution_kind(category: str, func: Any, args: tuple[Any, ...]) -> str:
    """Convolutions with one channel a group are bound by other things than dense ones."""
    if category != "convolution":
        return category
    named = {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)}
    weight = named.get("weight")
    if named.get("groups", 1) == 1 or not isinstance(weight, Tensor):
        return category
    return "depthwise_convolution" if weight.shape[1] == 1 else "grouped_convolution"


def _positional(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments by the order of the schema, with shapes for tensors and defaults filled in."""
    schema = getattr(func, "_schema", None)
    names = schema.arguments[len(args) :] if schema is not None else ()
    rest = (kwargs.get(a.name, a.default_value) for a in names)
    return tuple(sizes_of(a) if isinstance(a, Tensor) else a for a in (*args, *rest))


def _traffic(
    operator: Operator,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    inputs: list[Tensor],
    results: list[Tensor],
    call: Call | None,
) -> tuple[int, int]:
    """Bytes read and written: every input once, every result once, an in-place result once."""
    sizes = [touched_bytes(t) for t in inputs]
    written = sum(map(touched_bytes, results))
    if operator.traffic is not None and call is not None:
        with suppress(*_MISFITS):
            return operator.traffic(sizes, written, call)
    if operator.mutated:
        mutated = _mutated(operator, args, kwargs)
        fresh = [t for t in results if all(t is not m for m in mutated)]
        out = tensors_of([kwargs.get("out")])  # what was in it is not read
        read = sum(s for t, s in zip(inputs, sizes, strict=True) if all(t is not o for o in out))
        return read, sum(map(touched_bytes, [*mutated, *fresh]))
    kept = [sum(p.each(touched_bytes)) for p in map(packed, args) if p is not None]
    return sum(sizes) + sum(kept), written


def _mutated(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    named = by_name(operator, args, kwargs)
    return tensors_of([named.get(name) for name in operator.mutated])


def by_name(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names that the schema gives them."""
    schema = operator.func._schema.arguments
    return {a.name: value for a, value in zip(schema, args, strict=False)} | kwargs
