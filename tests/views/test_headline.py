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
    bound, share = max(costed.waits.items(), key=lambda w: w[1])
    assert said.startswith(f"{profile.model.name} on {costed.device.name}, ")
    waits = (
        costed.prediction.limiting if costed.hosted else f"{units.percent(share)} of the time is "
    )
    assert f": {costed.prediction.written}; {waits}" in said
    calls = f"it, in {spot.nodes} operator calls" if bound is Bound.LAUNCH else "it"
    of = "its work" if costed.hosted else calls
    assert said.endswith(f"; costliest {spot.label}, {units.percent(spot.share)} of {of}.")
    assert meaning


def test_where_the_host_is_the_limit_it_says_so_and_what_the_device_works_for(saved: Saved) -> None:
    """Its attention itself makes most calls, and its activation most work for the device."""
    costed = saved("gpt2").on("h100-sxm")
    assert "the device works for 1.3 ms, and waits for launches 81.7 % of the time; costliest " in (
        said := headline(costed)[0]
    )
    assert said.endswith("h.[0-11].mlp.act, 26.8 % of its work.")
    facts = explained(facts_of(costed, "gpt2"), width=500)
    assert "h.[0-11].mlp.act: 26.8 % of the device's work." in facts
    by_host = table(costed, sort="host", top=3, width=100).splitlines()
    assert [line.split()[0] for line in by_host[3:6]] == ["GPT2Model", "h.[0-11]", "h.[0-11].attn"]
    assert "more row" in by_host[6]
    assert by_host[7].startswith("Left out: ")
    assert any(line.endswith("% device") for line in by_host)


def test_what_only_looks_at_data_has_no_costliest_operators() -> None:
    """It waits for the host all the time, and the device does nothing."""
    costed = opgraph.profile(nn.Flatten(), torch.randn(2, 4, 4)).on("h100-sxm")
    assert costed.hosted
    assert "operator  nodes" not in table(costed)
    assert facts_of(costed, "x")[-1].text.endswith("no data is moved.")


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
