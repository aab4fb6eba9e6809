"""What autograd knows of where a tensor comes from, and the way back to it: once somebody has written to it
in place, or detached it, torch says no more what that was."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opgraph.record.identity import identity
from opgraph.tracing.fake.types import graded, node_of


class History:
    """What a result of others came of, or the tensor that it is a view of, from before that was written to
    in place or detached."""

    def __init__(self, tensor: Tensor, before: Tensor) -> None:
        self.tensor, self._before, self._node = tensor, before, graded(tensor, "grad_fn")
        self.is_joined = False

    @classmethod
    def of(cls, result: Tensor, known: dict[int, History | None]) -> History | None:
        """That of a result, also of another view, where it is `known`; None where autograd keeps none that
        could be gone back to."""
        base = graded(result, "_base")
        tensor = result if base is None else base
        if identity(tensor) not in known:
            known[identity(tensor)] = cls._new(tensor)
        return known[identity(tensor)]

    @classmethod
    def _new(cls, tensor: Tensor) -> History | None:
        node = graded(tensor, "grad_fn")
        plain = tensor.layout is torch.strided and not tensor.is_nested
        if node is None or graded(tensor, "retains_grad") or not plain:
            return None
        if _BEFORE in node.metadata:  # it would become longer with each profile
            return cls(tensor, node.metadata[_BEFORE].tensor)
        try:
            with torch.enable_grad():
                same = Same.apply(tensor)
        except RuntimeError:  # what wraps another (functorch)
            return None
        return cls(tensor, same) if same.requires_grad else None  # it is none in inference mode

    @property
    def is_back(self) -> bool:
        """Whether the tensor leads to it."""
        return graded(self.tensor, "grad_fn") is self._node

    def back(self) -> None:
        """Have the tensor lead to it again, by a step in between, where that can be done."""
        if self.is_back or graded(self.tensor, "retains_grad"):
            return
        version = graded(self.tensor, "_version")
        with torch.enable_grad():
            self.tensor.detach_()
            self.tensor.copy_(self._before)  # which is where it is itself
        graded(self.tensor, "grad_fn").metadata[_BEFORE] = _Before(self._before)
        # A view that is asked meanwhile would take it for the history that it has at a later version.
        torch._C._autograd._unsafe_set_version_counter((self.tensor,), (version,))
        self._node, self.is_joined = graded(self.tensor, "grad_fn"), True


class Same(torch.autograd.Function):
    """Another tensor of the same history."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        return tensor.detach()

    @staticmethod
    def backward(_: Any, *grads: Any) -> Any:
        return grads[0]


_BEFORE = "opgraph"
"""Under which a step that leads back knows what it leads to."""


class _Before:
    """Is no part of what a forward can reach, as all of opgraph's."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def spare_of(tensor: Tensor) -> Tensor | None:
    """Of a view of which autograd knows nothing another one, to become it: it cannot be detached itself."""
    if graded(tensor, "_base") is None:
        return None
    with torch.enable_grad():  # else nobody may write to it in place
        spare: Tensor = torch.ops.aten.alias.default(tensor)
    return spare


def detach_base(view: Tensor) -> None:
    """Let autograd know nothing of what a tensor is a view of."""
    base = graded(view, "_base")
    if graded(base, "grad_fn") is not None:
        base.detach_()


def node_there(view: Tensor) -> Any:
    """The node of a view; None where it would make one as it is asked, as it then does for whoever reads
    it: autograd adds up in the order in which nodes were made."""
    begin = torch._C._autograd._get_sequence_nr()
    node = node_of(view)
    if torch._C._autograd._get_sequence_nr() == begin:
        return node
    made_anew(view)
    return None


def made_anew(view: Tensor) -> None:
    """Have a view make its node as somebody reads it. It knows for which version of its memory it did,
    which may be one of the run's: that would come again."""
    version = graded(view, "_version")
    torch._C._autograd._unsafe_set_version_counter((view,), (_NEVER,))
    node_of(view)
    torch._C._autograd._unsafe_set_version_counter((view,), (version,))


_NEVER = 2**32 - 2
"""More often nobody writes to a tensor."""
