"""What autograd knows of results of before, and of views: as a forward writes to one in place, detaches it
or has hooks at it, torch forgets what it was, and there is no way back. So it is another for a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import _HookMixin
from torch.utils.hooks import RemovableHandle

from opgraph.record.identity import identity
from opgraph.record.turns import is_mine, replaced
from opgraph.tracing.fake.types import graded, gradient, is_of_graph


class Apart:
    """Results of before, and views, that have for a run what is in another tensor of the same memory and
    history: what the run does there is not known of them afterwards. Where a backward `ends` at them, what
    they were made of hears nothing of it."""

    def __init__(self, tensors: Iterable[Tensor], *, ends: bool = False) -> None:
        self._tensors, self._ends = list(tensors), ends
        self.viewed: Collection[Tensor] = ()
        self._begun: list[_Exchanged] = []
        self._following: list[_Exchanged] = []
        self._lent: dict[int, Tensor] = {}  # by the ids of those for which they are

    def begin(self) -> dict[int, Tensor]:
        """From here on they have. What is to be put in the place of what, by its id, where torch exchanges
        nothing: it refers to one whose gradient is retained."""
        bases = self._bases()
        viewed = {identity(base): base for _, base in bases if base is not None}
        self.viewed = viewed.values()

        def alike(whole: Tensor) -> Tensor | None:
            if identity(whole) not in viewed and graded(whole, "grad_fn") is None:
                return None
            return _alike(whole, ends=self._ends)

        self._begun, lent = self._exchanged(bases, alike)
        return lent

    def follow(self, stands: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """From here on views of weights lead to what stands in for these, by their ids. What is to be put
        in the place of what, as of `begin`."""
        for each in _back(self._following):
            _forget(each)

        def led(weight: Tensor) -> Tensor | None:
            stand = weight
            while (further := stands.get(identity(stand), stand)) is not stand:
                stand = further
            trained = graded(weight, "is_leaf") and graded(stand, "requires_grad")
            plain = _is_plain(weight) and weight.device.type == "cpu"
            if stand is weight or not trained or not plain:
                return None
            with torch.enable_grad():
                return Same.apply(stand, False, weight.detach())  # noqa: FBT003

        views = ((v, w) for v, w in self._bases() if w is not None and is_of_graph(v))
        self._following, lent = self._exchanged(views, led)
        return lent

    def _bases(self) -> list[tuple[Tensor, Tensor | None]]:
        return [(t, graded(t, "_base")) for t in self._tensors]

    def _exchanged(
        self,
        tensors: Iterable[tuple[Tensor, Tensor | None]],
        alike: Callable[[Tensor], Tensor | None],
    ) -> tuple[list[_Exchanged], dict[int, Tensor]]:
        """Let tensors, each with what it is a view of, have what is in others: in those that are `alike`,
        or in views of such. Which do, and what is to be put in the place of what."""
        wholes: dict[int, Tensor | None] = {}
        pairs: list[tuple[Tensor, Tensor]] = []
        for tensor, base in tensors:
            whole = tensor if base is None else base
            key = identity(whole)
            if key not in wholes:
                wholes[key] = alike(whole)
            other = wholes[key]
            if other is not None and base is not None:
                other = _viewed(tensor, other)
            if other is not None:
                pairs.append((tensor, other))
        done: list[_Exchanged] = []
        lent: dict[int, Tensor] = {}
        for tensor, other in pairs:
            hooks = _HOOKS.__get__(tensor)
            if _swap(tensor, other):
                done.append((tensor, other, hooks))
                if hooks is not None:  # a table with which torch has nothing to do here
                    _HOOKS.__set__(tensor, None)
            else:
                key = identity(tensor)
                there = self._lent.get(key, tensor)
                lent[identity(there)] = self._lent[key] = _dressed(other, tensor)
        return done, lent

    def end(self) -> None:
        """They have what they had, but for a view whose gradient the forward had retained."""
        over = [*_back(self._following), *_back(self._begun), *self._lent.values()]
        for each in over:
            _forget(each)
        self._lent = {}


_Exchanged = tuple[Tensor, Tensor, Any]
"""A tensor, the one that has what was in it, and the table of its hooks."""
_HOOKS: Any = vars(torch._C.TensorBase)["_backward_hooks"]


def _back(exchanged: list[_Exchanged]) -> Iterator[Tensor]:
    """Let tensors have what they had, the last first. What the others are then."""
    while exchanged:
        tensor, other, hooks = exchanged.pop()
        if _HOOKS.__get__(tensor) is not hooks:
            _HOOKS.__set__(tensor, hooks)
        if _swap(tensor, other) or (_let_go(tensor) and _swap(tensor, other)):
            yield other


def _alike(tensor: Tensor, *, ends: bool) -> Tensor | None:
    """A tensor of the same memory and history, or one at which a backward `ends`. None where there can be
    none, and of one that wants a gradient of its own: nobody writes to it in place, or detaches it."""
    if not _is_plain(tensor):
        return None
    if not graded(tensor, "requires_grad"):
        return tensor.detach()
    if graded(tensor, "grad_fn") is None:
        return None
    try:
        with torch.enable_grad():
            found: Tensor = Same.apply(tensor.detach().requires_grad_() if ends else tensor, ends)
    except RuntimeError:  # of what wraps another (functorch)
        return None
    return found if found.requires_grad else None


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is made of no others."""
    of_others = type(tensor).__torch_dispatch__ is not _PLAIN
    return not of_others and tensor.layout is torch.strided and not tensor.is_nested


_PLAIN: Any = Tensor.__torch_dispatch__
"""What classes have by which no tensors are made of others."""


def _dressed(other: Tensor, tensor: Tensor) -> Tensor:
    """A tensor with what somebody gave another, and its gradient."""
    made = other if type(tensor) is Tensor else other.as_subclass(type(tensor))
    vars(made).update(vars(tensor))
    if graded(tensor, "retains_grad"):
        made.retain_grad()
        made.grad = gradient(tensor)
    return made


def _let_go(tensor: Tensor) -> bool:
    """Have torch no more refer to a tensor whose gradient was retained: what does so goes along with a
    write, and ends with what that made. Whether that could be done: a view cannot be detached."""
    if graded(tensor, "_base") is not None:
        return False
    version = graded(tensor, "_version")
    with torch.enable_grad():
        tensor.copy_(tensor.detach())  # which is where it is itself
    tensor.detach_()
    torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
    return True


def _forget(tensor: Tensor) -> None:
    """Let a tensor of the run lead to nothing: what it led to may lead to it, and would stay. A view is
    asked anew."""
    if graded(tensor, "retains_grad"):
        tensor.grad = None
    base = graded(tensor, "_base")
    (tensor if base is None else base).detach_()
    if base is not None and graded(tensor, "requires_grad"):
        version = graded(tensor, "_version")
        torch._C._autograd._unsafe_set_version_counter((tensor,), (_NEVER,))
        with suppress(RuntimeError):  # one of several views that was written to
            _ = tensor.grad_fn
        torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


_NEVER = 2**32 - 2
"""More often nobody writes to a tensor."""


def _viewed(view: Tensor, base: Tensor) -> Tensor | None:
    """The same view of another tensor; None where torch does not say how it was made."""
    try:
        with torch.enable_grad():
            return view._view_func(base)
    except RuntimeError:
        return None


def _swap(one: Tensor, other: Tensor) -> bool:
    """Exchange what is in two tensors. Whether that could be done."""
    try:
        torch._C._swap_tensor_impl(one, other)
    except RuntimeError:
        return False
    return True


@contextmanager
def unhooked() -> Iterator[None]:
    """Within, hooks may be put at autograd's nodes and at tensors, and are none afterwards: a node that
    somebody's graph has, as that of a weight, says of none that it has them, and a graph of before keeps
    it; and a hook that has nodes, as one at several tensors, would keep what the run has made."""
    plain: Any = vars(_HookMixin)["_register_hook"].__func__
    make = RemovableHandle.__init__
    handles: list[RemovableHandle] = []

    def register(known: Any, hook: Any) -> Any:
        found = plain(known, hook)
        if is_mine():
            handles.append(found[1])
        return found

    def made(handle: RemovableHandle, *args: Any, **kwargs: Any) -> None:
        make(handle, *args, **kwargs)
        if sys._getframe(1).f_code is _AT_TENSORS and is_mine():
            handles.append(handle)

    with (
        replaced(_HookMixin, "_register_hook", staticmethod(register)),
        replaced(RemovableHandle, "__init__", made),
    ):
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


_AT_TENSORS = Tensor.register_hook.__code__


class Same(torch.autograd.Function):
    """Another tensor of the same memory, or of that of another, and history, which is no leaf. A backward
    that `ends` there goes no further."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ends: bool, memory: Tensor | None = None) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.ends = ends
        return (tensor if memory is None else memory).detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None if ctx.ends else grads[0], None, None


SAME: type[Any] = Same._backward_cls
"""What made such a tensor."""
