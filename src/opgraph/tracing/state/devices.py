"""Tensors within reach of a forward that are on an accelerator. A run is on the CPU, as fake tensors are,
and has copies of them there: nothing on the accelerator is written to, and none of its memory taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import torch
from torch import Tensor

from opgraph.costs.count import touched_bytes
from opgraph.record.identity import identity
from opgraph.tracing.fake.tensors import is_away
from opgraph.tracing.fake.types import graded

_PLAIN = (Tensor, torch.nn.Parameter)
_LATER = frozenset({"lazy", "xla"})
"""Devices that compute what a tensor is when it is asked for, and have it in no memory that torch knows."""


class Brought:
    """Copies on the CPU of the tensors among these that are on accelerators, by the ids of those. `spends`
    is asked for the bytes of each memory, and refuses what is too much."""

    def __init__(
        self, tensors: Iterable[Tensor], spends: Callable[[int, torch.device], bool]
    ) -> None:
        self.of: dict[int, Tensor] = {}
        self._spends = spends
        self._memories: dict[int, torch.UntypedStorage] = {}
        away = [t for t in tensors if is_away(t) and type(t) in _PLAIN]
        if away and not _capturing():
            with torch.no_grad():
                for tensor in away:
                    self._bring(tensor)

    def _bring(self, tensor: Tensor) -> Tensor | None:
        """The copy of a tensor; tensors that share memory have copies that do."""
        if identity(tensor) in self.of:
            return self.of[identity(tensor)]
        memory = self._memory(tensor)
        if memory is not None:
            made = torch.empty(0, dtype=tensor.dtype)
            size = memory.nbytes()
            made.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())
            if memory.nbytes() != size:  # of what was given back there is none
                memory.resize_(size)
        elif self._spends(touched_bytes(tensor), tensor.device):
            made = tensor.detach().cpu()
        else:
            return None
        if type(tensor) is torch.nn.Parameter:
            made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
        elif tensor.requires_grad:
            made.requires_grad_()
        vars(made).update(vars(tensor))
        self.of[identity(tensor)] = made
        gradient = graded(tensor, "grad") if graded(tensor, "is_leaf") else None
        if gradient is not None:
            made.grad = self._bring(gradient)
        return made

    def _memory(self, tensor: Tensor) -> torch.UntypedStorage | None:
        """The copy of the memory that a tensor is in; None where its device does not show that, or it is
        too much."""
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            return None
        with suppress(NotImplementedError, RuntimeError):
            storage = tensor.untyped_storage()
            if not storage.nbytes() and tensor.device.type not in _LATER:
                return torch.UntypedStorage(
                    0
                )  # given back, as between the calls of what is sharded
            if not tensor.data_ptr():
                return None
            if storage._cdata not in self._memories and self._spends(
                storage.nbytes(), storage.device
            ):
                self._memories[storage._cdata] = storage.cpu()
            return self._memories.get(storage._cdata)
        return None


def _capturing() -> bool:
    """Whether somebody records a CUDA graph just now, into which no copy may come."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
