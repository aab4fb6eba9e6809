"""Fake CPU tensors, made by the thousand: torch's own constructor takes longer than all else that a
remembered call needs, so what it sets is found out once and given to each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from opgraph.record.errors import words
from opgraph.record.identity import identity
from opgraph.record.turns import replaced
from opgraph.sources.weightless import INDEXED, bring_compiler
from opgraph.tracing.fake.types import attributes

CPU = torch.device("cpu")
META = torch.device("meta")
REAL_LIMIT = 64 * 2**20
"""Bytes above which a tensor that no fake tensor went into is made fake all the same: masks and tables
that a model computes from constants stay real, so that their values can be looked at, up to here."""


_GROUPED = torch.ops.aten._grouped_mm.default
_HALVES = (torch.bfloat16, torch.float16)
_ATEN = torch.ops.aten
_PRODUCTS = {_ATEN.mm.default: 0, _ATEN.bmm.default: 0, _ATEN.mv.default: 0, _ATEN.dot.default: 0,
             _ATEN.addmm.default: 1, _ATEN.baddbmm.default: 1, _ATEN.addmv.default: 1}  # fmt: skip
"""Products whose kernels take factors of one dtype, which is not looked at on fake tensors, by the place of
the first."""


def _packed(padded: Tensor, lengths: Tensor, *_: Any) -> Any:
    """Sequences of several lengths one step after the other, and how many there are at each."""
    if type(lengths) is not Tensor:
        return NotImplemented
    counts = lengths.tolist()
    alive = [sum(n > step for n in counts) for step in range(max(counts, default=0))]
    return padded.new_empty(sum(counts), *padded.shape[2:]), torch.tensor(alive)


def _ways(
    logarithms: Tensor, _targets: Tensor, steps: list[int], letters: list[int], *_: Any
) -> tuple[Tensor, Tensor]:
    """The results of a CTC loss: of each sequence its own, and those of its steps and places."""
    shape = (len(steps), logarithms.shape[0], 2 * max(letters) + 1)
    return logarithms.new_empty(len(steps)), logarithms.new_empty(shape)


def _selected(tensor: Tensor, mask: Tensor) -> Any:
    """The values that a mask chooses."""
    if type(mask) is not Tensor:
        return NotImplemented
    shape = torch.broadcast_shapes(tensor.shape, mask.shape)
    return tensor.new_empty(int(mask.expand(shape).count_nonzero()))


BY_VALUES: Mapping[Any, Callable[..., Any]] = {
    _ATEN._pack_padded_sequence.default: _packed,
    _ATEN._ctc_loss.default: _ways,
    _ATEN.masked_select.default: _selected,
}
"""Operators whose results are as large as values say which are known, where torch does not look."""


def _plain(function: Any) -> Any:
    """A function of torch that keeps no text of where it was called: reading the files takes longer than
    all else that makes a mode."""
    names = {**function.__globals__, "traceback": SimpleNamespace(extract_stack=list)}
    same = FunctionType(function.__code__, names, function.__name__, None, function.__closure__)
    same.__kwdefaults__ = function.__kwdefaults__
    return same


_made = _plain(FakeTensorMode.__init__)


class RunMode(FakeTensorMode):
    """The mode of the fake tensors of a run. It counts the operators that are called in threads which do
    not work for the run (that `threads` do), where nobody else hears them."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        bring_compiler()
        _made(self, allow_non_fake_inputs=True)
        self.threads = {threading.get_ident()}
        self.unheard = 0

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What torch calls for every operator."""
        if threading.get_ident() not in self.threads:
            self.unheard += 1
        if func is _GROUPED and args[0].dtype not in _HALVES:
            return self._grouped(args, kwargs or {})
        if func in BY_VALUES and isinstance(args[0], FakeTensor):
            out = BY_VALUES[func](*args)
            if out is not NotImplemented:
                return out
        first = _PRODUCTS.get(func)
        if first is not None and args[first].dtype != args[first + 1].dtype:
            one, other = args[first].dtype, args[first + 1].dtype
            raise RuntimeError(f"factors must have the same dtype, but are {one} and {other}")
        return super().dispatch(func, types, args, kwargs)

    def _grouped(self, args: Any, kwargs: Any) -> Tensor:
        """A grouped product of a dtype that its kernels take on every device, and that torch 2.14 refuses
        to say the shape of."""
        with self:
            a, b = (torch.empty_like(t, dtype=torch.bfloat16) for t in args[:2])
            out: Tensor = _GROUPED(a, b, *args[2:], **kwargs)
            return torch.empty_like(out, dtype=args[0].dtype)


def fake(tensor: Tensor, mode: FakeTensorMode, shared: Memory | None = None) -> Tensor:
    """A fake CPU tensor of the same shape, strides and dtype, wherever the tensor is. It has memory of its
    own, but for that which is `shared`."""
    plain = type(tensor) in (Tensor, torch.nn.Parameter, FakeTensor)
    if not plain and tensor.layout is torch.strided and is_traceable_wrapper_subclass(tensor):
        return _wrapped(tensor, mode)
    if not plain or tensor.layout is not torch.strided:
        return mode.from_tensor(tensor)
    with torch._C._DisableTorchDispatch():
        storage = shared.get(tensor.untyped_storage()._cdata) if shared else None
        if storage is not None:
            meta = torch.empty(0, dtype=tensor.dtype, device="meta")
            meta.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
            return around(meta, mode)
        meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return around(meta, mode)


def _wrapped(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    """A tensor of a class that wraps others, around fake ones: with all attributes, since what such a class
    gives to be made anew from (`__tensor_flatten__`) may read values, or leave something out."""
    made: Tensor = Tensor._make_wrapper_subclass(
        type(tensor), tensor.shape, tensor.stride(), tensor.storage_offset(),
        dtype=tensor.dtype, device=CPU, requires_grad=tensor.requires_grad,
    )  # fmt: skip
    for name, item in attributes(tensor).items():
        setattr(made, name, fake(item, mode) if isinstance(item, Tensor) else item)
    return made


def around(meta: Tensor, mode: FakeTensorMode) -> FakeTensor:
    """The fake CPU tensor whose shape, strides, dtype and storage are those of a tensor on meta."""
    made: FakeTensor = _make_subclass(
        FakeTensor, meta, dispatch_device=True, device_for_backend_keys=CPU
    )
    (_warn_of_pointers if mode._allow_unsafe_data_ptr_access else _throw_on_pointers)(made)
    made.__dict__ = {**_state(), "fake_mode": mode}
    return made


_make_subclass = Tensor._make_subclass
_warn_of_pointers = torch._C._set_warn_deprecated_on_mutable_data_ptr
_throw_on_pointers = torch._C._set_throw_on_mutable_data_ptr


Memory = Mapping[int, torch.UntypedStorage]
"""The memory on meta that stands for that of several tensors, by what theirs is known by."""


def parts_of_memory(tensor: Tensor) -> dict[str, Tensor]:
    """The attributes of a tensor that its memory is put together from, or given anew, as what is sharded
    has its piece and room for the whole: there are none unless one of them is in its memory now."""
    plain = (Tensor, torch.nn.Parameter)
    parts = {k: v for k, v in vars(tensor).items() if type(v) in plain}
    if not parts or type(tensor) not in plain or tensor.layout is not torch.strided:
        return {}
    own = tensor.untyped_storage()._cdata
    strided = [part for part in parts.values() if part.layout is torch.strided]
    return parts if any(part.untyped_storage()._cdata == own for part in strided) else {}


def shared_memory(tensors: Iterable[Tensor]) -> Memory:
    """Memory that stands for what more than one of these tensors lies in."""
    storages: dict[int, torch.UntypedStorage] = {}
    owners: dict[int, set[int]] = {}
    for tensor in tensors:
        if tensor.layout is torch.strided and type(tensor) in (
            Tensor,
            torch.nn.Parameter,
            FakeTensor,
        ):
            storage = tensor.untyped_storage()
            storages[storage._cdata] = storage
            owners.setdefault(storage._cdata, set()).add(identity(tensor))
    return {
        key: torch.UntypedStorage(storages[key].nbytes(), device="meta")
        for key, ids in owners.items()
        if len(ids) > 1
    }


@cache
def _state() -> Mapping[str, Any]:
    """The attributes of a fake CPU tensor but for its mode, as the constructor sets them."""
    with torch._C._DisableTorchDispatch():
        tensor = FakeTensor(FakeTensorMode(), torch.empty(0, device="meta"), CPU)
    return {key: value for key, value in vars(tensor).items() if key != "fake_mode"}


# Fake tensors have no memory, and torch says 0 of where it is. Models ask, to find out which tensors share
# memory or what they have seen before: so each memory gets a number when somebody asks.

_NOWHERE = 1 << 52
"""Where numbers of memory begin: beyond every address that a process has."""
_ALIGNED = 64
_free = [_NOWHERE]
"""The next number that no memory has: of the process, since a copied tensor has a copied mode."""


class Pointers(TorchFunctionMode):
    """Within, fake tensors have addresses: distinct ones, that stay, and the same for shared memory. Before
    one of any tensor is given, it is `asked` for."""

    def __init__(self, asked: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._asked = asked

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in ADDRESSES:
            return address(func, args, kwargs or {}, self._asked)
        return func(*args, **(kwargs or {}))


ADDRESSES = frozenset(
    getattr(Tensor, name)
    for name in ("data_ptr", "const_data_ptr", "untyped_storage", "storage")
    if hasattr(Tensor, name)  # the second came with torch 2.11 or later
)
"""Functions that give the address of a tensor's memory, or an object that does."""


def address(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], asked: Callable[[Tensor], None]
) -> Any:
    """What one of the functions that ask for an address gives."""
    tensor = args[0]
    asked(tensor)
    if type(tensor) is not FakeTensor:
        return func(*args, **kwargs)
    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
        known = vars(storage).get("data_ptr")
        if storage.device.type != "meta":  # that of a real tensor, which the fake one was given
            known = storage.data_ptr
        elif known is None and storage.nbytes():
            start = _free[0]
            _free[0] += -(-storage.nbytes() // _ALIGNED) * _ALIGNED
            known = storage.data_ptr = lambda: start
        if func is Tensor.untyped_storage or func is Tensor.storage:
            return func(*args, **kwargs)
        at = 0 if known is None or not tensor.numel() else known()
        return at and at + tensor.storage_offset() * tensor.element_size()


@contextmanager
def converted_in_place() -> Iterator[None]:
    """Within, a conversion in forward (`self.router.to(torch.float32)`) puts a fake weight's new data into
    it. torch exchanges the two tensors, which it refuses where there are weak references to them, as there
    are to all of a run: of real ones the data are exchanged."""
    exchange = torch.utils.swap_tensors

    def swap_tensors(one: Tensor, other: Tensor) -> None:
        if type(one) is type(other) is FakeTensor and one.fake_device == other.fake_device:
            with torch._C.DisableTorchFunction():
                one.data = other
        elif (
            FakeTensor not in (type(one), type(other))
            and type(one) is type(other)
            and (one.is_leaf and other.is_leaf and one.layout is other.layout is torch.strided)
        ):
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                data, needs_grad, own = one.detach(), one.requires_grad, vars(one).copy()
                for to, by, needs, has in (
                    (one, other.detach(), other.requires_grad, vars(other).copy()),
                    (other, data, needs_grad, own),
                ):
                    to.data = by
                    to.requires_grad = needs
                    vars(to).clear()
                    vars(to).update(has)
        else:
            exchange(one, other)

    with replaced(torch.utils, "swap_tensors", swap_tensors):
        yield


@contextmanager
def memory_read(raised: Callable[[BaseException], None]) -> Iterator[None]:
    """Within, it is told when a storage raises since it has no values, of which no mode of torch hears, and
    what is taken from DLPack does, too: torch hands over a fake tensor as one of no address."""

    def telling(read: Callable[..., Any]) -> Callable[..., Any]:
        def told(*args: Any) -> Any:
            try:
                return read(*args)
            except NotImplementedError as error:
                raised(error)
                raise

        return told

    def taken(*args: Any) -> Tensor:
        made: Tensor = take(*args)
        with torch._C.DisableTorchFunction():
            if made.numel() and made.device == CPU and made.data_ptr() < _FIRST_PAGES:
                raise NotImplementedError("a fake tensor has no data to hand over")
        return made

    untyped, typed, take = torch.UntypedStorage, torch.TypedStorage, torch._C._from_dlpack
    with (
        replaced(torch._C, "_from_dlpack", telling(taken)),
        replaced(untyped, "__getitem__", telling(untyped.__getitem__)),
        replaced(typed, "_getitem", telling(typed._getitem)),
    ):
        yield


_FIRST_PAGES = 1 << 16
"""No system has memory at addresses below; where a fake tensor begins is counted from 0."""

_NEEDS_VALUES = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    GuardOnDataDependentSymNode,
)
_SIGNS_OF_FAKE = (
    "fake", "meta tensor", "meta device", "'meta' device", "data_ptr", "numpy() is not supported",
    "tensor subclass", "no data", "storage", "data dependent", "data-dependent", "couldn't swap",
    "quantized::",
)  # fmt: skip


def needs_values(error: BaseException | str | None) -> bool:
    """Whether something failed only because fake tensors have no values: an error, or the line about it."""
    if error is None:
        return False
    text = words(error).lower()
    if isinstance(error, _NEEDS_VALUES) or any(sign in text for sign in _SIGNS_OF_FAKE):
        return True
    return isinstance(error, str) and error.partition(":")[0] in {c.__name__ for c in _NEEDS_VALUES}


# Looking up in fake tables at places that are known: a place that is not there is an error for real.

_ATEN = torch.ops.aten
_ROWS = frozenset((_ATEN.embedding.default, _ATEN._embedding_bag.default,
                   _ATEN._embedding_bag_forward_only.default))  # fmt: skip
_ALONG = frozenset((_ATEN.index_select.default, _ATEN.gather.default))
LOOKED_UP = _ROWS | _ALONG | INDEXED
"""Operators that raise for some values of what is to be looked up."""


def check_places(func: Any, args: tuple[Any, ...]) -> bool:
    """Raise IndexError where a call looks up a place, by a real tensor, that its first argument has not.
    Gives whether it looks up any by their values, so that others are to be checked again."""
    table, from_end = args[0], func in INDEXED
    looked_up = args[1] if from_end else (args[2 if func in _ALONG else 1],)
    values = False
    for axis, index in enumerate(looked_up):
        if type(index) is not Tensor or index.is_floating_point():
            continue
        values = True
        if not index.numel():
            continue
        dim = axis if from_end else args[1] if func in _ALONG else 0
        size = table.shape[dim] if table.dim() else 1
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            least, most = (int(n) for n in index.aminmax())
        if type(size) is int and not (-size if from_end else 0) <= least <= most < size:
            wrong = most if most >= size else least
            raise IndexError(f"index {wrong} is out of bounds for dimension {dim} with size {size}")
    return values


# Accelerators that a model names: what it makes on them or moves to them is on the CPU instead, where all
# tensors of a run are and it costs the same, whether there is such a device here or not.

_HERE = frozenset({"cpu", "meta"})
"""Where the tensors of a run are; all other devices are accelerators."""
_TO = Tensor.to
_ACROSS: tuple[Any, ...] = (Tensor.cuda, Tensor.xpu)
MOVES = frozenset((_TO, *_ACROSS))
"""Functions that move a tensor; of the others, those that take a `device` do."""


def brought_here(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A call on the CPU, where it names an accelerator."""
    if func in _ACROSS:
        return Tensor.cpu, args[:1], {}
    if func is _TO:
        args = tuple(CPU if _names_another(item) else item for item in args)
    if _names_another(kwargs.get("device")):
        kwargs = {**kwargs, "device": CPU}
    generator = kwargs.get("generator")
    if isinstance(generator, torch.Generator) and generator.device.type not in _HERE:
        kwargs = {**kwargs, "generator": _alike(generator)}
    return func, args, kwargs


def is_away(tensor: Tensor) -> bool:
    """Whether a tensor has its values on an accelerator."""
    return tensor.device.type not in _HERE and not isinstance(tensor, FakeTensor)


def _names_another(item: Any) -> bool:
    return isinstance(item, (str, torch.device)) and _is_accelerator(str(item))


@cache
def _is_accelerator(name: str) -> bool:
    try:
        return torch.device(name).type not in _HERE
    except RuntimeError:
        return False  # it is no device, and torch will say so


def _alike(generator: torch.Generator) -> torch.Generator:
    """The generator on the CPU that stands for one of an accelerator in this run."""
    if identity(generator) not in STANDING:
        made = torch.Generator().manual_seed(generator.initial_seed())
        STANDING[identity(generator)] = generator, made
    return STANDING[identity(generator)][1]


STANDING: dict[int, tuple[torch.Generator, torch.Generator]] = {}
"""Generators of accelerators and what stands for them, by the ids of those, until a run ends."""
