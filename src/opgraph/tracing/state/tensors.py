"""What a tensor was but for its values, and how it becomes that again; what operators write to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from opgraph.costs.collectives import WRITES, written_by
from opgraph.costs.formulas.linalg import stored
from opgraph.tracing.fake.types import graded, gradient
from opgraph.tracing.state.histories import SAME
from opgraph.tracing.state.steps import Left

STATISTICS = frozenset({
    "aten.native_batch_norm", "aten.cudnn_batch_norm", "aten.miopen_batch_norm", "aten.batch_norm",
    "aten.instance_norm", "aten._batch_norm_impl_index", "aten.batch_norm_update_stats",
    "aten.batch_norm_gather_stats", "aten.batch_norm_gather_stats_with_counts",
})  # fmt: skip
"""Operators that write to running statistics, which their schemas do not say."""
UNDECLARED = STATISTICS | WRITES.keys()
"""All that write to what their schemas do not say, collectives among them."""


class Looks:
    """What a tensor was but for the values in its memory: which memory that is, its sizes, its gradient."""

    __slots__ = (
        "alias",
        "cls",
        "grad",
        "grad_fn",
        "moved",
        "needs_grad",
        "others",
        "signs",
        "tensor",
        "version",
    )

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.cls = type(tensor)
        self.signs = tensor.is_conj(), tensor.is_neg()
        self.needs_grad = graded(tensor, "requires_grad")
        self.grad_fn = graded(tensor, "grad_fn")
        self.grad = gradient(tensor)
        names = _OF_LEAVES if graded(tensor, "is_leaf") else _OF_RESULTS
        self.others = {name: graded(tensor, name) for name in names}
        self.version = graded(tensor, "_version")
        plain = tensor.layout in (torch.strided, torch.sparse_coo) and not tensor.is_nested
        self.alias = tensor.detach() if plain and not wraps(type(tensor)) else None
        self.moved = False

    def memory_back(self) -> None:
        tensor, alias = self.tensor, self.alias
        if type(tensor) is not self.cls:
            tensor.__class__ = self.cls
        if (tensor.is_conj(), tensor.is_neg()) != self.signs:
            torch._C._set_conj(tensor, self.signs[0])
            torch._C._set_neg(tensor, self.signs[1])
        if alias is not None and not _same_memory(tensor, alias):
            tensor.data = alias
            self.moved = True

    def history_back(self) -> None:
        now = graded(self.tensor, "grad_fn")
        if now is self.grad_fn or type(now) is SAME:  # which is still apart: the reason is said
            return
        if self.grad_fn is None:
            self.tensor.detach_()
        elif now is None:
            raise Left(
                "forward detached a tensor in place, from which no backward goes on any more"
            )
        else:
            raise Left(
                "forward wrote in place to a tensor that autograd knew: a backward through it fails, or is "
                "wrong"
            )

    def needs_back(self) -> None:
        """A result that was detached wants no gradient of its own: it would be neither what it was nor
        what the forward made of it."""
        detached = self.grad_fn is not None and graded(self.tensor, "grad_fn") is None
        if graded(self.tensor, "requires_grad") is not self.needs_grad and not detached:
            self.tensor.requires_grad_(self.needs_grad)

    def others_back(self) -> None:
        tensor = self.tensor
        for name, value in self.others.items():
            now = graded(tensor, name)
            if now is value:
                continue
            if name in _HOOKS and type(now) is OrderedDict:
                now.clear()  # torch asks this table, which stays where autograd noted it
            if name == "retains_grad":
                raise Left("forward had autograd retain the gradient of a tensor")
            if name == "grad_dtype":
                tensor.grad = None  # which is of another
            setattr(tensor, name, value)

    def grad_back(self) -> None:
        own = graded(self.tensor, "is_leaf") or graded(self.tensor, "retains_grad")
        if own and graded(self.tensor, "grad") is not self.grad:
            self.tensor.grad = self.grad


LOOKS_BACK = Looks.history_back, Looks.needs_back, Looks.others_back, Looks.grad_back
"""The steps that tensors are brought back in behind their memory, each of all: a gradient is refused as
long as it, or the tensor, is otherwise than before."""
_HOOKS = "_backward_hooks", "_post_accumulate_grad_hooks"
_OF_LEAVES = *_HOOKS, "grad_dtype"
_OF_RESULTS = *_HOOKS, "retains_grad"
"""What else somebody may have told autograd of a tensor."""


def wraps(cls: type) -> bool:
    """Whether tensors of a class are made of other tensors."""
    return issubclass(cls, FakeTensor) or hasattr(cls, "__tensor_flatten__")


def is_real(tensor: Tensor) -> bool:
    """Whether a tensor has plain memory of its own."""
    return tensor.layout is torch.strided and not wraps(type(tensor))


def storage_of(tensor: Tensor) -> torch.UntypedStorage | None:
    """The memory of a tensor; None where it is made of others, or its device does not show it."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def place_of(storage: torch.UntypedStorage) -> tuple[int, int, torch.UntypedStorage] | None:
    """Where a storage begins and ends, with it; None where a tensor of a class of its own has none."""
    try:
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes(), storage
    except RuntimeError:
        return None


def _same_memory(tensor: Tensor, alias: Tensor) -> bool:
    if tensor.layout is alias.layout is torch.sparse_coo:
        same = tensor.shape == alias.shape and tensor.is_coalesced() == alias.is_coalesced()
        return same and all(map(_same_memory, stored(tensor), stored(alias)))
    # Not by its address: it may have been let be one of the run's, without.
    storage = storage_of(tensor)
    return bool(
        storage is not None
        and storage._cdata == alias.untyped_storage()._cdata
        and tensor.storage_offset() == alias.storage_offset()
        and graded(tensor, "shape") == graded(alias, "shape")  # one without sizes yet says none
        and tensor.stride() == alias.stride()
        and tensor.dtype == alias.dtype
        and (not tensor.is_quantized or _scaled(tensor) == _scaled(alias))
    )


def _scaled(tensor: Tensor) -> tuple[Any, ...]:
    """How a quantized tensor is scaled: what another that is copied to it brings along."""
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return tensor.q_scale(), tensor.q_zero_point()
    scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    return scales.tolist(), zeros.tolist(), tensor.q_per_channel_axis()


def sparse_back(tensor: Tensor, parts: list[Tensor], shape: torch.Size) -> None:
    """Let a sparse tensor, whose parts torch exchanges for no others, say what it did."""
    if tensor.shape != shape or not all(map(_same_memory, stored(tensor), parts)):
        made = torch.sparse_compressed_tensor(
            *parts, shape, layout=tensor.layout, check_invariants=False
        )
        tensor.resize_as_sparse_(made).copy_(made)


def tensors_in_call(args: Any, kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operator is given, in lists, too."""
    for item in (*args, *kwargs.values()):
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from tensors_in_call(item, {})


def written_in(operator: Any, args: Any, kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that a call of an operator writes to, or gives the memory of to another."""
    if operator._schema.name == "aten::set_":
        return list(tensors_in_call(args, kwargs))
    arguments = operator._schema.arguments
    given = {a.name: v for a, v in zip(arguments, args, strict=False)} | dict(kwargs)
    names = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    asked = [given[n] for n in ("training", "train", "use_input_stats") if n in given]
    if not names and (any(asked) or not asked):
        names = ["running_mean", "running_var"]
    exchanged = written_by(operator._schema.name.replace("::", "."), given)
    return list(tensors_in_call([*(given.get(n) for n in names), exchanged], {}))
