"""Iterators that a forward takes items from are where they were."""

from __future__ import annotations

import csv
import itertools
import re
import struct
import sys
import zlib
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import opgraph

SHARED = iter("abcdef")


def started(iterator: Iterator[Any]) -> Iterator[Any]:
    next(iterator)
    return iterator


KEPT = sys.version_info < (3, 14)
"""Whether Python copies the iterators of itertools, which it does not from 3.14 on."""

KINDS: dict[str, Callable[[], Iterator[Any]]] = {
    "list": lambda: iter([1, 2, 3]),
    "deque": lambda: started(iter(deque([1, 2, 3]))),
    "array": lambda: started(iter(array("i", [1, 2, 3]))),
    "range": lambda: started(iter(range(5))),
    "dict": lambda: started(iter({1: 2, 3: 4, 5: 6})),
    "count": lambda: itertools.count(3, 2),
    "cycle": lambda: started(itertools.cycle([1, 2, 3])),
    "chain": lambda: started(itertools.chain([1, 2], [3])),
    "zip of iterators": lambda: started(zip(iter("abc"), itertools.count())),
    "enumerate": lambda: started(enumerate("abc")),
    "map": lambda: map(str, iter([1, 2, 3])),
    "reversed": lambda: reversed([1, 2, 3]),
    "items": lambda: started(iter({1: 2, 3: 4, 5: 6}.items())),
    "enumerate of items": lambda: enumerate({1: 2, 3: 4, 5: 6}.items()),
    "tee": lambda: started(itertools.tee([1, 2, 3])[0]),
    "cycle later": lambda: started(started(started(itertools.cycle({1: 2, 3: 4}.items())))),
}
COPIED_UNTIL_314 = ("count", "cycle", "chain", "zip of iterators", "tee", "cycle later")


class Draws(nn.Module):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.layer, self.held, self.listed = nn.Linear(4, 4), held, [held]

    def forward(self, x: Tensor) -> Tensor:
        next(SHARED)
        next(self.held)
        next(self.listed[0])
        return self.layer(x)


@pytest.mark.live
@pytest.mark.parametrize("kind", KINDS)
def test_an_iterator_is_where_it_was(kind: str) -> None:
    model, expected = Draws(KINDS[kind]()), list(itertools.islice(KINDS[kind](), 9))
    held = model.held
    profile = opgraph.profile(model, torch.ones(2, 4))
    assert model.held is held is model.listed[0]
    if KEPT or kind not in COPIED_UNTIL_314:
        assert not profile.model.notes
        assert list(itertools.islice(held, 9)) == expected
    else:
        assert "cannot be taken back" in profile.model.notes[0]


@pytest.mark.parametrize("kind", KINDS)
def test_an_iterator_whose_method_is_kept_is_where_it_was(kind: str) -> None:
    class Numbers(nn.Module):
        def __init__(self, draw: Any) -> None:
            super().__init__()
            self.layer, self.draw, self.listed = nn.Linear(4, 4), draw, [(draw,)]
            self.named: Any = defaultdict(draw)
            self.part = partial(draw)

        def forward(self, x: Tensor) -> Tensor:
            assert self.draw is self.listed[0][0] is self.named.default_factory is self.part.func
            self.draw(), self.listed[0][0](), self.named["new"]
            return self.layer(x)

    held, expected = KINDS[kind](), list(itertools.islice(KINDS[kind](), 9))
    draw = held.__next__
    model = Numbers(draw)
    if len(expected) < 3:
        return
    notes = opgraph.profile(model, torch.ones(2, 4)).model.notes
    assert (
        model.draw is draw is model.listed[0][0] is model.named.default_factory is model.part.func
    )
    assert not model.named
    if KEPT or kind not in COPIED_UNTIL_314:
        assert not notes
        assert list(itertools.islice(held, 9)) == expected
    else:
        assert "cannot be taken back" in notes[0]


@pytest.mark.parametrize("kind", KINDS)
def test_an_iterator_that_nobody_takes_from_is_not_remarked_on(kind: str) -> None:
    model = nn.Linear(4, 4)
    model.held = KINDS[kind]()  # type: ignore[assignment]
    assert not opgraph.profile(model, torch.ones(2, 4)).model.notes


def test_what_takes_from_one_iterator_still_does() -> None:
    """Those of one `tee` read on for each other."""

    class Both(Draws):
        def forward(self, x: Tensor) -> Tensor:
            assert [next(each) for each in self.held for _ in range(70)] == [
                60,
                *range(61, 130),
                *range(70),
            ]
            return self.layer(x)

    model = Both(itertools.tee(iter(range(200))))
    held = model.held
    assert list(itertools.islice(held[0], 60)) == [*range(60)]
    notes = opgraph.profile(model, torch.ones(2, 4)).model.notes
    assert model.held is held
    if KEPT:
        assert not notes
        assert (next(held[0]), next(held[1])) == (60, 0)
    else:
        assert "cannot be taken back" in notes[0]


class Summing(nn.Module):
    """Adds what it takes from an iterator, one by one."""

    def __init__(self, values: bool) -> None:
        super().__init__()
        self.linear, self.values = nn.Linear(4, 4), values

    def forward(self, items: Iterator[torch.Tensor]) -> torch.Tensor:
        total = torch.zeros(())
        for item in items:
            y = self.linear(item)
            total = total + (y.sum() if not self.values or y.mean().item() < 100 else 0)
        return total


ROWS = [torch.randn(2, 4)] * 3
GIVEN: dict[str, Callable[[], Iterator[torch.Tensor]]] = {
    "list": lambda: iter(ROWS),
    "map": lambda: map(torch.Tensor.clone, ROWS),
    "generator": lambda: (row for row in ROWS),
    "map over a generator": lambda: map(torch.Tensor.clone, (row for row in ROWS)),
}


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("kind", GIVEN)
def test_each_run_takes_all_that_an_iterator_gives(kind: str, values: bool) -> None:
    model, rows = Summing(values), GIVEN[kind]()
    profile = opgraph.profile(model, rows)
    assert profile.totals.cost.flops == 3 * 2 * 2 * 4 * 4
    left = list(rows)
    gone = [r for r in profile.remarks if "took items from an iterator" in r]
    assert (len(left), len(gone)) == ((0, 1) if "generator" in kind else (3, 0))


def test_an_iterator_in_a_tuple_is_where_it_was() -> None:
    class Pairs(Draws):
        def forward(self, x: Tensor) -> Tensor:
            assert next(self.held[0][0][1]) == 1
            return self.layer(x)

    model = Pairs([(("numbers", iter([1, 2])), 1)])
    pair = model.held[0]
    assert not opgraph.profile(model, torch.ones(2, 4)).model.notes
    assert model.held[0] is pair
    assert list(pair[0][1]) == [1, 2]


SILENT: dict[str, Any] = {
    "pairwise": lambda: itertools.pairwise("abcd"),
    "SRE_Scanner": lambda: re.finditer("a", "aaaa"),
    "reader": lambda: csv.reader(["a,b", "c,d", "e,f"]),
    "unpack_iterator": lambda: struct.iter_unpack("b", b"abcd"),
    "_element_iterator": lambda: ET.XML("<a><b/><c/><d/></a>").iter(),
    "flatiter": lambda: np.arange(4).flat,
    "Scanner": lambda: pytest.importorskip("regex").finditer("a", "aaaa"),
    "Compress": zlib.compressobj,
}


@pytest.mark.live
@pytest.mark.parametrize("kind", SILENT)
def test_what_does_not_say_where_it_is_is_remarked_on(kind: str) -> None:
    made = SILENT[kind]()
    held = iter(lambda: made.compress(b"a"), None) if kind == "Compress" else made
    notes = opgraph.profile(Draws(held), torch.ones(2, 4)).model.notes
    assert any(f"({kind}): that cannot be taken back" in note for note in notes)


@pytest.mark.live
def test_what_cannot_be_turned_back_is_remarked_on() -> None:
    def numbers() -> Iterator[int]:
        yield from range(5)

    model = Draws(numbers())
    (note,) = opgraph.profile(model, torch.ones(2, 4)).model.notes
    assert note == (
        "forward took items from an iterator "
        "(test_what_cannot_be_turned_back_is_remarked_on.<locals>.numbers): "
        "that cannot be taken back"
    )
    assert next(SHARED) == "a"


class Numbers(IterableDataset[float]):
    """As many as are asked for."""

    def __iter__(self) -> Iterator[float]:
        return (float(number) for number in range(100))


@pytest.mark.live
def test_batches_that_are_loaded_are_remarked_on() -> None:
    """What goes through the data is in a part of torch that a model does not name."""
    model = Draws(iter(DataLoader(Numbers(), batch_size=2)))
    notes = opgraph.profile(model, torch.ones(2, 4)).model.notes
    assert any(
        "took items from an iterator (Numbers.__iter__.<locals>.<genexpr>)" in n for n in notes
    )
