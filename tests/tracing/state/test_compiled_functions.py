"""Functions that Numba compiles as a forward is the first to call them go on working after a profile, and
leave what they can reach as it was."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
import torch
from numba import typed
from torch import Tensor, nn

import opgraph


@numba.njit(cache=False)
def twice(a: Any) -> Any:
    return a * 2


def summed(a: Any) -> Any:
    total = 0.0
    for value in twice(a).ravel():
        total += value
    return total + 0 * np.random.rand()


def by_text(a: Any) -> Any:
    counts = {"a": 1.0}
    values = [counts["a"], float(a[0, 0])]
    values.append(len("x"))
    return sum(values)


class Calls(nn.Module):
    """Scales what a layer gives by what a compiled function makes of an array."""

    def __init__(self, function: Any, values: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.function, self.values = function, values

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        array = y.detach().numpy() if self.values else np.ones((4, 8), np.float32)
        return y * float(self.function(array))


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("body", [summed, pytest.param(by_text, marks=pytest.mark.slow)])
def test_what_is_compiled_within_a_profile_works_afterwards(
    body: Any, mode: str, values: bool
) -> None:
    function = numba.njit(body)
    torch.manual_seed(0)  # sums near 0 differ in their digits
    model, x = Calls(function, values), torch.ones(4, 8)
    before = [p.clone() for p in model.parameters()]
    found = opgraph.profile(model, x, mode=mode)
    assert not [remark for remark in found.remarks if remark.code == "state"]
    assert len(function.signatures) == 1
    y = model.layer(x)
    array = y.detach().numpy() if values else np.ones((4, 8), np.float32)
    with torch.no_grad():
        assert torch.allclose(model(x), y * float(body(array)))
    assert opgraph.profile(model, x).totals.flops > 0
    assert numba.njit(body)(array) == function(array)
    assert all(map(torch.equal, model.parameters(), before))


@numba.njit
def draw() -> Any:
    return np.random.rand()


@numba.njit
def seed() -> None:
    np.random.seed(3)


@numba.njit
def count(array: Any) -> None:
    array[0] += 1


NOTES: list[int] = []


@numba.jit(forceobj=True)  # type: ignore[untyped-decorator]
def note() -> None:
    NOTES.append(1)


@numba.experimental.jitclass([("calls", numba.int64)])
class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def step(self) -> None:
        self.calls += 1


class Keeps(nn.Module):
    """Changes what compiled code can reach, and what it keeps itself where `typed_too`."""

    def __init__(self, typed_too: bool, values: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.array, self.values = np.zeros(3), values
        self.typed = (typed.List([1.0]), typed.Dict.empty(numba.int64, numba.float64), Counter())
        self.typed_too = typed_too

    def forward(self, x: Tensor) -> Tensor:
        draw()
        count(self.array)
        note()
        if self.typed_too:
            self.typed[0].append(2.0)
            self.typed[1][3] = 1.0
            self.typed[2].step()
        y: Tensor = self.layer(x)
        return y * y.sum().item() if self.values else y


@pytest.mark.parametrize("values", [False, True])
def test_what_compiled_code_draws_and_writes_to_is_as_before(values: bool) -> None:
    seed()
    first = draw()
    seed()
    model, noted = Keeps(False, values), len(NOTES)
    found = opgraph.profile(model, torch.ones(4, 8))
    assert not [remark for remark in found.remarks if remark.code == "state"]
    assert draw() == first
    assert len(NOTES) == noted
    assert not model.array.any()


def test_what_is_in_its_own_containers_is_said_to_be_changed() -> None:
    found = opgraph.profile(Keeps(True, False), torch.ones(4, 8))
    texts = [remark.text for remark in found.remarks if remark.code == "state"]
    assert len(texts) == 3
    for name in ("List", "Dict", "Counter"):
        assert any(f"behind an object ({name})" in text for text in texts)
