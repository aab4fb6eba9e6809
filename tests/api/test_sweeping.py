"""Sweeps and formulas of real models, against tracing at points that nothing was made from."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import opgraph
from opgraph import InputError, Profile
from opgraph.analysis.cost.totals import module_tree
from opgraph.analysis.quantities import peak_memory_by_module
from opgraph.record.formulas import Formulas


def agree(formulas: Formulas, traced: Profile, **sizes: int) -> None:
    """The formulas give what tracing gives, of the whole and of every module, to the digit."""
    point = formulas.point(**sizes)
    assert point not in formulas.checked
    totals = formulas.at(**sizes)
    assert totals["flops"] == traced.totals.flops
    assert totals["other_flops"] == traced.totals.other_flops
    assert totals["bytes"] == traced.totals.bytes
    peaks = peak_memory_by_module(traced.on())
    assert totals["peak_memory"] == peaks[""]
    for module in module_tree(traced.graph).walk():
        own = formulas.modules[module.path]
        assert own["flops"](point) == module.flops
        assert own["bytes"](point) == module.bytes
        assert module.path not in peaks or own["peak_memory"](point) == peaks[module.path]


@pytest.mark.slow
def test_bert_base_is_what_the_books_say() -> None:
    formulas = opgraph.sweep("bert-base-uncased", symbolic=True).formulas
    assert formulas is not None
    for s in (1, 7, 128, 333, 512):
        expected = 12 * (24 * 768**2 * s + 4 * 768 * s**2) + 2 * 768**2
        assert formulas.at(B=1, S=s)["flops"] == expected
    (piece,) = formulas.totals["flops"].pieces
    assert piece.polynomial.text(formulas.names) == ("B·(36,864·S² + 169,869,312·S + 1,179,648)")
    agree(formulas, opgraph.profile("bert-base-uncased", batch_size=3, seq_len=77), B=3, S=77)


def t5() -> nn.Module:
    """An encoder-decoder of one layer each: what it costs has many pieces, and each edge takes traces."""
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        return transformers.T5ForConditionalGeneration(transformers.T5Config(num_layers=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "kept", "unused"),
    [
        ("resnet18", {"image_size": 224}, {"batch_size": 9}),
        ("yolov8n.pt", {"image_size": 640}, {"batch_size": 9}),
        ("gpt2", {"batch_size": 1}, {"seq_len": 77}),
        (t5, {"batch_size": 1}, {"seq_len": 77}),
        ("meta-llama/Llama-3.2-1B", {"batch_size": 1}, {"seq_len": 77}),
    ],
)
def test_formulas_hold_at_a_size_that_nothing_was_made_from(
    model: str | Callable[[], nn.Module], kept: dict[str, int], unused: dict[str, int]
) -> None:
    model = model if isinstance(model, str) else model()
    # For a CPU: cuda's attention with a bias pads what it keeps, whose bytes are then no polynomial.
    formulas = opgraph.sweep(model, symbolic=True, target="cpu", **kept).formulas  # type: ignore[arg-type]
    assert formulas is not None
    assert len(formulas.checked) >= 2
    traced = opgraph.profile(model, target="cpu", **kept, **unused)  # type: ignore[arg-type]
    letter = {"batch_size": "B", "seq_len": "S"}
    agree(formulas, traced, **{letter[option]: size for option, size in unused.items()})


class Looked(nn.Module):
    """A table that is read whole once the tokens are as many as its rows, and a special batch of one."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(512, 8)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.table(input_ids)
        return x * 2 if x.shape[0] > 1 else x.relu() * 2


@pytest.mark.slow
def test_formulas_give_what_was_traced_where_they_were_checked() -> None:
    model = Looked()
    formulas = opgraph.sweep(model, symbolic=True).formulas
    assert formulas is not None
    assert len(formulas.checked) > 10
    for batch, tokens in formulas.checked:
        traced = opgraph.profile(model, batch_size=batch, seq_len=tokens).totals
        said = formulas.at(B=batch, S=tokens)
        assert said["flops"] == traced.flops
        assert said["other_flops"] == traced.other_flops
        assert said["bytes"] in (traced.bytes, None)


@pytest.mark.slow
def test_formulas_travel_with_the_profile() -> None:
    profile = opgraph.sweep("resnet18", symbolic=True, image_size=64).profile
    assert profile is not None
    assert profile.formulas is not None
    assert Profile.from_dict(json.loads(profile.to_json())) == profile
    assert "formulas" not in opgraph.profile("resnet18", image_size=64).to_dict()


@pytest.mark.slow
def test_the_bottleneck_moves_to_compute_with_the_image() -> None:
    found = opgraph.sweep("resnet18", image_size=[32, 224], batch_size=[1, 4])
    assert found.points[0].sizes == {"batch_size": 1, "image_size": 32}
    assert [p.bottleneck for p in found.points][:2] == ["memory", "compute"]
    assert "image_size" in {option for option, _, _ in found.crossings}
    for point in found.points:  # as a profile of that size says
        alone = opgraph.profile("resnet18", **point.sizes).on()  # type: ignore[arg-type]
        assert point.bottleneck == alone.by_module()[""].bound
        assert point.bounds == alone.waits
    assert found.points[0].values["flops"] * 4 == found.points[2].values["flops"]  # type: ignore[operator]


@pytest.mark.slow
def test_a_point_at_which_the_model_does_not_run_says_why() -> None:
    found = opgraph.sweep("bert-base-uncased", seq_len=[64, 600])
    assert found.points[0].error is None
    assert "512" in (found.points[1].error or "")


@pytest.mark.parametrize("sizes", [[0], [1, -2], "4", 2.5])
def test_sizes_are_looked_at_before_any_is_traced(sizes: Any) -> None:
    with pytest.raises(InputError, match="batch_size: "):
        opgraph.sweep("resnet18", batch_size=sizes)


def test_a_saved_profile_cannot_be_swept() -> None:
    with pytest.raises(InputError, match="traces the model"):
        opgraph.sweep("saved.json", batch_size=[1, 2])


@pytest.mark.slow
def test_the_docstring_says_what_is_true() -> None:
    found = opgraph.sweep("bert-base-uncased", batch_size=1, seq_len=[128, 512])
    assert [p.values["flops"] for p in found.points] == [22348431360, 96637943808]
    assert 12 * (24 * 768**2 * 300 + 4 * 768 * 300**2) + 2 * 768**2 == 54279733248


@pytest.mark.parametrize(
    "shape", [{"input_shape": (2, 3, 8, 8)}, {"input_overrides": {"input": "2x3x8x8"}}]
)
def test_a_shape_that_is_given_leaves_no_size_open(shape: dict[str, Any]) -> None:
    """At two of a batch, which the shape has, the model runs; of one point no formula is made."""
    with pytest.raises(InputError, match="the shape that is given leaves no other batch") as caught:
        opgraph.sweep(nn.Conv2d(3, 4, 3), symbolic=True, **shape)
    assert "leave out the shape" in (caught.value.hint or "")
