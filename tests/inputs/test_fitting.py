"""Inputs of modules that nobody tuned a rule for: found by running, seeing which operator refuses, and
trying what that one takes; or an error that says what was tried."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opgraph

pytestmark = pytest.mark.live


def module(forward: Callable[..., Any], **layers: nn.Module) -> nn.Module:
    """A module with these layers and that forward."""

    def init(self: nn.Module) -> None:
        nn.Module.__init__(self)
        for name, layer in layers.items():
            setattr(self, name, layer)

    made: nn.Module = type("Made", (nn.Module,), {"__init__": init, "forward": forward})()
    return made.eval()


def shapes(profile: opgraph.Profile) -> dict[str, str]:
    values = (profile.graph.value[i] for i in profile.graph.inputs)
    return {v.name: f"{'x'.join(map(str, v.shape))} {v.dtype}" for v in values}


def conv(*channels: int) -> nn.Module:
    """As in LeNet: two convolutions of 5 x 5, each with a pooling behind it."""
    layers = [part for a, b in pairwise(channels) for part in (nn.Conv2d(a, b, 5), nn.MaxPool2d(2))]
    return nn.Sequential(*layers, nn.Flatten())


def tokens(m: Any, idx: Tensor, targets: Any = None) -> Tensor:
    places = m.places(torch.arange(idx.shape[1]))
    return m.head(m.table(idx) + places)


def noisy(m: Any, x: Tensor, t: Tensor) -> Tensor:
    return m.first(x) + m.steps(t)[:, :, None, None]


def sigma(m: Any, x: Tensor, sigma: Tensor) -> Tensor:
    return m.first(x) + m.scale(sigma[:, None])[:, :, None, None]


def messages(m: Any, x: Tensor, edge_index: Tensor) -> Tensor:
    return m.first(x).index_add(0, edge_index[0], m.first(x)[edge_index[1]])


FITTING: dict[str, tuple[nn.Module, dict[str, str], int]] = {
    "tokens": (
        module(tokens, table=nn.Embedding(50, 8), places=nn.Embedding(128, 8), head=nn.Linear(8, 50)),
        {"idx": "1x128 int64"}, 2 * 128 * 8 * 50,
    ),
    "noise": (
        module(lambda m, z: m.first(z), first=nn.Linear(100, 64)),
        {"z": "1x100 float32"}, 2 * 100 * 64,
    ),
    "digits": (
        module(lambda m, x: m.head(m.body(x)), body=conv(1, 6, 16), head=nn.Linear(256, 10)),
        {"x": "1x1x28x28 float32"}, 2 * (24 * 24 * 6 * 25 + 8 * 8 * 16 * 6 * 25 + 256 * 10),
    ),
    "small photos": (
        module(lambda m, img: m.head(m.body(img)), body=conv(3, 6, 16), head=nn.Linear(400, 10)),
        {"img": "1x3x32x32 float32"}, 2 * (28 * 28 * 6 * 75 + 10 * 10 * 16 * 150 + 400 * 10),
    ),
    "step by its number": (
        module(noisy, first=nn.Conv2d(3, 8, 3), steps=nn.Embedding(1000, 8)),
        {"x": "1x3x224x224 float32", "t": "1 int64"}, 2 * 222 * 222 * 8 * 27,
    ),
    "step by its noise": (
        module(sigma, first=nn.Conv2d(3, 8, 3), scale=nn.Linear(1, 8)),
        {"x": "1x3x224x224 float32", "sigma": "1 float32"}, 2 * 222 * 222 * 8 * 27 + 2 * 8,
    ),
    "state and action": (
        module(lambda m, obs, act: m.first(torch.cat([obs, act], -1)), first=nn.Linear(14, 8)),
        {"obs": "1x7 float32", "act": "1x7 float32"}, 2 * 14 * 8,
    ),
    "kinds and numbers": (
        module(lambda m, x_categ, x_cont: m.table(x_categ).sum(1) + m.first(x_cont),
               table=nn.Embedding(20, 8), first=nn.Linear(6, 8)),
        {"x_categ": "1x128 int64", "x_cont": "1x6 float32"}, 2 * 6 * 8,
    ),
    "edges": (
        module(messages, first=nn.Linear(16, 8)),
        {"x": "1x16 float32", "edge_index": "2x128 int64"}, 2 * 2 * 16 * 8,
    ),
    "channels last": (
        module(lambda m, x: m.first(x.transpose(1, 2)), first=nn.Conv1d(9, 3, 3)),
        {"x": "1x128x9 float32"}, 2 * 126 * 3 * 27,
    ),
    "ids that come as numbers": (
        module(lambda m, feats: m.first(m.table(feats.long())),
               table=nn.Embedding(50, 8), first=nn.Linear(8, 8)),
        {"feats": "1x128 int64"}, 2 * 128 * 8 * 8,
    ),
    "two at once": (
        module(lambda m, x, y: m.first(x, y), first=nn.Bilinear(3, 5, 7)),
        {"x": "1x3 float32", "y": "1x5 float32"}, 2 * 3 * 5 * 7 + 2 * 5 * 7,
    ),
    "recurrent": (
        module(lambda m, seq, hidden=None: m.first(seq, hidden)[0], first=nn.GRU(12, 5)),
        {"seq": "128x1x12 float32"}, 2 * 128 * 3 * 5 * (12 + 5),
    ),
}  # fmt: skip


@cache
def profiled(name: str) -> opgraph.Profile:
    return opgraph.profile(FITTING[name][0])


SLOW = {"digits", "small photos", "step by its number", "state and action"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in FITTING]
)
def test_inputs_are_found(name: str) -> None:
    _, expected, flops = FITTING[name]
    profile = profiled(name)
    assert shapes(profile) == expected
    assert profile.totals.flops == flops
    assert profile.graph.failed is None


@pytest.mark.slow
def test_what_was_guessed_is_said() -> None:
    assert profiled("step by its number").model.notes == (
        "guessed from what the model's layers take: t",
        "inputs found by trying: 1x3x224x224 float32, 1 int64",
    )
    assert not opgraph.profile(nn.Sequential(nn.Linear(4, 4))).model.notes


def test_what_cannot_be_found_is_an_error_with_what_was_tried() -> None:
    def picky(m: Any, x: Tensor) -> Tensor:
        if x.shape[0] != 77:
            raise ValueError("seventy-seven, or nothing")
        return m.first(x)

    with pytest.raises(opgraph.InputError, match="no inputs were found that Made takes") as raised:
        opgraph.profile(module(picky, first=nn.Linear(4, 4)))
    assert "seventy-seven, or nothing" in str(raised.value)
    assert "(tried 1x4 float32; 1x128x4 float32" in str(raised.value)
    partial = opgraph.profile(module(picky, first=nn.Linear(4, 4)), partial=True)
    assert any(note.startswith("tried 1x4 float32") for note in partial.model.notes)
    with pytest.raises(opgraph.TraceError, match="seventy-seven, or nothing"):  # not a guess
        opgraph.profile(module(picky, first=nn.Linear(4, 4)), input_shape=(1, 4))


@pytest.mark.slow
def test_inputs_that_a_person_gives_are_not_replaced() -> None:
    model, *_ = FITTING["digits"]
    with pytest.raises(opgraph.TraceError, match="Linear takes 256 features"):
        opgraph.profile(model, torch.ones(1, 1, 64, 64))
    with pytest.raises(opgraph.InputError, match="no inputs were found that Made takes"):
        opgraph.profile(model, image_size=64)


def test_arguments_that_may_be_left_out_are_made_where_without_them_no_weight_is_read() -> None:
    def forward(self: nn.Module, image: Tensor | None = None, text: Tensor | None = None) -> Any:
        seen = None if image is None else self.see(image).flatten(1)
        read = None if text is None else (self.words(text) + self.places).mean(1)
        return (
            self.scale.exp() if seen is None or read is None else self.scale.exp() * seen @ read.T
        )

    made = module(forward, see=nn.Conv2d(3, 8, 32, 32), words=nn.Embedding(50, 392))
    made.places = nn.Parameter(torch.zeros(16, 392))
    made.scale = nn.Parameter(torch.ones(()))
    found = opgraph.profile(made)
    assert shapes(found) == {"image": "1x3x224x224 float32", "text": "1x16 int64"}
    assert "none is needed, and these were made: image, text" in found.model.notes
    (note,) = opgraph.profile(made, kwargs={}).model.notes
    assert note.startswith("forward reads 1 of the ")


def test_arguments_that_may_be_left_out_are_made_where_the_model_fails_without_them() -> None:
    def forward(self: nn.Module, tokens: Tensor | None = None, embeds: Tensor | None = None) -> Any:
        return self.fc(self.emb(tokens) if embeds is None else embeds)

    found = opgraph.profile(module(forward, emb=nn.Embedding(10, 16), fc=nn.Linear(16, 4)))
    said = "it fails without those that may be left out, and these were made: tokens, embeds"
    assert found.totals.flops > 0
    assert said in found.model.notes
