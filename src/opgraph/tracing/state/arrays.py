"""The memory of arrays and storages: copies, and how they are written back."""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opgraph.tracing.state.holding import same_entries
from opgraph.tracing.state.reach import ON_GPU
from opgraph.tracing.state.steps import Left


def write_back(copy: tuple[Any, torch.UntypedStorage, bool]) -> None:
    """What was in a tensor's memory, as it was copied, if the tensor is there still."""
    reference, kept, shared = copy
    storage = reference()
    if storage is None:
        return
    _storage_back(storage, kept)
    if storage.is_shared() and not shared:
        raise Left("forward moved a tensor to shared memory")


def memory_of(item: Any, *, within: bool) -> tuple[int, Callable[[], partial[Any]]]:
    """The bytes of an array of NumPy, or of what C knows of, and what makes a copy, which writes itself
    back. Of an array `within` another that is copied there are none."""
    if isinstance(item, torch.UntypedStorage):
        if item.device.type == "meta":
            return 0, lambda: partial(int)
        return item.nbytes(), lambda: partial(_storage_back, item, item.clone())
    if isinstance(item, mmap):
        if item.closed:
            return 0, lambda: partial(int)
        with memoryview(item) as view:
            size = 0 if view.readonly else view.nbytes
        return size, lambda: partial(
            _mapped_back, item, mmap.__getitem__(item, slice(size)), mmap.tell(item)
        )
    if hasattr(type(item), ON_GPU):
        if not hasattr(item, ON_GPU):  # it says so of one that is elsewhere, and changes none
            return 0, lambda: partial(int)
        there = torch.as_tensor(item, device="cuda")
        return there.nbytes, lambda: partial(_there_back, there, there.cpu())
    if not hasattr(item, "nbytes"):
        size, place = ctypes.sizeof(item), ctypes.addressof(item)
        return size, lambda: partial(
            _written_back, item, ctypes.string_at(place, size), _held_by(item)
        )
    writeable = item.flags.writeable
    if not writeable and not _could_be_written_to(item):
        return 0, lambda: partial(int)
    return 0 if within else item.nbytes, lambda: partial(
        _array_back, item, {name: getattr(item, name) for name in ("dtype", "shape", "strides")},
        item.dtype.names, item.flags.writeable, None if within else _bare(item).copy(),
    )  # fmt: skip


def shared_places() -> list[tuple[int, int]]:
    """Where the memory begins and ends that other processes may have a part of, as Linux says."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    shared = (line.partition(" ")[0].split("-") for line in lines if _SHARED in line)
    return [(int(first, 16), int(last, 16)) for first, last in shared]


_SHARED = " rw-s "
"""What it says of memory that is written to for others, too."""


def is_among(item: Any, places: list[tuple[int, int]]) -> bool:
    """Whether the memory of something is in one of these places."""
    if not places:
        return False
    if isinstance(item, torch.UntypedStorage):
        at = item.data_ptr() if item.device.type == "cpu" else 0
    elif isinstance(item, mmap):
        at = ctypes.addressof(ctypes.c_char.from_buffer(item))
    elif hasattr(type(item), ON_GPU):
        return False
    elif not hasattr(item, "nbytes"):
        at = ctypes.addressof(item)
    else:
        at = _bare(item).__array_interface__["data"][0]
    return any(first <= at < last for first, last in places)


def _storage_back(storage: torch.UntypedStorage, kept: torch.UntypedStorage) -> None:
    if storage.nbytes() != kept.nbytes():
        storage.resize_(kept.nbytes())
    storage.copy_(kept)


def _there_back(there: Tensor, kept: Tensor) -> None:
    now, then = (t.reshape(-1).view(torch.uint8) for t in (there.cpu(), kept))
    if not torch.equal(now, then):
        there.copy_(kept)


def _mapped_back(item: mmap, kept: bytes, place: int) -> None:
    if kept and mmap.__len__(item) != len(kept):
        mmap.resize(item, len(kept))
    if kept and mmap.__getitem__(item, slice(None)) != kept:
        mmap.__setitem__(item, slice(None), kept)
    if mmap.tell(item) != place:
        mmap.seek(item, place)


def _held_by(item: Any) -> Any:
    """What something of ctypes, or what it is a part of, holds so that it is there: its memory points to
    it."""
    while item._b_base_ is not None:
        item = item._b_base_
    held = item._objects
    return held.copy() if type(held) is dict else held


def _written_back(item: Any, kept: bytes, held: Any) -> None:
    if ctypes.sizeof(item) != len(kept):
        ctypes.resize(item, len(kept))
    if ctypes.string_at(ctypes.addressof(item), len(kept)) == kept and _held_by(item) is held:
        return
    if held is not None and type(held) is not dict and _held_by(item) is not held:
        item.value = held if type(held) is bytes else _pointed_to(item, kept)
        return
    ctypes.memmove(ctypes.addressof(item), kept, len(kept))
    while item._b_base_ is not None:
        item = item._b_base_
    if type(held) is dict and not same_entries(item._objects, held):
        item._objects.clear()
        item._objects.update(held)


def _pointed_to(item: Any, kept: bytes) -> Any:
    """What something of ctypes says where this is in its memory."""
    return type(item).from_buffer_copy(kept).value


def _could_be_written_to(array: Any) -> bool:
    """Whether an array that may not be written to can be made one that may: only it itself says so."""
    try:
        array.flags.writeable = True
    except ValueError:  # it is of something that may not be written to
        return False
    array.flags.writeable = False
    return True


def _bare(array: Any) -> Any:
    """The same memory as an array of NumPy's own class, whatever a subclass makes of its methods."""
    own = sys.modules["numpy"].ndarray
    return own.view(array, own)


def same_content(one: Any, other: Any) -> bool:
    """Whether two arrays hold the same, to the bit. Texts of any length are elsewhere in memory, and an
    array only says where."""
    if one.dtype.kind == "T":
        return bool(one.tolist() == other.tolist())
    return bool(one.tobytes() == other.tobytes())


def _array_back(array: Any, looks: dict[str, Any], names: Any, writeable: bool, kept: Any) -> None:
    if names is not None and looks["dtype"].names != names:
        looks["dtype"].names = names
    if kept is not None and array.nbytes != kept.nbytes:
        array.resize(kept.nbytes // array.itemsize, refcheck=False)
    for name, value in looks.items():
        if getattr(array, name) != value:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that nobody should
                setattr(array, name, value)
    if kept is not None and not same_content(_bare(array), kept):
        if not array.flags.writeable:
            array.flags.writeable = True
        _bare(array)[...] = kept
    if array.flags.writeable is not writeable:
        array.flags.writeable = writeable
