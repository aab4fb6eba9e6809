"""The capture of kernels: a dispatch mode that all tracers share. It sees every ATen operator that
really runs, notes what it costs, and follows the memory that is made and freed."""

from __future__ import annotations

import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from math import prod
from types import BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._higher_order_ops.scan import generic_scan
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from opgraph.costs.collectives import written_by
from opgraph.costs.count import Operator, by_name, cost, tensors_of
from opgraph.costs.formulas.linalg import SPARSE, stored
from opgraph.record.errors import first_line
from opgraph.record.graph import Kernel, Storage, maker
from opgraph.record.identity import identity
from opgraph.record.remarks import Remark
from opgraph.record.turns import replaced
from opgraph.sources.ranks import (
    current,
    exchange_alike,
    finished,
    is_fake_work,
    is_pretended,
    is_spread,
    works_of,
)
from opgraph.sources.weightless import INDEXED, places_for_masks
from opgraph.tracing.fake.cache import (
    CachedFunction,
    Result,
    anew,
    cached_call,
    fake_call_cache,
    identities,
    looks,
)
from opgraph.tracing.fake.tensors import (
    BY_VALUES,
    LOOKED_UP,
    META,
    REAL_LIMIT,
    check_places,
    fake,
    needs_values,
)
from opgraph.tracing.state.guard import Guard
from opgraph.tracing.state.signals import ASKED, DROPPED
from opgraph.tracing.state.tensors import UNDECLARED

# The memory that is made and freed while a model is recorded, in numbers of kernels.


class MemoryLog:
    """Follows storages: when each was made and freed, in numbers of `kernels`; `live` bytes are there
    now."""

    def __init__(self, kernels: list[Kernel]) -> None:
        self._kernels = kernels
        self._index: dict[int, int] = {}
        self._references: list[Any] = []
        self.bytes: list[int] = []
        self.born: list[int] = []
        self.died: list[int | None] = []
        self.owner: list[int | None] = []
        self._made: list[bool] = []
        self.live = 0
        self.anew: dict[int, int] = {}  # the storages that came after others in the same place
        self._weights: dict[int, Any] = {}
        self._alike: list[int] = []

    def ignore(self, tensor: Tensor) -> None:
        """The storage of a weight: it is not an activation, as another one may be that comes to its place
        once it is freed."""
        for part in stored(tensor):
            with suppress(NotImplementedError, RuntimeError):
                _mark(self._weights, part.untyped_storage())

    def find(self, tensor: Tensor) -> int | None:
        """The index of the storage of a tensor that is known."""
        key = storage_key(tensor)
        return None if key is None else self._index.get(key)

    def made(self, tensor: Tensor) -> bool:
        """Whether a kernel of this run made the storage of a tensor."""
        index = self.find(tensor)
        return index is not None and self._made[index]

    def see(self, tensor: Tensor, born: int, *, made: bool = False) -> int | None:
        """The index of the tensor's storage, noting it as made by the kernel `born` if it is new; if that
        is known and not only that it is there since, it was `made`.

        None for weights and for tensors without a storage; of a sparse one, that of its values.
        """
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            parts = stored(tensor)
            return [self.see(p, born, made=made) for p in parts][-1] if len(parts) > 1 else None
        key = storage._cdata
        index = self._index.get(key)
        if index is not None or key in self._weights:
            return index
        return self._add(storage, key, storage.nbytes(), born, made)

    def _add(
        self, storage: torch.UntypedStorage, key: int, size: int, born: int,
        made: bool, owner: int | None = None,
    ) -> int:  # fmt: skip
        reference = _Held(storage, self._freed)
        reference.key = key
        index = self._index[key] = len(self.bytes)
        self.bytes.append(size)
        self.born.append(born)
        self.died.append(None)
        self.owner.append(owner)
        self._made.append(made)
        self._references.append(reference)
        self.live += size
        return index

    def _freed(self, reference: _Held) -> None:
        last = self._index.pop(reference.key, None)
        if last is not None:
            self._end(last)
            self._references[last] = _gone

    def _end(self, index: int) -> None:
        if self.died[index] is None:
            self.live -= self.bytes[index]
            self.died[index] = len(self._kernels)

    def drop(self, known: int, kernel: int) -> None:
        """What was seen since so many storages were known is no part of the run: it takes nothing."""
        for index in range(known, len(self.bytes)):
            self._end(index)
            self.bytes[index], self.born[index], self.died[index] = 0, kernel, kernel

    def resized(self, storage: torch.UntypedStorage) -> None:
        """A storage that is known has another size from now on: what it had is gone, and what it has is
        new."""
        key = storage._cdata
        index = self._index.get(key)
        size = storage.nbytes()
        if index is None or self.bytes[index] == size:
            return
        self._end(index)
        self.anew[index] = self._add(
            storage, key, size, len(self._kernels), self._made[index], self.owner[index]
        )
        self._references[-1] = _gone  # the first one is told when it is freed

    def since(
        self, index: int, kernel: int, results: Sequence[Tensor]
    ) -> tuple[tuple[int, int, int, int | None], ...] | None:
        """The storages from `index` on, made from the kernel `kernel` on (see `CachedFunction`); None where
        one of them lives on and is in no result."""
        found: list[tuple[int, int, int, int | None]] = []
        places = {self.find(t): place for place, t in enumerate(results)}
        for i in range(index, len(self.bytes)):
            died, place = self.died[i], places.get(i)
            if not self._made[i] or (died is None and place is None):
                return None
            end = 0 if died is None else died - kernel
            found.append(
                (self.bytes[i], self.born[i] - kernel, end, None if died is not None else place)
            )
        return tuple(found)

    def again(
        self,
        storages: Iterable[tuple[int, int, int, int | None]],
        kernel: int,
        results: Sequence[Tensor],
        owner: int,
    ) -> list[int | None]:
        """The same storages for kernels from `kernel` on; of each result, which the record `owner` gives,
        the index of the one that is new in it."""
        fresh: list[int | None] = [None] * len(results)
        for size, born, died, place in storages:
            if place is not None:
                storage = results[place].untyped_storage()
                key, start = storage._cdata, kernel + born
                fresh[place] = self._add(storage, key, size, start, made=True, owner=owner)
                continue
            self.bytes.append(size)
            self.born.append(kernel + born)
            self.died.append(kernel + died)
            self.owner.append(None)
            self._made.append(True)
            self._references.append(_gone)
        return fresh

    def alike(self, storages: range, later: int) -> None:
        """Storages as those are, made so many kernels `later`; what lives on does so until `end_alike`."""
        for like in storages:
            died = self.died[like]
            if died is None:
                self._alike.append(len(self.bytes))
                self.live += self.bytes[like]
            self.bytes.append(self.bytes[like])
            self.born.append(self.born[like] + later)
            self.died.append(None if died is None else died + later)
            self.owner.append(None)
            self._made.append(True)
            self._references.append(_gone)

    def end_alike(self) -> None:
        """What was made alike is freed."""
        for storage in self._alike:
            self._end(storage)
        self._alike.clear()

    def close(self) -> tuple[Storage, ...]:
        """All storages, as they are now; their nodes are numbered from 1."""
        end = len(self._kernels)  # a branch that was not kept had kernels that are no more
        born = [min(b, end) for b in self.born]
        died = [None if d is None else min(d, end) for d in self.died]
        nodes = [None if owner is None else owner + 1 for owner in self.owner]
        return tuple(map(_storage, self.bytes, born, died, nodes))

    def fakes(self) -> list[Any]:
        """Weak references to the storages of fake tensors that kernels of this run have made and that are
        there still."""
        alive = (
            (r, r())
            for r, made, d in zip(self._references, self._made, self.died, strict=False)
            if made and d is None
        )
        return [r for r, storage in alive if storage is not None and storage.device.type == "meta"]


DROPPED.update((MemoryLog._freed.__code__, MemoryLog._end.__code__))

_storage = maker(Storage)


class _Held(weakref.ref[Any]):
    """A reference to a storage that is followed, which knows what that was known by."""

    __slots__ = ("key",)
    key: int


def _gone() -> None:
    """The reference to a storage that was freed before anybody could ask."""


def storage_key(tensor: Tensor) -> int | None:
    """What the storage of a tensor is known by, of a sparse one that of its values; None where it has
    none."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        parts = stored(tensor)
        return storage_key(parts[-1]) if len(parts) > 1 else None


_WORTH_A_LOOK = 2048
"""Elements of the largest input from which on the size of a result is found out before it is made."""

_NO_KERNELS = frozenset(
    "prim.device prim.layout aten.size aten.sym_size aten.sym_stride aten.sym_numel "
    "aten.stride aten.is_contiguous aten.dim aten.sym_storage_offset aten.storage_offset "
    "aten.numel aten.is_strides_like_format aten.is_non_overlapping_and_dense "
    "aten._assert_tensor_metadata aten._assert_scalar aten.sym_constrain_range "
    "aten.sym_constrain_range_for_size profiler._record_function_enter_new "
    "profiler._record_function_exit".split()
)

_WITH_BODIES = frozenset(
    "cond while_loop while_loop_stack_output scan associative_scan map_impl switch invoke_subgraph "
    "hints_wrapper out_dtype auto_functionalized auto_functionalized_v2".split()
)
"""Higher-order operators that come down to others which run one by one."""


def has_bodies(func: Any) -> bool:
    """Whether a function is an operator that runs others, which are given to it as functions."""
    return isinstance(func, HigherOrderOperator) and func._name in _WITH_BODIES


_is_grad_enabled, _default_dtype = torch.is_grad_enabled, torch.get_default_dtype
_is_any_autocast_enabled = torch._C._is_any_autocast_enabled
_depth = torch._C._len_torch_dispatch_stack
_MODES = DispatchKey.Python
_is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
_exclude = torch._C._dispatch_tls_set_dispatch_key_excluded

OF_MANY = ("aten._foreach_", "aten._fused_", "aten._amp_foreach_", "aten.lift_fresh")
"""Operators that an optimizer of many tensors calls once for all of them; the last brings a number."""

_DEVICE = torch.ops.prim.device.default

_WAITS = frozenset({"_c10d_functional.wait_tensor", "_c10d_functional._wrap_tensor_autograd"})
"""Wait for a collective, or say that it is to be waited for: what they give is what they are given, though
torch makes a fake one anew."""

ONE_DRAW = Remark(
    "branch",
    "forward asks for the values of random numbers that it draws, and may choose its way by them (layers "
    "left out at random, for instance): figures are those of one draw",
)
"""The remark on a run in which Python was told what was drawn."""

MADE_UP = Remark(
    "branch",
    "forward asks for values of inputs that are random integers, and may choose its way by them: figures "
    "are those of its way with these",
)
"""The remark on a run in which Python was told what is in inputs that were made up."""


BY_ARRAYS = Remark(
    "numpy",
    "forward takes values out of torch and brings arrays back: what NumPy computes between is in no total",
)
"""The remark on a run in which values came back as arrays."""


def _mark(storages: dict[int, Any], storage: torch.UntypedStorage) -> None:
    """Put a storage among others, for as long as it is there."""
    key = storage._cdata
    storages[key] = weakref.ref(storage, partial(storages.pop, key))


_MASKS = (torch.bool, torch.uint8)


@cache
def _draws(func: Any) -> bool:
    """Whether an operator draws random numbers and gives nothing else."""
    drawn = torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
    return drawn and "dropout" not in func.name()


_BROUGHT = torch.ops.aten.lift_fresh.default
"""What torch runs on a tensor that it made of something of Python's."""

_REDUCED = torch.ops.c10d.allreduce_.default

_BLANK = frozenset({
    torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default,
    torch.ops.aten.zeros.default,
})  # fmt: skip
"""Operators that make a buffer."""


def _for_exchange() -> bool:
    """Whether it is torch.distributed that calls: its buffers are for fake tensors."""
    frame = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith("torch.distributed"):
            return True
        if name.partition(".")[0] not in ("torch", "opgraph", "contextlib"):
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return False


Exchanged = tuple[int, Operator | None, tuple[Any, ...], dict[str, Any], Any]
"""A collective within a node: the position of its kernel, the operator, its arguments and its result; or,
without an operator, that of the first kernel that reads such a result."""


class KernelCapture(TorchDispatchMode):
    """Notes each kernel. `on_orphan`, while there is one, is called for a kernel that runs outside of any
    node."""

    supports_higher_order_operators = True

    def __init__(
        self,
        fake_mode: FakeTensorMode | None,
        guard: Guard | None = None,
    ) -> None:
        super().__init__()
        self.guard = guard
        self._interrupts = () if guard is None else guard.signals.waiting
        self.kernels: list[Kernel] = []
        self.memory = MemoryLog(self.kernels)
        self.writes: list[Tensor] = []
        self.notes: dict[str, None] = {}  # remarks, once each
        self.lacking: dict[int, str] = {}  # what went on for want of values, by its id
        self.in_node = self.in_hooks = False
        self.staying: list[Any] | None = None  # what is made for all weights at once
        self.spread = current() is not None
        self.exchanged: list[Exchanged] = []  # collectives of the node that runs
        self.lock: threading.RLock | None = None  # as soon as there are other threads
        self._home = threading.get_ident()
        self.over = False
        self.aside = False  # what runs is no part of the model
        self.fake_mode = fake_mode
        self.on_orphan: Callable[..., None] | None = None
        self._cache, self._dtype = fake_call_cache(), torch.get_default_dtype()
        self.works: list[Any] = []  # that somebody may ask for its result
        self._repeats: dict[Any, bool] = {}  # functions that may be known, as far as seen
        self._repeated = 0  # kernels that are known, and so can be made again
        self._unknown: dict[int, Any] = {}  # memory of real tensors that a fake one was written to
        self._drawn: dict[Remark, dict[int, Any]] = {}  # and of random numbers that have values
        self._shown: dict[int, Any] = {}  # and of those that an array shares
        self._left = False  # values left torch as arrays
        self._depth = torch._C._len_torch_dispatch_stack() + 1

    @contextmanager
    def among_ranks(self) -> Iterator[None]:
        """Within, memory is followed where weights are gathered and let go of again, which is by the size
        of a storage and by no operator, and what torch runs to find out how a result is spread is no part
        of the model."""
        from torch.distributed.tensor._sharding_prop import ShardingPropagator

        plain = torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            out = plain(storage, size)
            self.memory.resized(storage)
            return out

        with (
            replaced(torch.UntypedStorage, "resize_", resize_),
            replaced(ShardingPropagator, "_fake_mode_lock", _Aside(self)),
        ):
            yield

    def beside(self) -> _Aside:
        """Within, what runs is no part of what is recorded."""
        return _Aside(self)

    # Torch functions that were called before.

    def look(
        self, func: Any, args: Any, kwargs: Any
    ) -> tuple[Any, list[Tensor], CachedFunction | None]:
        """What a call of a torch function is known by, its tensors, and what such a call gave before; None
        where it cannot be known: where more decides than the arguments, or autograd follows."""
        repeats = self._repeats.get(func)
        if repeats is None:
            repeats = self._repeats[func] = (
                self.fake_mode is not None
                and self._cache.calls_known
                and func not in _BY_SETTINGS
                and _is_plain(func)
            )
        if (
            not repeats
            or _is_grad_enabled()
            or (_is_any_autocast_enabled() and torch.is_autocast_enabled("cpu"))
            or _default_dtype() is not self._dtype
            or _depth() != self._depth
        ):
            return None, [], None
        tensors: list[Tensor] = []
        try:
            given = looks(args, tensors)
            more = looks(kwargs.items(), tensors) if kwargs else ()
            key = (func, given, more, identities(tensors) if len(tensors) > 1 else ())
            return key, tensors, self._cache.functions.get(key)
        except (TypeError, RuntimeError, NotImplementedError):
            return None, [], None

    def look_alike(self, op: str, given: Sequence[Tensor]) -> Any:
        """What a run of something is known by that hangs on nothing but what these tensors look like; None
        where it cannot be known."""
        if self.fake_mode is None or not self._cache.calls_known or any(map(is_spread, given)):
            return None
        try:
            return op, looks(given, []), identities(list(given))
        except (TypeError, RuntimeError, NotImplementedError):
            return None

    def repeat(
        self, known: CachedFunction, tensors: list[Tensor], owner: int
    ) -> tuple[Any, list[int | None]]:
        """Give it again for the record `owner`, with the kernels and the memory that it takes; of each
        result the index of its memory where that is new."""
        first = len(self.kernels)
        with torch._C._DisableTorchDispatch():  # making a tensor is no kernel
            out = known.call.repeat(tensors, self.fake_mode)
        self.kernels += known.kernels
        self.writes += [tensors[place] for place in known.writes]
        results = (out,) if known.call.container is None else out
        return out, self.memory.again(known.storages, first, results, owner)

    def repeat_alone(
        self, known: CachedFunction, result: Result, owner: int
    ) -> tuple[Tensor, int | None]:
        """The same of what gives one tensor with memory of its own, in half of the time."""
        before = _is_excluded(_MODES)
        _exclude(_MODES, True)  # noqa: FBT003  (making a tensor is no kernel)
        try:
            out = anew(result, self.fake_mode)
        finally:
            _exclude(_MODES, before)
        first = len(self.kernels)
        self.kernels += known.kernels
        return out, self.memory.again(known.storages, first, (out,), owner)[0]

    def mark(self) -> tuple[int, int, int]:
        """Where a call begins: kernels, storages, and kernels that are known."""
        return len(self.kernels), len(self.memory.bytes), self._repeated

    def learn(
        self, key: Any, tensors: list[Tensor], out: Any, at: tuple[int, int, int]
    ) -> CachedFunction | None:
        """What a call gave, where nothing but its arguments decided it."""
        first, storages, repeated = at
        if len(self.kernels) == first:
            self._repeats[key[0]] = False
        if not 0 < len(self.kernels) - first == self._repeated - repeated:
            return None
        places = {identity(t): place for place, t in enumerate(tensors)}
        writes = tuple([places.get(identity(t), -1) for t in self.writes])
        call = cached_call(tensors, out, self.kernels[first])
        results = tensors_of((out,))
        made = self.memory.since(storages, first, results)
        if call is None or made is None or None in call.results or -1 in writes:
            return None
        return CachedFunction(call, tuple(self.kernels[first:]), made, writes)

    def keep(self, key: Any, found: CachedFunction, arguments: str, looks: tuple[Any, ...]) -> None:
        """Know it from now on, with what is shown of its arguments and known of its results."""
        call = found.call
        result = call.results[0] if call.container is None and not found.writes else None
        alone = result if result is not None and result.argument is None else None
        self._cache.functions[key] = replace(found, arguments=arguments, looks=looks, alone=alone)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Listening is no reason for Dynamo to stay away."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """The `dynamo` tracer keeps Dynamo off our frames; the others need not load it."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if self._interrupts and func not in ASKED:
            self.guard.signals.deliver()  # type: ignore[union-attr]
        if self.lock is not None or threading.get_ident() != self._home:
            return self._in_turn(func, types, args, kwargs)
        if self.in_node and not self.in_hooks:
            return self._heard(func, types, args, kwargs)
        with (
            torch._C.DisableTorchFunction()
        ):  # what is done here to fake tensors is none of the model's
            return self._heard(func, types, args, kwargs)

    def _in_turn(
        self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Any:
        """One operator of several threads: of those that follow a run, and of torch's own, to which it
        takes modes along where a scripted model forks."""
        self.lock = self.lock or threading.RLock()
        threads: set[int] = getattr(self.fake_mode, "threads", set())
        me = threading.get_ident()
        new = me not in threads
        threads.add(me)
        try:
            with self.lock:
                return self._heard(func, types, args, kwargs)
        finally:
            if new:
                threads.discard(me)

    def _heard(
        self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Any:
        if any(map(is_wrapper, types)):
            return NotImplemented  # a subclass made of other tensors: those are what is computed on
        kwargs = kwargs or {}
        operator, predictable = self._cache.operator(func)
        plain = self.fake_mode is None or self.over or self.aside
        if operator.category == "collective" and self.guard is not None and plain:
            self.guard.exchanges(func, args, kwargs)
        if self.over or self.aside:
            return self._at_work(func, args, func(*args, **kwargs))
        if func is _DEVICE and type(args[0]) is FakeTensor:
            return args[0].fake_device
        if operator.name in _NO_KERNELS:
            return func(*args, **kwargs)
        if operator.name == "aten.record_stream":  # of a tensor that would be on a GPU
            return None
        if operator.name in _WAITS:
            return args[0] if type(args[0]) is FakeTensor else func(*args, **kwargs)
        if operator.category == "other" and not operator.zero:
            parts = self._decompose(func, args, kwargs)
            if parts is not NotImplemented:
                return parts
        if func is _BROUGHT:
            self._came(args[0])
        if self._drawn:
            self.told(self._chosen_by_draws(func, args))
        writes = operator.mutated or operator.name in UNDECLARED
        if writes and self.guard and self.guard.before(func, args, kwargs, self.made_here):
            self._repeated -= 1  # has to be seen each time
        if self.fake_mode is None:
            if self.guard is not None and predictable and not (writes or operator.zero):
                self.guard.needs(self.memory.live, self._to_come(operator, args, kwargs))
            out = func(*args, **kwargs)
            if self._drawn or _draws(func):
                self._follow_draws(func, tensors_of((*args, *kwargs.values())), out)
            self._note(operator, args, kwargs, out, self._cost(operator, args, kwargs, out))
            if self.guard is not None:
                self.guard.needs(self.memory.live)
        else:
            try:
                out = self._run(operator, args, kwargs, self.fake_mode, predictable)
            except Exception as error:
                self.raised(error)
                raise
        return self._at_work(func, args, out)

    def _to_come(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Bytes that a call on real tensors is about to take: of what it returns, found out on tensors
        without data (0 where these do not say), and of the copies of all that it reads and returns that a
        convolution makes, whose layout on a CPU (oneDNN's) is another one."""
        func = operator.func
        try:
            key = func, looks(args, []), looks(kwargs.items(), [])
            sizes = self._cache.sizes
            if key not in sizes:
                given, named = tree_map_only((Tensor, torch.device), _without_data, (args, kwargs))
                made = tensors_of((func(*given, **named),))
                if operator.category == "convolution":
                    made += (*tensors_of(given), *made)
                sizes[key] = sum(t.numel() * t.element_size() for t in made)
            return sizes[key]
        except Exception:  # noqa: BLE001  (a layout, a dtype or values that are not known so)
            return 0

    def _at_work(self, func: Any, args: tuple[Any, ...], out: Any) -> Any:
        """What an operator gives. The work of a pretended all-reduce says what was reduced: torch's own
        says nothing, and who reduces gradients in buckets asks for it. What true ranks work at may end
        after the forward, which the guard waits for."""
        if func.namespace != "c10d":
            return out
        if self.guard is not None:
            self.guard.exchanged(out)
        if func is _REDUCED and any(map(is_fake_work, works_of(out))):
            self.works.append(finished(list(args[0])))
            return (out[0], self.works[-1].boxed())
        return out

    def raised(self, error: BaseException) -> None:
        """An operator raised. Where that was for want of values, a model that catches it goes on as it
        would not with real tensors."""
        if self.fake_mode is not None and needs_values(error):
            self.lacking[identity(error)] = f"the model caught {first_line(error)}"

    def _run(
        self,
        operator: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        mode: FakeTensorMode,
        predictable: bool,
    ) -> Any:
        """Run where tensors may be fake, or make again what such a call gave before."""
        func = operator.func
        if self._unknown and not operator.zero:
            args = self._without_old_values(args, keep=bool(operator.mutated))
        by_value = func in LOOKED_UP and type(args[0]) is FakeTensor
        if by_value:
            args = places_for_masks(func, args)
            by_value = check_places(func, args)
        tensors: list[Tensor] = []
        key = None
        if predictable and torch.get_default_dtype() is self._dtype:
            try:
                key = (func, looks(args, tensors), looks(kwargs.items(), tensors))
                known = self._cache.calls.get(key)
            except (TypeError, RuntimeError, NotImplementedError):
                key = None
            else:
                if known is not None:
                    out = known.repeat(tensors, mode)
                    self._repeated += not by_value
                    self._note(operator, args, kwargs, out, known.kernel)
                    return out
        if key is None:
            tensors = tensors_of((*args, *kwargs.values()) if kwargs else args)
        fakes = sum(isinstance(t, FakeTensor) for t in tensors)
        unsent = not fakes and operator.category == "collective" and not is_pretended()
        if (fakes or unsent) and any(isinstance(a, torch.ScriptObject) for a in args):
            # Torch has a cache of fake calls, too, and fails when it compares these objects. By random
            # numbers of Python's it numbers these exchanges.
            with _uncached(mode), _undrawn():
                out = func(*_all_fake(args, mode), **kwargs)
        elif fakes == len(tensors) and fakes:
            out = func(*args, **kwargs)
        elif fakes or unsent:
            args = places_for_masks(func, args)
            out = func(*(args if func in BY_VALUES else _all_fake(args, mode)), **kwargs)
        elif self.spread and func in _BLANK and _for_exchange():
            with mode:
                out = func(*args, **kwargs)
        else:
            out = self._run_on_real(func, args, kwargs, tensors, key, mode)
            self._repeated += func in _BLANK  # whatever it gives, nothing hangs on its values
            if operator.category == "collective":
                out = exchange_alike(operator.name, args, out)
        if (self._drawn and fakes < len(tensors)) or (not fakes and _draws(func)):
            self._follow_draws(func, tensors, out)
        if type(out) is tuple and fakes:
            out = _apart(out, mode)
        elif type(out) is FakeTensor and out.layout in SPARSE:
            self.lacking[identity(func)] = f"{operator.name} stores as much as its values say"
        if key is None or not fakes:
            kernel = self._cost(operator, args, kwargs, out)
        else:
            kernel = cost(operator, args, kwargs, out)
            found = cached_call(tensors, out, kernel)
            if found is not None:
                self._cache.calls[key] = found
                self._repeated += not by_value
        self._note(operator, args, kwargs, out, kernel)
        return out

    def _without_old_values(self, args: tuple[Any, ...], keep: bool) -> tuple[Any, ...]:
        """Arguments in which fake tensors stand for real ones whose values are no longer known, but for the
        first where it is to be kept: it is written to."""

        def stand(item: Tensor) -> Tensor:
            unknown = self.is_unknown(item) and self.fake_mode is not None
            return fake(item, self.fake_mode) if unknown else item

        first = int(keep)
        return (*args[:first], *tree_map_only(Tensor, stand, args[first:]))

    def faked(self, tensor: Tensor) -> Tensor:
        """What stands for a real tensor that this run made, whose memory a fake one is given: of that one
        torch would compute no view. It is counted with the real one's."""
        if self.fake_mode is None or type(tensor) is not Tensor or not self.made_here(tensor):
            return tensor
        stand = fake(tensor, self.fake_mode)
        self.memory.ignore(stand)
        return stand

    def is_unknown(self, tensor: Tensor) -> bool:
        """Whether a real tensor has no values, since a fake one was written to it."""
        return tensor.layout is torch.strided and tensor.untyped_storage()._cdata in self._unknown

    def _forget(self, written: Iterable[Tensor], given: Iterable[Tensor]) -> None:
        """What a fake tensor is written to has values that nobody knows, and is real all the same."""
        real = [t for t in written if type(t) is Tensor and t.layout is torch.strided]
        if not real or not any(isinstance(t, FakeTensor) or self.is_unknown(t) for t in given):
            return
        for storage in (t.untyped_storage() for t in real):
            _mark(self._unknown, storage)
            if storage._cdata in self._shown or (self.guard and self.guard.is_shared(storage)):
                self.lacking[identity(storage)] = (
                    "forward writes to a tensor of which there is an array"
                )

    def handed_out(self, tensor: Any) -> None:
        """The memory of a real tensor is from now on that of an array, too."""
        self._left = True
        if type(tensor) is Tensor and tensor.layout is torch.strided:
            _mark(self._shown, tensor.untyped_storage())

    def _came(self, tensor: Tensor) -> None:
        """A tensor is made of something of Python's. A remark where that is an array that was not there
        before the run, and others left torch: it may have been computed from those."""
        storage = tensor.untyped_storage()
        if not storage.resizable():  # it is not torch's
            before = self.guard is not None and self.guard.has_array(storage.data_ptr())
            if self._left and not before:
                self.notes[BY_ARRAYS] = None

    def _follow_draws(self, func: Any, given: Sequence[Tensor], out: Any) -> None:
        """What is computed from random numbers alone is random, too. A remark where one is asked for its
        value."""
        of_draws = any if self.fake_mode is not None else all
        found = list(map(self.drawn, given))
        drawn = next(filter(None, found), None) if of_draws(found) else None
        results = tensors_of((out,))
        if not results:
            self.told(drawn)
        if drawn or _draws(func):
            self.are_random(results, drawn or ONE_DRAW)

    def _chosen_by_draws(self, func: Any, args: tuple[Any, ...]) -> Remark | None:
        """Whether random numbers say how large a result is: as a mask, or as what is looked for. Places are
        as many as there are."""
        if torch.Tag.dynamic_output_shape not in getattr(func, "tags", ()):
            return None
        masks = func in INDEXED
        says = (
            t for t in tensors_of(args[1:] if masks else args) if not masks or t.dtype in _MASKS
        )
        return next(filter(None, map(self.drawn, says)), None)

    def are_random(self, tensors: Iterable[Tensor], why: Remark) -> None:
        """Tensors have random numbers: where they have values and Python asks for them, it is remarked."""
        for tensor in tensors:
            if type(tensor) is Tensor and tensor.layout is torch.strided:
                _mark(self._drawn.setdefault(why, {}), tensor.untyped_storage())

    def drawn(self, tensor: Tensor) -> Remark | None:
        """The remark on a run that asks for values of a real tensor which are random numbers, or were
        computed from them."""
        if not self._drawn or type(tensor) is not Tensor or tensor.layout is not torch.strided:
            return None
        place = tensor.untyped_storage()._cdata
        return next((why for why, places in self._drawn.items() if place in places), None)

    def told(self, why: Remark | None) -> None:
        """Python is told values of a tensor for which there is such a remark."""
        if why is not None:
            self.notes[why] = None

    def run_bodies(self, func: HigherOrderOperator, *args: Any, **kwargs: Any) -> Any:
        """Operators that run functions: these run as often as without a compiler, and are counted."""
        if func._name == "cond":
            return self._run_branch(*args)
        if func._name == "scan":
            combine, start, items, more = args
            return generic_scan(combine, start, items, additional_inputs=more)
        if func._name == "invoke_subgraph":
            region, _, *operands = args
            return region(*operands)
        return func.py_kernels[DispatchKey.CompositeExplicitAutograd](*args, **kwargs)

    def _run_branch(self, predicate: Any, true: Any, false: Any, operands: Any) -> Any:
        """The branch of `torch.cond` that is taken; where nothing says which, both run, and the one with
        more FLOPs is kept, as an upper bound."""
        if not isinstance(predicate, FakeTensor):
            return true(*operands) if predicate else false(*operands)
        flops: dict[Any, int] = {}
        for branch in (false, true):
            first, known = len(self.kernels), len(self.memory.bytes)
            with torch.no_grad():
                branch(*operands)
            flops[branch] = sum(kernel.flops for kernel in self.kernels[first:])
            self.memory.drop(known, first)
            del self.kernels[first:]
        text = "torch.cond is counted with the branch that has more FLOPs"
        self.notes[Remark("branch", text)] = None
        return (false if flops[false] > flops[true] else true)(*operands)

    def _decompose(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Composite operators reach us whole in inference mode: what they are made of is counted. That is
        not known of nested tensors, which have kernels of their own."""
        if has_bodies(func):
            with self:
                return self.run_bodies(func, *args, **kwargs)
        if not hasattr(func, "decompose") or any(t.is_nested for t in tensors_of(args)):
            return NotImplemented
        with self:
            return func.decompose(*args, **kwargs)

    def _run_on_real(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[Tensor],
        key: Any,
        mode: FakeTensorMode,
    ) -> Any:
        """Run on real tensors only, unless what comes out is too large to be real; that is known of a
        `key` that was seen before."""
        small = self._cache.small
        if key not in small and _may_be_large(args, tensors):
            known, out = _tried(func, args, kwargs, mode)
            if not known:
                return func(*args, **kwargs)
            if any(t.numel() * t.element_size() > REAL_LIMIT for t in tensors_of((out,))):
                return out
            if key is not None:
                small.add(key)
        return func(*args, **kwargs)

    def _cost(
        self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> Kernel:
        """The kernel of a call, the same object for calls that look the same."""
        if not self._cache.calls_known or operator.category == "collective":
            return cost(operator, args, kwargs, out)
        try:
            seen: list[Tensor] = []
            key = (
                operator.func,
                looks(args, seen),
                looks(kwargs.items(), seen),
                looks((out,), seen),
            )
            kernel = self._cache.costs.get(key)
            if kernel is None:
                kernel = self._cache.costs[key] = cost(operator, args, kwargs, out)
        except (TypeError, RuntimeError, NotImplementedError):
            kernel = cost(operator, args, kwargs, out)
        return kernel

    def made_here(self, tensor: Tensor) -> bool:
        """Whether a kernel of this run made the memory of a tensor: some only say that they did."""
        return self.memory.made(tensor) and (self.guard is None or self.guard.is_new(tensor))

    def _note(
        self,
        operator: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        kernel: Kernel,
    ) -> None:
        born = len(self.kernels)
        if self.exchanged and not operator.zero:
            self._wait(tensors_of((*args, *kwargs.values())))
        self.kernels.append(kernel)
        if self.staying is not None and operator.name.startswith(OF_MANY):
            self.staying.append(out)
        if not operator.zero:
            if type(out) is FakeTensor or isinstance(out, Tensor):
                self.memory.see(out, born, made=True)
            elif out is not None:
                for tensor in tensors_of((out,)):
                    self.memory.see(tensor, born, made=True)
            if operator.mutated:
                named = zip(operator.func._schema.arguments, args, strict=False)
                written = tensors_of([a for s, a in named if s.name in operator.mutated])
                written += tensors_of([kwargs.get(n) for n in operator.mutated])
                self.writes += written
                if self.fake_mode is not None:
                    self._forget(written, tensors_of((*args, *kwargs.values())))
        if operator.category == "collective":
            written = tensors_of((written_by(operator.name, by_name(operator, args, kwargs)),))
            self.writes += written
            if self.fake_mode is not None:
                self._forget(written, tensors_of((*args, *kwargs.values(), out)))
            if self.in_node:
                self.exchanged.append((born, operator, args, kwargs, out))
        if not self.in_node and self.on_orphan is not None:
            self.on_orphan(operator, args, kwargs, out)

    def _wait(self, read: Sequence[Tensor]) -> None:
        """Note what is read of the results of collectives within the node that runs, when it first is."""
        places = {t.untyped_storage()._cdata for t in read if t.layout is torch.strided}
        for _, operator, _, _, result in list(self.exchanged):
            for tensor in tensors_of((result,)) if operator is not None else ():
                waited = any(o is None and r is tensor for _, o, _, _, r in self.exchanged)
                if storage_key(tensor) in places and not waited:
                    self.exchanged.append((len(self.kernels), None, (), {}, tensor))


class _Aside:
    """Within, as often as it is entered, what runs is no part of the model."""

    def __init__(self, capture: KernelCapture) -> None:
        self._capture = capture
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(self._capture.aside)
        self._capture.aside = True

    def __exit__(self, *_: object) -> None:
        self._capture.aside = self._before.pop()


@contextmanager
def _uncached(mode: FakeTensorMode) -> Iterator[None]:
    """Within, torch's own cache of fake calls is neither read nor written."""
    before = mode.cache_enabled
    mode.cache_enabled = False
    try:
        yield
    finally:
        mode.cache_enabled = before


@contextmanager
def _undrawn() -> Iterator[None]:
    """Within, what is drawn of Python's random numbers is drawn again afterwards."""
    before = random.getstate()
    try:
        yield
    finally:
        random.setstate(before)


def _is_plain(func: Any) -> bool:
    """Whether a function does nothing but compute: what is written in C, and `torch.nn.functional`."""
    return isinstance(func, _IN_C) or getattr(func, "__module__", "") == "torch.nn.functional"


_BY_SETTINGS = frozenset({
    functional.scaled_dot_product_attention, functional.multi_head_attention_forward,
    torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu,
})  # fmt: skip
"""Functions of which settings that a forward may change within (`sdpa_kernel`) say what they run."""

_IN_C = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)


@cache
def is_wrapper(cls: type) -> bool:
    """Whether tensors of a class are made of other tensors (nested, quantized, distributed ones)."""
    return hasattr(cls, "__tensor_flatten__") and not issubclass(cls, FakeTensor)


def _apart(results: tuple[Any, ...], mode: FakeTensorMode) -> tuple[Any, ...]:
    """The results of a call, each a tensor of its own, as operators give them. Torch's fake backward of a
    recurrent layer gives one tensor as the gradient of both biases, unless it remembers it from before:
    autograd then copies it, which it does not with real ones."""
    seen: set[int] = set()
    out = []
    for item in results:
        out.append(
            fake(item, mode) if identity(item) in seen and type(item) is FakeTensor else item
        )
        seen.add(identity(item))
    return tuple(out)


def _tried(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mode: FakeTensorMode
) -> tuple[bool, Any]:
    """What an operator gives for fake tensors, and whether that is known: sizes may depend on data."""
    try:
        with mode:
            return True, func(*_all_fake(args, mode), **kwargs)
    except Exception:  # noqa: BLE001  (they are only known for real)
        return False, None


DROPPED.update((_tried.__code__, KernelCapture._to_come.__code__))


def _all_fake(args: Any, mode: FakeTensorMode) -> list[Any]:
    """The arguments with plain real tensors replaced by fake ones of the same layout. The fake mode does
    so too, but with a care for views and autograd that takes a hundred times as long."""
    return [
        fake(item, mode)
        if type(item) is Tensor and item.dim() and item.layout is torch.strided
        else _all_fake(item, mode)
        if isinstance(item, (list, tuple))
        else item
        for item in args
    ]


def _without_data(item: Tensor | torch.device) -> Any:
    if isinstance(item, torch.device):
        return META
    return torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device=META)


def _may_be_large(args: tuple[Any, ...], tensors: list[Tensor]) -> bool:
    if tensors:
        return any(t.numel() >= _WORTH_A_LOOK for t in tensors)
    sizes = args[0] if args else ()
    if isinstance(sizes, (list, tuple)):
        return prod(n for n in sizes if isinstance(n, int)) >= _WORTH_A_LOOK
    return any(isinstance(n, (int, float)) and n >= _WORTH_A_LOOK for n in args)
