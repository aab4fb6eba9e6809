"""The state of random numbers: of Python, of NumPy, of torch."""

from __future__ import annotations

import ctypes
import pickle
import random
from collections.abc import Callable
from typing import Any

import torch

from opgraph.tracing.state.holding import insides

_READ: dict[str, tuple[Any, Any]] = {}
"""What generators said of their state last, with the memory in which it was: to say it takes long."""


def _read(name: str, memory: Any, says: Callable[[], Any]) -> Any:
    """What a generator says of its state, of which this is all the memory."""
    known = _READ.get(name)
    if known is None or known[0] != memory:
        known = _READ[name] = memory, says()
    return known[1]


def drawn(numpy: Any) -> tuple[Any, ...]:
    """Which generator NumPy's functions draw by, and its state as bytes, which can be compared: the one
    that it has from the beginning says it by `get_state`, and any other by what it is."""
    functions, says = numpy.random.mtrand._rand, numpy.random.get_state
    bits = functions._bit_generator
    if type(bits) is not numpy.random.MT19937:
        return bits, pickle.dumps((bits.state, says(legacy=False)))
    if getattr(says, "__self__", None) is not functions:  # somebody has put others in their place
        return bits, *_legacy(says)
    numbers = ctypes.string_at(bits.ctypes.state_address, _OF_A_TWISTER)
    return bits, *_read(
        "numpy", (numbers, insides(functions, type(functions))), lambda: _legacy(says)
    )


_OF_A_TWISTER = 625 * ctypes.sizeof(ctypes.c_uint32)
"""The bytes of NumPy's Mersenne twister: 624 numbers, and the place among them."""


def _legacy(says: Callable[[], Any]) -> tuple[Any, ...]:
    kind, numbers, *more = says()
    return kind, numbers.tobytes(), *more


def drawn_by_python() -> Any:
    """The state of Python's own random numbers, those that everybody has in common."""
    held = insides(_PYTHONS, type(_PYTHONS).__bases__[0]), _PYTHONS.gauss_next
    return _read("python", held, random.getstate)


_PYTHONS: Any = random.getstate.__self__  # type: ignore[attr-defined]


class Drawn:
    """The state of torch's own random numbers."""

    def __init__(self) -> None:
        self.state = torch.default_generator.get_state()

    def __eq__(self, other: object) -> bool:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            return isinstance(other, Drawn) and torch.equal(self.state, other.state)

    __hash__ = None  # type: ignore[assignment]


def draw_on(numpy: Any, before: tuple[Any, ...]) -> None:
    bits, *state = before
    if numpy.random.mtrand._rand._bit_generator is not bits:
        numpy.random.set_bit_generator(bits)
    if len(state) == 1:
        bits.state, whole = pickle.loads(state[0])
        numpy.random.set_state(whole)
        return
    kind, numbers, *more = state
    numpy.random.set_state((kind, numpy.frombuffer(numbers, numpy.uint32), *more))
