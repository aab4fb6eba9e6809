"""What the code of a model learns when it asks of which type a fake tensor is, or which: that of the tensor
it stands for. `type(w) is nn.Parameter` can be heard nowhere; so the name `type` means another class in the
modules of Python's whose code runs, `id` another function (tables of masks are kept by `id(w)`), and
`isinstance` one where weights have classes of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import MemberDescriptorType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from opgraph.costs.formulas.linalg import SPARSE

_PLAIN = (nn.Parameter, Tensor, FakeTensor)


def dress(stand: Tensor, tensor: Tensor) -> None:
    """Give a stand-in what else can be seen of its tensor: its class, if that is one of its own, which
    object it is, and the attributes that somebody gave it."""
    if type(stand) is not FakeTensor or type(tensor) is FakeTensor:
        return
    known = vars(stand)
    known.update((k, v) for k, v in attributes(tensor).items() if k not in known)
    known["_stands_at"] = id(tensor)
    if type(tensor) not in _PLAIN and not hasattr(tensor, "__tensor_flatten__"):
        known["_stands_for"] = type(tensor)


def attributes(tensor: Tensor) -> dict[str, Any]:
    """What somebody gave a tensor, in slots, too; what one of a class that wraps others has, those among
    it."""
    return {**vars(tensor), **{slot.__name__: value for slot, value in slots(tensor)}}


def slots(tensor: Tensor) -> list[tuple[Any, Any]]:
    """The slots that classes have given a tensor, with what is in them."""
    found: list[tuple[Any, Any]] = []
    for each in () if type(tensor) in _PLAIN else type(tensor).__mro__:
        for slot in vars(each).values() if "__slots__" in vars(each) else ():
            if type(slot) is MemberDescriptorType:
                with suppress(AttributeError):  # there is nothing in it
                    found.append((slot, slot.__get__(tensor)))
    return found


def graded(tensor: Tensor, name: str) -> Any:
    """What autograd says of a tensor by that name, whatever its class makes of it; None where it does not
    say it: of a view among several that was written to, or of the writes to one of inference. A view comes
    of what the whole comes of: asked itself, it would make a node now, and a later backward would add up
    in another order."""
    try:
        base = None if name not in _UNASKED else _OF_TORCH["_base"].__get__(tensor)
        if base is not None and not graded(tensor, "requires_grad"):
            return _UNASKED[name]
        if base is not None and graded(base, "requires_grad") and not _made_ungraded(tensor):
            return graded(base, name) if name == "grad_fn" else False
        return _OF_TORCH[name].__get__(tensor)
    except RuntimeError:
        return None


_OF_TORCH: Any = vars(torch._C.TensorBase)


def is_of_graph(view: Tensor) -> bool:
    """Whether gradients go through a view as torch made it: not where it was made without them, nor by a
    function of somebody's own."""
    made: Any = torch._C._autograd._get_creation_meta(view)
    return made in _BY_TORCH and bool(graded(view, "requires_grad"))


def _made_ungraded(view: Tensor) -> bool:
    """Whether a view was made without gradients: it may be a leaf itself."""
    made: Any = torch._C._autograd._get_creation_meta(view)
    return bool(made == _KINDS.NO_GRAD_MODE)


_KINDS: Any = torch._C._autograd.CreationMeta
_BY_TORCH = (_KINDS.DEFAULT, _KINDS.MULTI_OUTPUT_NODE)
_UNASKED = {"grad_fn": None, "is_leaf": True}
"""What is asked of a node, with what it is where there is none."""


def is_told(cls: Any) -> bool:
    """Whether a class of tensors says itself what functions of torch do, and so is told of each of them."""
    told = cls.__torch_function__
    return told is not _AS_PLAIN and getattr(told, "__func__", None) is not _AS_ALL


def computes(cls: Any) -> bool:
    """Whether a class of tensors runs operators as it likes, and does not say what its tensors are made of:
    of what it writes to then no mode hears."""
    return cls.__torch_dispatch__ is not _AS_TORCH and not hasattr(cls, "__tensor_flatten__")


_AS_TORCH: Any = Tensor.__torch_dispatch__
_AS_ALL: Any = vars(Tensor)["__torch_function__"].__func__
_AS_PLAIN: Any = nn.Parameter.__torch_function__


@contextmanager
def unasked() -> Iterator[None]:
    """Within, opgraph may ask tensors what they are: classes that say what functions of torch do are not
    told."""
    with torch._C.DisableTorchFunctionSubclass():
        yield


def gradient(tensor: Tensor) -> Any:
    """The gradient of a tensor that has one of its own."""
    own = graded(tensor, "is_leaf") or graded(tensor, "retains_grad")
    return graded(tensor, "grad") if own else None


def scales(tensor: Tensor) -> list[Tensor]:
    """The tensors by which one that is quantized by channel is read, which lie in the memory of it."""
    if tensor.qscheme() not in (torch.per_channel_affine, torch.per_channel_affine_float_qparams):
        return []
    return [tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()]


def shared(tensor: Tensor) -> list[Any]:
    """What a stand-in has in common with its tensor, and may be changed by it: attributes that somebody
    gave it, but for the tensors that it wraps; or all of it, where it stands for itself."""
    if is_its_own(tensor):
        return [tensor]
    if type(tensor) in _PLAIN or not is_traceable_wrapper_subclass(tensor):
        held = [value for _, value in slots(tensor)]
        return [vars(tensor), *held] if vars(tensor) else held
    found = []
    for item in attributes(tensor).values():
        if not isinstance(item, Tensor):
            found.append(item)
        elif is_traceable_wrapper_subclass(item):
            found += shared(item)
    return found


def is_its_own(tensor: Tensor) -> bool:
    """Whether a weight has no stand-in: not all schemes of quantizers can be copied, and a fake tensor does
    not say how much a sparse one stores."""
    return tensor.is_quantized or (tensor.layout in SPARSE and tensor.device.type == "cpu")


def type_of(item: Any) -> type:
    """The type of an object; of a fake tensor that of the tensor it stands for."""
    found = type(item)
    if found is not FakeTensor:
        return found
    known = vars(item)
    own: type | None = known.get("_stands_for")
    return own or (nn.Parameter if known.get("_is_param") else Tensor)


class _Metaclass(type):
    """Makes a class that is like `type` in whatever code does with it."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not Type:
            return super().__call__(*args, **kwargs)  # a metaclass that the model derives
        if len(args) != 1 or kwargs:
            return type(*args, **kwargs)
        found = type_of(args[0])
        return Type if found in (type, _Metaclass) else found

    def __instancecheck__(cls, item: Any) -> bool:
        return isinstance(item, type) if cls is Type else super().__instancecheck__(item)

    def __subclasscheck__(cls, item: type) -> bool:
        return issubclass(item, type) if cls is Type else super().__subclasscheck__(item)

    def __eq__(cls, other: object) -> bool:
        return cls is other or (cls is Type and other is type)

    def __hash__(cls) -> int:
        return hash(type) if cls is Type else super().__hash__()


class Type(type, metaclass=_Metaclass):
    """What the name `type` means to the code of a model that runs on fake tensors."""

    def __class_getitem__(cls, item: Any) -> Any:
        return type[item]


def has_values() -> bool:
    """Whether what is computed now has values. Where it has none, on fake tensors or where a compiler
    captures it, random numbers decide nothing, and to keep the state of their generators is slow."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is None


def _isinstance(item: Any, classes: Any) -> bool:
    return isinstance(item, classes) or (
        type(item) is FakeTensor and issubclass(type_of(item), classes)
    )


def _id(item: Any) -> int:
    at: int = vars(item).get("_stands_at", id(item)) if type(item) is FakeTensor else id(item)
    return at


class Told:
    """What names mean to some code, by the globals that it runs by."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._spaces: list[tuple[dict[str, Any], str]] = []

    def tell(self, spaces: Iterable[dict[str, Any]]) -> None:
        """From here on the code of these globals, too, goes by the names, where it has none of its own."""
        for space in spaces:
            for name in self._names.keys() - space.keys():
                self._spaces.append((space, name))
                space[name] = self._names[name]

    @contextmanager
    def untold(self) -> Iterator[None]:
        """Within, no code does: whoever imports keeps what it finds there (`from model import *`)."""
        spaces = [space for space, _ in self._spaces]
        self.end()
        try:
            yield
        finally:
            self.tell(spaces)

    def end(self) -> None:
        """From here on no code does."""
        for space, name in self._spaces:
            if space.get(name) is self._names[name]:
                del space[name]
        self._spaces.clear()


def _set_attribute(fake: FakeTensor, name: str, value: Any) -> None:
    """Set an attribute of a fake tensor. It is none of another class, which torch could not run."""
    if name == "__class__":
        vars(fake)["_stands_for"] = value
    else:
        object.__setattr__(fake, name, value)


@contextmanager
def true_types(weights: Iterable[Tensor], *, sets_classes: bool) -> Iterator[Told]:
    """Within, the code that is told learns the types that fake tensors stand for, and may set them, where
    it `sets_classes`."""
    names: dict[str, Any] = {"type": Type, "id": _id}
    if sets_classes or any("_stands_for" in vars(t) for t in weights):
        names["isinstance"] = _isinstance
    told = Told(names)
    with patch.object(FakeTensor, "__setattr__", _set_attribute) if sets_classes else nullcontext():
        try:
            yield told
        finally:
            told.end()
