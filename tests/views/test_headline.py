"""The sentence that says where the cost is, in the words of the figures that every view shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.conftest import DATA

from opgraph import Profile
from opgraph.analysis.costed import CostedRecord
from opgraph.record import units
from opgraph.record.loading import load
from opgraph.views.headline import headline
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
    assert said.endswith(f"; costliest {spot.label}, {units.percent(spot.share)} of it.")
    assert meaning


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


def test_it_stands_at_the_end_of_the_table(saved: Saved) -> None:
    costed = saved("gpt2").on("h100-sxm")
    lines = table(costed, width=400).rstrip().splitlines()
    assert tuple(line.rstrip() for line in lines[-2:]) == headline(costed)
