"""A set is gone through in the order that it had, and `pop` takes from it what it would have taken."""

from __future__ import annotations

import random
import sys
import weakref
from array import array
from typing import Any

import numpy as np
import pytest
import torch
from tests.tracing.state.using import Using

import opgraph
from opgraph.tracing.state.places import placed, places

X = torch.ones(2, 8)
MODES = ("infer", "train")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("back", [True, False])
def test_the_next_of_a_pool(mode: Any, back: bool) -> None:
    """An item is taken, and given back or not: the next one is another only after calls of one's own."""
    free = set(range(8))

    def step() -> None:
        slot = free.pop()
        if back:
            free.add(slot)

    model = Using(step)
    model(X)
    expected = sorted(free), list(free), _ahead(free)
    for _ in range(2):
        assert not _state(opgraph.profile(model, X, mode=mode))
    assert (sorted(free), list(free), _ahead(free)) == expected


def _ahead(items: set[Any]) -> list[Any]:
    """What would be taken next of a set, which stays as it is."""
    there, kept = places(items), list(items)
    assert there is not None
    taken = [items.pop() for _ in range(3)]
    items.clear()
    items.update(kept)
    placed((items, there))
    return taken


def _state(profile: opgraph.Profile) -> list[str]:
    return [remark for remark in profile.remarks if "state" in repr(remark)]


def test_a_set_that_is_emptied_by_each_call() -> None:
    """It looks on from where it was, empty or not."""
    waiting: set[int] = set()

    def step() -> None:
        waiting.update(range(5))
        waiting.pop()
        waiting.clear()

    model = Using(step)
    opgraph.profile(model, X)
    waiting.update(range(5))
    assert waiting.pop() == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_set_that_grows(seed: int) -> None:
    draw = random.Random(seed)
    seen = {draw.randrange(10**6) for _ in range(10 + 4 * seed)}
    before = list(seen)
    model = Using(lambda: seen.update(draw.randrange(10**6) for _ in range(20)))
    opgraph.profile(model, X)
    assert list(seen) == before


def test_a_set_of_weak_references() -> None:
    class Item:
        pass

    items = [Item() for _ in range(6)]
    known = weakref.WeakSet(items)

    def step() -> None:
        known.add(known.pop())

    model = Using(step)
    before = list(known.data), places(known.data)
    opgraph.profile(model, X)
    assert (list(known.data), places(known.data)) == before


class Odd:
    """What many others have the hash of."""

    def __init__(self, name: int) -> None:
        self.name = name

    def __hash__(self) -> int:
        return self.name % 7


def _changed(items: set[Any], pool: list[Any], how: int) -> None:
    """A set that has others in it, another size, or been looked through from another place."""
    match how:
        case 0:
            items.clear()
        case 1:
            items.update(map(str, range(200)))
        case 2:
            items.intersection_update(pool[:3])
        case _ if items:
            items.pop()


def test_any_set_is_as_it_was() -> None:
    draw, odd = random.Random(0), [Odd(each) for each in range(60)]
    for _ in range(400):
        pool = draw.sample(odd, draw.choice([0, 1, 4, 8, 20, 60]))
        items: set[Any] = set(pool)
        for _ in range(draw.randrange(5) if items else 0):
            items.add(items.pop())
        there, order = places(items), list(items)
        assert there is not None
        for _ in range(draw.randrange(1, 6)):
            _changed(items, pool, draw.randrange(4))
        items.clear()
        items.update(order)
        placed((items, there))
        assert (places(items), list(items)) == (there, order)
        items.update(map(str, range(draw.randrange(100))))
    pool, items, order = [], set(), []
    assert {sys.getrefcount(each) for each in odd} == {3}  # the list's, the name's, the argument's


@pytest.mark.parametrize("mode", MODES)
def test_texts_of_an_array_that_stay_as_long(mode: Any) -> None:
    names = np.array(["a caption of more than fifteen letters"], dtype=np.dtypes.StringDType())

    def step() -> None:
        names[0] = names[0][1:] + names[0][0]

    opgraph.profile(Using(step), X, mode=mode)
    assert names[0] == "a caption of more than fifteen letters"


def test_the_sign_of_a_zero_of_an_array() -> None:
    numbers = array("d", [0.0, 1.0])
    opgraph.profile(Using(lambda: numbers.__setitem__(0, -numbers[0])), X)
    assert repr(numbers) == "array('d', [0.0, 1.0])"
