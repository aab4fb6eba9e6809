"""What autograd knows of results of before, and of views: as a forward writes to one in place, detaches it
or has hooks at it, torch forgets what it was, and there is no way back. So it is another for a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from opgraph.record.identity import identity
from opgraph.tracing.fake.types import graded, gradient


class Apart:
    """Results of before, and views, that have for a run what is in another tensor of the same memory and
    history: what the run does there is not known of them afterwards. Where a backward `ends` at them, what
    they were made of hears nothing of it."""

    def __init__(self, tensors: Iterable[Tensor], *, ends: bool = False) -> None:
        self._tensors, self._ends = list(tensors), ends
        self._swapped: list[tuple[Tensor, Tensor]] = []
        self._lent: list[Tensor] = []

    def begin(self) -> dict[int, Tensor]:
        """From here on they have. Those that are to stand in, by the ids of those for which they are, where
        torch exchanges nothing: it refers to one whose gradient is retained."""
        viewed = {identity(base) for _, base in self._bases() if base is not None}

        def alike(whole: Tensor) -> Tensor | None:
            if identity(whole) not in viewed and graded(whole, "grad_fn") is None:
                return None
            return _alike(whole, ends=self._ends)

        return self._exchange(self._bases(), alike)

    def follow(self, stands: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """From here on views of weights lead to what stands in for these, by their ids, and nobody asks
        them for their own nodes, which would be made earlier than without a run. Those that are to stand
        in, as of `begin`."""

        def led(weight: Tensor) -> Tensor | None:
            stand = stands.get(identity(weight), weight)
            trained = graded(weight, "is_leaf") and graded(stand, "requires_grad")
            if not trained or not _is_plain(weight) or weight.device.type != "cpu":
                return None
            with torch.enable_grad():
                return Same.apply(stand, False, weight.detach())  # noqa: FBT003

        views = ((view, base) for view, base in self._bases() if base is not None)
        return self._exchange(views, led)

    def _bases(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        return ((t, graded(t, "_base")) for t in self._tensors)

    def _exchange(
        self,
        tensors: Iterable[tuple[Tensor, Tensor | None]],
        alike: Callable[[Tensor], Tensor | None],
    ) -> dict[int, Tensor]:
        """Let tensors, each with what it is a view of, have what is in others: in those that are `alike`,
        or in views of such."""
        wholes: dict[int, Tensor | None] = {}
        others: list[tuple[Tensor, Tensor]] = []
        for tensor, base in tensors:
            whole = tensor if base is None else base
            key = identity(whole)
            if key not in wholes:
                wholes[key] = alike(whole)
            other = wholes[key]
            if other is not None and base is not None:
                other = _viewed(tensor, other)
            if other is not None:
                others.append((tensor, other))
        swapped = [pair for pair in others if _swap(*pair)]
        self._swapped += swapped
        done = {identity(tensor) for tensor, _ in swapped}
        lent = {identity(t): _dressed(other, t) for t, other in others if identity(t) not in done}
        self._lent += lent.values()
        return lent

    def end(self) -> None:
        """They have what they had, but for a view whose gradient the forward had retained."""
        over = self._lent
        while self._swapped:
            tensor, other = self._swapped.pop()
            if _swap(tensor, other) or (_let_go(tensor) and _swap(tensor, other)):
                over.append(other)
        for each in over:
            _forget(each)
        self._lent = []


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
