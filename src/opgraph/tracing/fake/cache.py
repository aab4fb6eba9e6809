"""The fake-call cache: what an operator gives on fake tensors is known from the first call with such
arguments. A model does the same calls in each of its layers, and torch takes most of a forward on fake
tensors to find out what they give; here the results of a call that was seen before are made again from
what they looked like. What is known stays for the models that the process traces next.

This leans on what torch keeps to itself (how a fake tensor holds its storage, what says that an operator
depends on more than shapes): `OPGRAPH_FAKE_CALL_CACHE=0` in the environment switches it off."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Number
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import flop_counter

from opgraph.costs.count import Operator, describe, packed, tfloat32
from opgraph.costs.registry import contractions, formulas
from opgraph.record.graph import Kernel
from opgraph.record.identity import identity
from opgraph.tracing.fake.tensors import CPU, META, around
from opgraph.tracing.fake.types import is_told

_UNPREDICTABLE = frozenset(
    {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output, torch.Tag.inplace_view}
)


@dataclass(frozen=True, slots=True)
class Result:
    """A tensor that came out: `argument` is the position, among the tensors that went in, of the one
    whose memory it shares, None where the memory is its own; `same` where it is that very tensor.
    `offset` is counted from where that tensor begins, in elements, like the strides."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    argument: int | None = None
    same: bool = False
    offset: int = 0


@dataclass(frozen=True, slots=True)
class CachedCall:
    """What a call gave: one result or several (None where it gave no tensor), and what it cost."""

    container: type | None
    results: tuple[Result | None, ...]
    kernel: Kernel

    def repeat(self, tensors: list[Tensor], mode: FakeTensorMode) -> Any:
        """The results for other tensors that look the same."""
        if self.container is None:
            return _made(self.results[0], tensors, mode)
        return self.container([_made(result, tensors, mode) for result in self.results])


@dataclass(frozen=True, slots=True)
class CachedFunction:
    """What a call of a torch function gave, and which kernels it came down to. `storages` are those that
    they made: bytes, the numbers of kernels (from the function's first) at which each was made and freed,
    and, of one that lives on, the position of the result that it is in. `writes` are the positions of the
    tensors whose memory it wrote to. `arguments` is what is shown of its arguments, and `looks` what is
    known of its results (see `ValueTable.add`). Most give one tensor with memory of its own and do nothing
    else: that is `alone`."""

    call: CachedCall
    kernels: tuple[Kernel, ...]
    storages: tuple[tuple[int, int, int, int | None], ...]
    writes: tuple[int, ...]
    arguments: str = ""
    looks: tuple[Any, ...] = ()
    alone: Result | None = None


SWITCH = "OPGRAPH_FAKE_CALL_CACHE"
_MOST_CALLS = 1 << 16
"""So many different calls are known at most: about 100 MB."""


@dataclass(frozen=True, slots=True)
class FakeCallCache:
    """What is known from earlier calls: operators (and whether their results can be told), what calls
    that look the same cost, what they gave, how many bytes they take on real tensors, which of them give
    small tensors from real ones, and what calls of torch functions gave. Without `calls_known`, every call
    is made and costed anew."""

    operators: dict[Any, tuple[Operator, bool]] = field(default_factory=dict)
    costs: dict[Any, Kernel] = field(default_factory=dict)
    calls: dict[Any, CachedCall] = field(default_factory=dict)
    sizes: dict[Any, int] = field(default_factory=dict)
    small: set[Any] = field(default_factory=set)
    functions: dict[Any, CachedFunction] = field(default_factory=dict)
    calls_known: bool = True

    def operator(self, func: Any) -> tuple[Operator, bool]:
        """What is known of an operator before any call, and whether its results can be told."""
        known = self.operators.get(func)
        if known is None:
            known = describe(func), self.calls_known and predictable(func)
            self.operators[func] = known
        return known


_CACHES: dict[tuple[Any, ...], FakeCallCache] = {}


def fake_call_cache() -> FakeCallCache:
    """What is known under the settings of the process that results and costs can depend on; of calls,
    nothing where the environment says so."""
    if os.environ.get(SWITCH) == "0":
        return FakeCallCache(calls_known=False)
    known = (
        len(t) for m in _CACHES.values() for t in (m.costs, m.calls, m.sizes, m.small, m.functions)
    )
    if sum(known) > _MOST_CALLS:
        _CACHES.clear()
    settings = (
        torch.get_default_dtype(),
        torch.is_inference_mode_enabled(),
        torch.backends.mkldnn.enabled,
        torch.are_deterministic_algorithms_enabled(),
        torch.compiler._is_compiling_flag,
        torch.compiler._is_exporting_flag,
        tfloat32(),
        (*flop_counter.flop_registry.values(), len(formulas), len(contractions)),  # can be added to
    )
    return FakeCallCache() if _replaced() else _CACHES.setdefault(settings, FakeCallCache())


class _Called:
    """Functions of torch in a table of names, as they were when opgraph was imported."""

    def __init__(self, table: Mapping[str, Any], names: Iterable[str]) -> None:
        self._table = table
        self._before = {name: table[name] for name in names if name in table}
        self._missing = frozenset(names) - self._before.keys()
        self._last: tuple[list[Any], bool] = [], False

    def replaced(self) -> bool:
        """Whether somebody has put another one in the place of one of them. Of a table in which there is
        what there was at the last look, in the same order, it is known."""
        table, before, (values, replaced) = self._table, self._before, self._last
        with suppress(Exception):  # something cannot be compared
            if [*table.values()] == values:
                return replaced
        found = [(table.get(n), before.get(n)) for n in (*before, *self._missing)]
        replaced = any(
            now is not was and _home(now) != _home(was) and _home(now)[0][:8] != "opgraph."
            for now, was in found
        )
        self._last = [*table.values()], replaced
        return replaced


_TORCH = (
    *(_Called(vars(m), [n for n, v in vars(m).items() if callable(v)])
      for m in (torch.nn.functional, torch._C._nn)),
    _Called(vars(torch), vars(torch).keys() & {
        *dir(torch._C._VariableFunctions), *torch.functional.__all__}),
    _Called(vars(Tensor), {**vars(torch._C.TensorBase), **vars(Tensor)}),
)  # fmt: skip
"""What torch's functions call by name: no `torch.save`, in whose place Ultralytics puts its own."""


def _replaced() -> bool:
    """Whether somebody has put another function in the place of one that torch's own call: what is known of
    those does not hold then, nor what is seen meanwhile afterwards. Torch itself wraps some later on, and
    opgraph what it hears."""
    return any(called.replaced() for called in _TORCH)


def _home(function: Any) -> tuple[str, str]:
    return str(getattr(function, "__module__", "")), str(getattr(function, "__qualname__", ""))


def predictable(func: Any) -> bool:
    """Whether the results of an operator can only depend on what its arguments look like, once these name
    places that are there (see `LOOKED_UP`)."""
    name = func.name() if isinstance(func, torch._ops.OpOverload) else ""
    return (
        name.startswith(("aten::", "quantized::"))
        and "as_strided" not in name  # the offset it takes is not counted from its argument
        and _UNPREDICTABLE.isdisjoint(func.tags)
    )


def looks(items: Iterable[Any], tensors: list[Tensor]) -> tuple[Any, ...]:
    """What of some arguments their results and costs can depend on; their tensors are added to
    `tensors`, in order. Raises TypeError or RuntimeError for what cannot be compared so (symbolic or
    ragged sizes, sparse layouts, tensors whose value is known, objects in C but for packed weights), and
    for what is no value: a function, which may do otherwise the next time, and would be kept; or tensors of
    a class that itself says what functions of torch do."""
    parts: list[Any] = []
    for item in items:
        cls = type(item)
        if cls is FakeTensor:
            if item.constant is not None:
                raise TypeError
            tensors.append(item)
            parts.append((item.shape, item.stride(), item.dtype, item._fake_device))
        elif cls is int or cls is str:
            parts.append(item)
        elif isinstance(item, Tensor):
            if is_told(cls):
                raise TypeError  # its class may do otherwise the next time
            tensors.append(item)
            parts.append((cls, item.shape, item.stride(), item.dtype))
        elif isinstance(item, torch.ScriptObject):
            known = packed(item)
            if known is None:
                raise TypeError  # nothing says what is in it
            parts.append(known)
        elif isinstance(item, (list, tuple)):
            parts.append(looks(item, tensors))
        elif cls in _VALUES or isinstance(item, Number):
            parts.append((cls, item))  # 1, 1.0 and True are equal
        else:
            raise TypeError
    return tuple(parts)


_VALUES = frozenset({float, bool, type(None), complex, bytes, torch.dtype, torch.device, torch.layout,
                     torch.memory_format, type(...)})  # fmt: skip


def identities(tensors: list[Tensor]) -> tuple[int, ...]:
    """Which of some tensors are the same one; nothing where none is."""
    if len(tensors) == 2 and tensors[0] is not tensors[1]:
        return ()
    if len(set(map(identity, tensors))) == len(tensors):
        return ()
    ids = [identity(t) for t in tensors]
    return tuple(map(ids.index, ids))


def cached_call(tensors: list[Tensor], out: Any, kernel: Kernel) -> CachedCall | None:
    """What to remember of a call that has returned; None where its results could not be made again."""
    container = type(out) if isinstance(out, (list, tuple)) else None
    if container not in (None, list, tuple) or not all(
        _plain(t) or _a_number_like(t, tensors) for t in tensors
    ):
        return None
    results: list[Result | None] = []
    fresh: set[int] = set()
    for item in (out,) if container is None else out:
        if item is None:
            results.append(None)
            continue
        result = _seen(item, tensors) if type(item) is FakeTensor and _plain(item) else None
        if result is None:
            return None
        if result.argument is None:
            storage = item.untyped_storage()
            if storage._cdata in fresh or storage.nbytes() != _extent(result):
                return None
            fresh.add(storage._cdata)
        results.append(result)
    return CachedCall(container, tuple(results), kernel)


def _plain(tensor: Tensor) -> bool:
    """Whether shape, strides and dtype say all that there is to say of a tensor."""
    if type(tensor) is FakeTensor:
        if tensor.constant is not None or tensor.fake_device != CPU:
            return False
    elif type(tensor) is not Tensor or not tensor.dim():
        return False  # a number in a tensor is a number to type promotion
    return (
        tensor.layout is torch.strided
        and not tensor.dtype.is_complex
        and not tensor.is_quantized
        and not tensor.is_neg()
        and all(type(n) is int for n in (*tensor.shape, *tensor.stride()))
    )


def _a_number_like(tensor: Tensor, tensors: list[Tensor]) -> bool:
    """Whether a real tensor is one number of the type of a tensor beside it: then it makes no difference to
    type promotion whether it stands for a number of Python's, which cannot be seen."""
    return (
        type(tensor) is Tensor
        and not tensor.dim()
        and any(t.dim() and t.dtype == tensor.dtype for t in tensors)
    )


def _seen(item: Tensor, tensors: list[Tensor]) -> Result | None:
    look = (tuple(item.shape), item.stride(), item.dtype)
    key = item.untyped_storage()._cdata
    for position, tensor in enumerate(tensors):
        if item is tensor:
            return Result(*look, position, same=True)
    sharing = [
        (position, tensor)
        for position, tensor in enumerate(tensors)
        if type(tensor) is FakeTensor and tensor.untyped_storage()._cdata == key
    ]
    if not sharing:
        return Result(*look) if item.storage_offset() == 0 else None
    position, tensor = sharing[0]
    if len(sharing) > 1 or tensor.dtype != item.dtype:
        return None
    return Result(*look, position, offset=item.storage_offset() - tensor.storage_offset())


def _extent(result: Result) -> int:
    """The bytes of memory that a tensor with these strides needs."""
    if 0 in result.shape:
        return 0
    last = sum((n - 1) * step for n, step in zip(result.shape, result.strides, strict=True))
    return int((last + 1) * result.dtype.itemsize)


def anew(result: Result, mode: FakeTensorMode) -> FakeTensor:
    """A result with memory of its own."""
    meta = _empty(result.shape, result.strides, dtype=result.dtype, device=META)
    return around(meta, mode)


_empty = torch.empty_strided


def _made(result: Result | None, tensors: list[Tensor], mode: FakeTensorMode) -> Tensor | None:
    if result is None:
        return None
    if result.argument is None:
        return anew(result, mode)
    argument = tensors[result.argument]
    if result.same:
        return argument
    meta = torch.empty(0, dtype=result.dtype, device="meta")
    offset = argument.storage_offset() + result.offset
    meta.set_(argument.untyped_storage(), offset, result.shape, result.strides)
    return around(meta, mode)
