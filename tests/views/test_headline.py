"""The sentence that says where the cost is, in the words of the figures that every view shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.conftest import DATA
from torch import nn

import opgraph
from opgraph import Profile
from opgraph.analysis.costed import CostedRecord
from opgraph.record import units
from opgraph.record.kinds import Bound
from opgraph.record.loading import load
from opgraph.views.headline import headline
from opgraph.views.picture.picture import picture
from opgraph.views.text.explain import explained, facts_of
from opgraph.views.text.overview import overview
from opgraph.views.text.table import table

Saved = Callable[[str], Profile]


@pytest.mark.parametrize("name", ["gpt2", "resnet18", "yolov8n", "bert-base-uncased"])
@pytest.mark.parametrize("hardware", ["h100-sxm", "l4", "epyc-9654"])
def test_on_a_device_it_says_how_long_why_and_where(saved: Saved, name: str, hardware: str) -> None:
    profile = saved(name)
    costed = profile.on(hardware)
    said, meaning = headline(costed)
    assert costed.prediction is not None
    assert costed.device is not None
    spot = costed.hotspots[0]
    most = max(costed.bounds, key=lambda b: b.share)
    assert said.startswith(f"{profile.model.name} on {costed.device.name}, ")
    assert f": {costed.prediction.written}; {units.percent(most.share)} of the time is " in said
    calls = f", in {spot.nodes} operator calls" if most.bound is Bound.LAUNCH else ""
    assert said.endswith(f"; costliest {spot.label}, {units.percent(spot.share)} of it{calls}.")
    assert meaning


def test_where_launches_are_the_limit_it_says_how_many_calls_the_costliest_makes(
    saved: Saved,
) -> None:
    """What its attention computes itself is 2.7 % of the FLOPs: the time is that of its calls."""
    costed = saved("gpt2").on("h100-sxm")
    said = "h.[0-11].attn itself, 25.2 % of it, in 204 operator calls."
    assert said in headline(costed)[0]
    assert "25.2 % of the time, in 204 operator calls" in explained(facts_of(costed, "gpt2"))
    assert len(costed.tree.hot_spots(1)[0].leaves) == 204 / 12


def test_without_a_device_it_says_what_is_known(saved: Saved) -> None:
    said, meaning = headline(saved("resnet18").on())
    assert said.startswith("resnet18, 1x3x224x224: 3.63 GFLOPs; ")
    assert said.endswith(" of the FLOPs.")
    assert "--hardware" in meaning


def test_inputs_beyond_two_shapes_are_counted(saved: Saved) -> None:
    record = load(DATA / "resnet18.json")
    for count, listed in ((2, "{} and {}"), (4, "{}, {} and 2 more")):
        values = list({v.shape: v for v in record.graph.values}.values())[:count]
        graph = replace(record.graph, inputs=tuple(v.id for v in values))
        shapes = [units.shape(v.shape) for v in values]
        said, _ = headline(CostedRecord(replace(record, graph=graph)))
        assert said.startswith(f"resnet18, {listed.format(*shapes)}: ")


class Passing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_a_forward_that_does_no_work_is_said_to_do_none() -> None:
    profile = opgraph.profile(Passing(), torch.ones(1, 3))
    for costed in (profile.on(), profile.on("h100-sxm")):
        assert headline(costed) == (
            "Passing, 1x3: its forward does no work: nothing is computed, and no data is moved.", ""
        )  # fmt: skip
        shown = table(costed, width=100)
        assert "no kernel is run" in shown
        for figure in ("Throughput", "operator "):
            assert figure not in shown
        text = overview(costed)
        assert "costliest" not in text
        assert "the first 2 nodes" in text
    assert picture(profile.on()).summary() == "2 boxes and 1 edge"


def test_it_stands_at_the_end_of_the_table(saved: Saved) -> None:
    costed = saved("gpt2").on("h100-sxm")
    lines = table(costed, width=400).rstrip().splitlines()
    assert tuple(line.rstrip() for line in lines[-2:]) == headline(costed)
