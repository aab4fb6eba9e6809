"""Forwards that return what is still to be computed, and those that compute nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain, count
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opgraph

pytestmark = pytest.mark.live

LINEAR = 2 * 2 * 4 * 4


class Layers(nn.Module):
    """Two linear layers, and a forward of one's own."""

    def __init__(self, run: Callable[[Layers, Tensor], object]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.run = run

    def forward(self, x: Tensor) -> object:
        return self.run(self, x)


def steps(m: Layers, x: Tensor) -> Iterator[Tensor]:
    for layer in (m.first, m.second):
        x = layer(x)
        yield x


def one_in_another(m: Layers, x: Tensor) -> Iterator[object]:
    yield m.first(x)
    yield (m.second(y) for y in (x,))


async def awaited(m: Layers, x: Tensor) -> Tensor:
    x = m.first(x)
    await asyncio.sleep(0)
    return m.second(x)


async def step_by_step(m: Layers, x: Tensor) -> Any:
    yield m.first(x)
    yield m.second(x)


@pytest.mark.parametrize(
    "run",
    [
        steps,
        one_in_another,
        awaited,
        step_by_step,
        lambda m, x: map(m.first, [x, x]),
        lambda m, x: {"all": (chain([m.first(x)], (m.second(y) for y in [x])), None)},
    ],
)
def test_what_is_still_to_be_computed_is_computed(run: Callable[[Layers, Tensor], object]) -> None:
    profile = opgraph.profile(Layers(run).eval(), torch.ones(2, 4))
    assert profile.totals.flops == 2 * LINEAR
    assert len(profile.graph.outputs) == (1 if run is awaited else 2)
    assert not profile.model.notes


def test_a_step_of_training_goes_through_a_generator() -> None:
    profile = opgraph.profile(Layers(steps), torch.ones(2, 4), mode="train")
    assert profile.totals.flops == 2 * LINEAR + 3 * LINEAR  # no gradient of the input


def test_a_generator_without_end_is_left_with_a_remark() -> None:
    profile = opgraph.profile(Layers(lambda m, x: (m.first(x) for _ in count())), torch.ones(2, 4))
    assert profile.totals.flops == 1_000 * LINEAR
    assert "more than 1,000 items" in profile.model.notes[0]


def test_a_generator_that_raises_has_failed() -> None:
    def run(m: Layers, x: Tensor) -> Iterator[Tensor]:
        yield m.first(x)
        yield m.second(x[:, :3])

    with pytest.raises(opgraph.TraceError, match="second: Linear takes 4 features, got 2x3"):
        opgraph.profile(Layers(run), torch.ones(2, 4))


class Optional(nn.Module):
    """Takes what it is given, of which all has a default."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, image: Any = None, text: Any = None) -> object:
        return None if image is None else self.layer(image)


def test_a_forward_that_touches_no_weight_gets_a_remark() -> None:
    (note,) = opgraph.profile(Optional(), kwargs={}).model.notes
    assert note == (
        "forward reads none of the weights of the model (it was called without tensors: "
        "its arguments have defaults)"
    )
    (note,) = opgraph.profile(Optional(), kwargs={"text": torch.ones(2)}).model.notes
    assert note == "forward reads none of the weights of the model"
    assert not opgraph.profile(Optional(), torch.ones(4)).model.notes


def test_a_module_that_passes_on_what_it_gets_is_what_it_should_be() -> None:
    assert not opgraph.profile(nn.Identity(), torch.ones(4)).model.notes
    assert not opgraph.profile(nn.Flatten(), torch.ones(4, 4)).model.notes
