"""Building a module without the memory for its weights.

Inside `weightless()` every parameter loses its memory at the moment a module registers it, so that the
initialization that follows costs nothing, while buffers (position ids, anchors, masks) stay real. Tensors
that are too big even for that moment are made without memory from the start.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from mmap import PAGESIZE
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

if sys.platform == "linux":
    from resource import RUSAGE_SELF, getrusage

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from opgraph.record.turns import turn

# Choosing elements of a fake tensor by a mask that is real: how many there are is known then, but the fake
# mode will not look. The mask is put in as the places that it chooses.

_aten = torch.ops.aten
INDEXED = frozenset(
    (_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default)
)  # fmt: skip
"""The operators whose results depend on the values of a mask among their arguments."""


def places_for_masks(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of an operator that indexes, with the places that real masks choose instead of them;
    those of others as they are."""
    if func not in INDEXED or not any(map(_is_mask, args[1])):
        return args
    places: list[Tensor | None] = []
    for index in args[1]:
        places += index.nonzero(as_tuple=True) if _is_mask(index) else [index]
    return (args[0], places, *args[2:])


def _is_mask(index: Any) -> bool:
    return (
        isinstance(index, Tensor)
        and not isinstance(index, FakeTensor)
        and index.dtype in (torch.bool, torch.uint8)
        and index.device.type == "cpu"
    )


class RealMasks(TorchDispatchMode):
    """Within, fake tensors can be indexed by real masks."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return func(*places_for_masks(func, args), **(kwargs or {}))


P = ParamSpec("P")
R = TypeVar("R")

LIMIT = 256 * 2**20
"""Bytes above which a new tensor is made on the meta device from the start."""

_FACTORIES = frozenset(
    getattr(torch, name)
    for name in (
        "empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "ones_like", "full",
        "full_like", "rand", "rand_like", "randn", "randn_like", "randint", "normal", "eye", "arange",
    )
)  # fmt: skip

_FILLS = frozenset((
    "normal_", "uniform_", "zero_", "zeros_", "ones_", "fill_", "constant_", "trunc_normal_",
    "xavier_normal_", "xavier_uniform_", "kaiming_normal_", "kaiming_uniform_",
))  # fmt: skip
"""What initialization does, of tensors and of `torch.nn.init`, by name since libraries wrap the latter. It
is for nothing where there is no memory, yet torch works out shapes and strides in Python for each, which
is half of the time that building takes."""


_LOOK, _MOST = 64 * 2**20, 128 * 2**20
"""Bytes of parameters after which to look how much the process has grown, and how much it may have."""

_give_back = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
"""What gives free memory back to the system, where the C library is GNU's. It keeps that of tensors, which
are aligned, and has no use for it: `posix_memalign` asks for a little more than it leaves behind."""


def resident() -> int | None:
    """Bytes of this process that are in memory; None where the system does not say so."""
    try:
        file = _open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return None
    try:
        return int(os.read(file, 128).split()[1]) * PAGESIZE
    finally:
        os.close(file)


def fits(size: int, limit: int) -> bool:
    """Whether the process may take so many bytes more and has no more than the limit then. Where the most
    that it ever had says so, nobody asks what it has now, which takes eight times as long."""
    return size + _peak() + _BEHIND <= limit or size + (resident() or 0) <= limit


def _peak() -> int:
    """The most bytes of this process that ever were in memory, where it says how many there are now."""
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024 if sys.platform == "linux" else sys.maxsize


_BEHIND = 2**27
"""Bytes by which that may be behind: each CPU counts some pages by itself, twice as many as there are CPUs,
before it adds them (Linux: `percpu_counter`)."""

_open = os.open  # not what stands for it during a run, to hear which files a model opens


@contextmanager
def one_request() -> Iterator[int | None]:
    """Within, and in all that is called from there, what may be taken is counted from what was resident at
    the beginning: what an attempt leaves behind is not the next one's to begin with."""
    began = _began.get() or resident()
    token = _began.set(began)
    try:
        yield began
    finally:
        _began.reset(token)


_began: ContextVar[int | None] = ContextVar("resident at the beginning", default=None)
begun = _began.get
"""The bytes that were resident at the beginning of what is asked for; None outside of it."""


def give_back() -> None:
    """Let the system have what is free."""
    if _give_back is not None:
        _give_back(0)


def bring_compiler() -> None:
    """Import torch's compiler, as torch does when it makes its first mode of fake tensors. That notes where
    files are to be, in the environment and in `tempfile`: whoever needs it finds it out again, until which
    a person may say otherwise."""
    if "torch._dynamo" in sys.modules:
        return
    names, folder = set(os.environ), tempfile.tempdir
    try:
        importlib.import_module("torch._dynamo")
    finally:
        for name in os.environ.keys() - names:
            del os.environ[name]
        tempfile.tempdir = folder


def uncompiled(hook: Callable[P, R]) -> Callable[P, R]:
    """A hook of a module that torch's compiler leaves alone where it lies within what is compiled."""
    bring_compiler()
    return torch.compiler.disable(hook)  # type: ignore[no-any-return]


class Moved:
    """The parameters that were moved in one build, so that shared ones stay shared, and their bytes."""

    def __init__(self, pretend: bool) -> None:
        if pretend:
            bring_compiler()
        self.mode = FakeTensorMode(allow_non_fake_inputs=True) if pretend else None
        self.twins = WeakIdKeyDictionary()
        self.bytes = 0
        self._looked = 0
        self._began = resident()

    def twin(self, param: nn.Parameter) -> nn.Parameter:
        if param not in self.twins:
            data = param.detach().to("meta")
            if self.mode is not None:
                data = FakeTensor(self.mode, data, torch.device("cpu"))
            twin = nn.Parameter(data, requires_grad=param.requires_grad)
            twin.__dict__.update(param.__dict__)
            self.twins[param] = twin
            self.bytes += param.nbytes
            self._lighten()
        found: nn.Parameter = self.twins[param]
        return found

    def _lighten(self) -> None:
        """Give back what parameters that were computed had for a moment."""
        if self._began is None or self.bytes - self._looked < _LOOK:
            return
        self._looked = self.bytes
        if (resident() or 0) - self._began > _MOST:
            give_back()


_moved: ContextVar[Moved | None] = ContextVar("moved", default=None)
_register = nn.Module.register_parameter


@contextmanager
def weightless(*, pretend: bool = False, limit: int = LIMIT) -> Iterator[Moved]:
    """Modules built in this context, in this thread, get parameters on the meta device; with `pretend`,
    fake ones that say they are on the CPU, so that a constructor can run a forward over them.

    Parameters that are shared stay shared. Lazy parameters, those of special classes (quantized ones) and
    sparse ones, of which nothing else says how much they store, are left as they are. `settle` puts
    pretending ones on the meta device afterwards.
    """
    moved = Moved(pretend)
    token = _moved.set(moved)
    try:
        with (
            turn(),
            patch.object(nn.Module, "register_parameter", _register_moved),
            _BigOnMeta(limit),
        ):
            yield moved
    finally:
        _moved.reset(token)


def _register_moved(self: nn.Module, name: str, param: Any) -> None:
    moved = _moved.get()
    plain = type(param) is nn.Parameter and param.layout is torch.strided
    if moved is not None and plain and (moved.mode or not param.is_meta):
        param = moved.twin(param)
    _register(self, name, param)


@contextmanager
def pretended(module: nn.Module, mode: FakeTensorMode) -> Iterator[None]:
    """Within, what a module has on the meta device and its weights are fake on the CPU, and its other
    tensors copies, so that parts of it can be run and leave it as it was."""

    def pretend(tensor: Tensor) -> Tensor | None:
        if isinstance(tensor, FakeTensor):
            return None
        if tensor.layout is torch.strided and (tensor.is_meta or type(tensor) is nn.Parameter):
            return FakeTensor(mode, _on_meta(tensor).detach(), torch.device("cpu"))
        return tensor.detach().clone()

    inside = [vars(inner) for inner in module.modules()]
    plain = (t for table in inside for t in table.values() if type(t) in (dict, OrderedDict))
    attributes = [(table, dict(table)) for table in (*inside, *plain)]  # hooks, too
    saved = _exchange(module, pretend)
    try:
        yield
    finally:
        for now, before in attributes:
            now.clear()
            now.update(before)
        for table, name, tensor in saved:
            table[name] = tensor


def settle(module: nn.Module) -> None:
    """Put all that is fake in a module (parameters, and what was computed from them) on meta."""
    _exchange(module, lambda tensor: _on_meta(tensor) if isinstance(tensor, FakeTensor) else None)


def _exchange(
    module: nn.Module, make: Callable[[Tensor], Tensor | None]
) -> list[tuple[dict[str, Any], str, Tensor]]:
    """Put what `make` gives for a tensor, if anything, wherever a module has that tensor. Gives what was
    there, by table and name."""
    memo: dict[int, tuple[Tensor, Tensor | None]] = {}
    before: list[tuple[dict[str, Any], str, Tensor]] = []
    for inner in module.modules():
        for table in (inner._parameters, inner._buffers, inner.__dict__):
            for name, tensor in list(table.items()):
                if isinstance(tensor, Tensor):
                    if id(tensor) not in memo:
                        memo[id(tensor)] = (tensor, make(tensor))
                    made = memo[id(tensor)][1]
                    if made is not None:
                        before.append((table, name, tensor))
                        table[name] = made
    return before


def _on_meta(tensor: Tensor) -> Tensor:
    bare = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(bare, requires_grad=tensor.requires_grad)
    return bare


class _BigOnMeta(TorchFunctionMode):
    """Sends the factory calls whose result would be larger than `limit` bytes to the meta device, and
    leaves out the filling of what is there already."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if getattr(func, "__name__", "") in _FILLS:
            filled: Tensor = args[0] if args else kwargs["tensor"]
            if filled.is_meta:
                return filled
        if func in _FACTORIES:
            # `pin_memory` and generators do not go with the meta device.
            bare = {k: v for k, v in kwargs.items() if k not in ("pin_memory", "generator", "out")}
            planned = func(*args, **{**bare, "device": "meta"}) if "out" not in kwargs else None
            size = planned.nbytes if planned is not None and planned.layout is torch.strided else 0
            if size > self.limit:
                return planned
        return func(*args, **kwargs)
