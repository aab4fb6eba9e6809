"""Fake tensors have addresses, as models ask for them: distinct, stable, and shared with the memory."""

from __future__ import annotations

import copy
import ctypes
import os
from collections.abc import Callable
from pickle import dumps, load

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import opgraph

pytestmark = pytest.mark.live


class Asks(nn.Module):
    """Gives to a function what it has: two layers, and what went through them."""

    def __init__(self, run: Callable[[nn.Module, Tensor, Tensor], object]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.run = run

    def forward(self, x: Tensor, y: Tensor) -> object:
        return self.run(self, x, y)


def where(
    run: Callable[[nn.Module, Tensor, Tensor], object], *, tied: bool = False
) -> list[object]:
    """What a forward saw on fake tensors, and on real ones."""
    read, write = os.pipe()  # what a run puts into a list or a queue is taken out again
    model = Asks(lambda m, x, y: os.write(write, dumps(run(m, x, y))) and m.first(x)).eval()
    if tied:
        model.second.weight = nn.Parameter(model.first.weight.data[:2])
    x = torch.randn(3, 4)
    with torch.no_grad():
        model(x, x[1:])
    opgraph.profile(model, (x, x[1:]), tracer="eager")
    os.close(write)
    with os.fdopen(read, "rb") as seen:
        found = [load(seen), load(seen)]
        assert not seen.read()
    return found


def relative(m: nn.Module, x: Tensor, y: Tensor) -> object:
    """The tensors of a run by which of them share memory, and how far into it they begin."""
    a, b = m.first(x), m.first(y)
    tensors = [
        x,
        y,
        a,
        b,
        a.view(-1)[3:],
        b.T,
        a.add_(1),
        m.first.weight,
        m.second.weight,
        m.second.bias,
    ]
    starts = [t.untyped_storage().data_ptr() for t in tensors]
    return [(starts.index(s), t.data_ptr() - s) for s, t in zip(starts, tensors, strict=True)]


@pytest.mark.parametrize("tied", [False, True])
def test_addresses_are_as_far_apart_as_those_of_real_tensors(tied: bool) -> None:
    real, fake = where(relative, tied=tied)
    assert real == fake


def test_an_address_stays() -> None:
    def run(m: nn.Module, x: Tensor, y: Tensor) -> object:
        a = m.first(x)
        before = a.data_ptr()
        others = [m.second(a) for _ in range(9)]
        return before == a.data_ptr() == a.detach().data_ptr(), before in {
            o.data_ptr() for o in others
        }

    assert where(run) == [(True, False)] * 2


def test_a_copy_lies_elsewhere() -> None:
    def run(m: nn.Module, x: Tensor, y: Tensor) -> object:
        a = m.first(x)
        copies = [copy.deepcopy(a.detach()), a.clone(), a.detach().clone(), torch.empty_like(a)]
        return len({t.data_ptr() for t in (*copies, a)})

    assert where(run) == [5, 5]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_no_address_is_that_of_a_real_tensor_and_none_is_nothing() -> None:
    def run(m: nn.Module, x: Tensor, y: Tensor) -> object:
        table = torch.arange(4.0)
        return (
            m.first(x).data_ptr() > 0,
            m.first(x).data_ptr() == table.data_ptr(),
            m.first(x)[:0].data_ptr(),
            x.storage().data_ptr() == x.data_ptr(),
        )

    assert where(run) == [(True, False, 0, True)] * 2


def test_a_cache_by_addresses_finds_what_it_should() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            a, b = self.first(x), self.second(x)
            known = {a.data_ptr(): a}
            return known[b.data_ptr()] if b.data_ptr() in known else self.first(b)

    assert opgraph.profile(Cached(), torch.ones(2, 4)).totals.flops == 3 * 2 * 2 * 4 * 4


@pytest.mark.parametrize("tied", [False, True])
def test_a_check_for_tied_weights_is_answered(tied: bool) -> None:
    class Checks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            if tied:
                self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            same = self.first.weight.data_ptr() == self.second.weight.data_ptr()
            return x if same else self.second(x)

    for warm_up in (False, True):
        profile = opgraph.profile(Checks(), torch.ones(2, 4), warm_up=warm_up)
        assert profile.totals.flops == (1 if tied else 2) * 2 * 2 * 4 * 4


LIBRARY = ctypes.CDLL(None)
CLEAR = LIBRARY.bzero if hasattr(LIBRARY, "bzero") else None
for each in filter(None, (CLEAR,)):
    each.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@pytest.mark.skipif(CLEAR is None, reason="a function of POSIX")
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_function_of_c_reads_what_is_there(mode: str, held: bool) -> None:
    class Clears(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            clear = CLEAR if held else LIBRARY.bzero
            clear(y.data_ptr(), y.numel() * y.element_size())
            return y

    profile = opgraph.profile(Clears(), torch.ones(2, 4), mode=mode)
    assert any("read by its address" in remark for remark in profile.remarks)


@pytest.mark.parametrize("what", ["result", "weight", "input", "table"])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_library_that_reads_by_an_address_reads_what_is_there(what: str, mode: str) -> None:
    """As safetensors does: at the address of a fake tensor is nothing, and the process would end."""

    class Saves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            found = {"result": y, "weight": self.first.weight, "input": x}
            safetensors.torch.save(
                self.state_dict() if what == "table" else {what: found[what].detach()}
            )
            return y

    profile = opgraph.profile(Saves(), torch.ones(2, 4), mode=mode)
    assert profile.tracing.tensors != "fake"
    assert profile.totals.flops == (1 if mode == "infer" else 2) * 2 * 2 * 4 * 4
