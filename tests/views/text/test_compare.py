"""Comparisons as a person sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import opgraph
from opgraph import InputError, Profile
from opgraph.analysis.compare.comparison import compared
from opgraph.record import units
from opgraph.views.text.compare import comparison_markdown, comparison_text

Saved = Callable[[str], Profile]
Golden = Callable[[str, str], None]
GATES = ["flops > +2%", "coverage < 100%"]
PAIRS = {
    "other-depth": ("resnet18", "resnet50"),
    "distilled": ("bert-base-uncased", "distilbert-base-uncased"),
    "other-size": ("bert-base-uncased", "bert-base-uncased-512"),
    "one-layer": ("resnet18", "resnet18-changed"),
}


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("pair", PAIRS)
def test_comparisons_look_like_their_goldens(
    saved: Saved, golden: Golden, pair: str, width: int
) -> None:
    comparison = compared([saved(name).on() for name in PAIRS[pair]], fail_if=GATES)
    text = comparison_text(comparison, width=width)
    assert max(map(len, text.splitlines())) <= width
    golden(text, f"compare-{pair}-{width}.txt")


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("by", ["op", "node"])
def test_by_operator_and_by_node(saved: Saved, golden: Golden, by: str, width: int) -> None:
    comparison = compared([saved(name).on() for name in PAIRS["distilled"]])
    golden(comparison_text(comparison, by=by, width=width), f"compare-by-{by}-{width}.txt")


@pytest.mark.parametrize("width", [80, 140])
def test_many_profiles(saved: Saved, golden: Golden, width: int) -> None:
    names = ["resnet18", "resnet18-changed", "resnet50", "yolov8n"]
    comparison = compared([saved(name).on() for name in names], fail_if=GATES)
    golden(comparison_text(comparison, width=width, depth=1), f"compare-many-{width}.txt")


@pytest.mark.parametrize("by", ["module", "op", "node"])
def test_on_a_device_changes_are_those_of_time(saved: Saved, by: str) -> None:
    costed = [saved(name).on("l4", run="graphs") for name in PAIRS["one-layer"]]
    comparison = compared(costed)
    text = comparison_text(comparison, by=by, width=80)
    assert max(map(len, text.splitlines())) <= 80
    starts = {"module": ["~", "conv2", "Conv2d"], "op": ["~", "conv2d", "20", "20"],
              "node": ["~", "23", "23", "conv2d"]}[by]  # fmt: skip
    (row,) = [line for line in text.splitlines() if line.split()[: len(starts)] == starts]
    ids = [n.id for n in costed[0].graph.nodes if n.op == "conv2d"] if by == "op" else [23]
    for one in costed:
        assert f" {units.seconds(sum(one.seconds_by_node[i] for i in ids))} " in row
    assert row.endswith(" %")


def test_a_model_on_two_devices_shows_where_the_time_went(saved: Saved) -> None:
    """Also of layers that are one row, of which the first takes longer than the others."""
    profile = saved("gpt2")
    comparison = compared([profile.on("h100-sxm"), profile.on("l4", run="graphs")])
    (change,) = comparison.changes
    assert {c.status for c in change.walk()} == {"same"}
    layers = next(c for c in change.walk() if c.count == 12)
    for at, costed in enumerate(comparison.models):
        inside = [n.id for n in costed.graph.nodes if n.scope.startswith("h.")]
        assert change.seconds[at] == pytest.approx(sum(costed.seconds_by_node.values()))
        assert layers.seconds[at] == pytest.approx(
            sum(costed.seconds_by_node.get(i, 0.0) for i in inside)
        )
    text = comparison_text(comparison, width=80)
    assert f" {units.seconds(layers.seconds[0])} " in text
    for said in (text, comparison_markdown(comparison)):
        assert "by module; times are the device's" in " ".join(said.split())


@pytest.mark.parametrize(
    "others", [["resnet50"], ["resnet50", "gpt2"], ["resnet50", "gpt2", "yolov8n"]]
)
def test_totals_are_whole_in_a_narrow_terminal(saved: Saved, others: list[str]) -> None:
    comparison = compared([saved(name).on() for name in ("resnet18", *others)])
    totals = comparison_text(comparison, width=60).partition("From A")[0]
    assert "Parameters" in totals
    assert "…" not in totals


def test_markdown_for_a_pull_request(saved: Saved, golden: Golden) -> None:
    comparison = compared([saved(name).on() for name in PAIRS["one-layer"]], fail_if=GATES)
    golden(comparison_markdown(comparison), "compare-one-layer.md")


def test_one_gate_is_a_text(saved: Saved) -> None:
    comparison = opgraph.compare(saved("resnet18"), saved("resnet50"), fail_if="flops > +2%")
    assert [v.gate.text for v in comparison.broken] == ["flops > +2%"]


@pytest.mark.parametrize("options", [{"by": "colour"}, {"depth": -1}])
def test_what_cannot_be_shown_is_refused(
    saved: Saved, tmp_path: Path, options: dict[str, object]
) -> None:
    with pytest.raises(InputError):
        opgraph.compare(saved("resnet18"), saved("resnet50")).save(tmp_path / "x.txt", **options)
