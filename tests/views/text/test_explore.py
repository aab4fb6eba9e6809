"""The explorer's texts as a person sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from opgraph import Profile
from opgraph.analysis.selection import Filter, Range, edges, select
from opgraph.cli.explore import offers, welcome
from opgraph.views.text.card import card
from opgraph.views.text.explain import explained, facts_of
from opgraph.views.text.explore import gutter, node_list
from opgraph.views.text.overview import overview

Saved = Callable[[str], Profile]
Golden = Callable[[str, str], None]
WIDTHS = [80, 140]
RESNETS = [f"resnet{layers}" for layers in (18, 34, 50, 101, 152)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["resnet18", "bert-base-uncased", "yolov8n", "gpt2"])
def test_the_overview_looks_like_its_golden(
    saved: Saved, golden: Golden, name: str, width: int
) -> None:
    golden(overview(saved(name).on(), width=width), f"overview-{name}-{width}.txt")


def test_a_costliest_module_that_holds_others_is_said_to_be_counted_without_them(
    saved: Saved,
) -> None:
    """The table has 35.1 % for the whole of an attention that takes 2.7 % itself."""
    costed = saved("gpt2").on()
    text = overview(costed, width=140)
    for spot in costed.tree.hot_spots(5):
        assert f" {spot.label}  {spot.cls} " in text
    assert " h.[0-11].attn itself  " in text


def test_names_come_before_shares_in_a_narrow_terminal(saved: Saved) -> None:
    text = overview(saved("bert-base-uncased").on(), width=60)
    assert max(map(len, text.splitlines())) <= 60
    for name in ("compute ", "layer_norm ", "Costliest modules ", "key "):
        assert name in text


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("name", ["gpt2", "yolov8n"])
@pytest.mark.parametrize("device", [None, "l4"])
def test_names_cut_for_a_narrow_terminal_still_tell_rows_apart(
    saved: Saved, name: str, device: str | None, width: int
) -> None:
    costed = saved(name).on(device) if device else saved(name).on()
    text = overview(costed, width=width)
    _, _, after = text.partition("\nCostliest modules")
    rows = [line.split("  ")[1] for line in after.partition("\n\n")[0].splitlines()[1:]]
    assert len(set(rows)) == len(rows) == 5
    for row, spot in zip(rows, costed.tree.hot_spots(5), strict=True):
        head, tail = row.partition("…")[0], row.rpartition("…")[2]
        assert spot.label.startswith(head)
        assert spot.label.endswith(tail)
        assert set(tail[:1]) <= {"."} or row == spot.label
        if width >= 80 and name == "gpt2":
            assert f"{row}  {spot.cls} " in after


def test_every_text_says_of_an_argument_with_many_tensors_how_many_they_are(saved: Saved) -> None:
    profile = saved("resnet18")
    graph = replace(profile.graph, inputs=profile.graph.inputs * 48)
    costed = replace(profile, graph=graph).on()
    for text in (overview(costed), explained(facts_of(costed, "x")), card(costed)):
        assert "x 48 tensors, 27.56 MiB" in text
        assert text.count("1x3x224x224") < 48


@pytest.mark.parametrize("width", WIDTHS)
def test_a_fact_is_as_wide_as_the_terminal_and_its_command_one_line(
    saved: Saved, width: int
) -> None:
    text = explained(facts_of(saved("bert-base-uncased").on("l4"), "x"), width)
    assert max(len(line) for line in text.splitlines() if " $ " not in line) <= width
    assert text.count("\n      $ opgraph ") == 10


@pytest.mark.parametrize("width", WIDTHS)
def test_the_welcome_looks_like_its_golden(golden: Golden, width: int) -> None:
    offered = {
        "torchvision": RESNETS,
        "hf-type:NAME": ["bert", "gpt2", "t5"],
        "timm": ["levit_128"],
    }
    golden(welcome(offered, color=False, width=width), f"welcome-{width}.txt")
    assert {"torchvision", "hf", "timm", "hf-type:NAME"} <= offers().keys()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("label", "name", "where", "which"),
    [
        ("range", "bert-base-uncased", Range(start=8, end=39), Filter()),
        ("around", "resnet18", Range(around=22, context=9), Filter()),
        ("filter", "yolov8n", Range(), Filter(op="conv2d", min_flops=1.5e8)),
        ("ends", "gpt2", Range(start=520, end=600), Filter()),
        ("nothing", "gpt2", Range(), Filter(min_flops=1e30)),
        ("long", "resnet18", Range(around=22, context=9), Filter()),
    ],
)
def test_the_list_of_nodes_looks_like_its_golden(
    saved: Saved, golden: Golden, label: str, name: str, where: Range, which: Filter, width: int
) -> None:
    profile = saved(name)
    costed = profile.on()
    text = node_list(costed, select(costed, where, which), width=width, long=label == "long")
    assert max(map(len, text.splitlines())) <= width
    golden(text, f"nodes-{label}-{width}.txt")


@pytest.mark.parametrize("width", WIDTHS)
def test_predicted_times_on_a_device(saved: Saved, golden: Golden, width: int) -> None:
    profile = saved("resnet18")
    costed = profile.on("rtx-4090")
    chosen = select(costed, Range(start=1, end=12))
    text = node_list(costed, chosen, width=width, subgraphs=False)
    golden(text, f"nodes-timed-{width}.txt")


def test_a_block_of_bert_in_the_gutter(saved: Saved) -> None:
    ids = [15, 18, 21, 24, 30, 31, 32]
    graph = saved("bert-base-uncased").graph
    rows = gutter(ids, edges(graph, [11, *ids]), before=[11])
    assert [rows[i].line.rstrip() for i in ids] == [
        "├─●",
        "├─┊─●",
        "├─┊─┊─●",
        "│ ●─┴─╯",
        "│ ●",
        "│ ●",
        "●─╯",
    ]


@pytest.mark.parametrize("name", ["resnet18", "gpt2", "yolov8n"])
@pytest.mark.parametrize("lanes", [3, 40])
def test_lanes_never_run_into_each_other(saved: Saved, name: str, lanes: int) -> None:
    """A lane that is open below a node is open above the next: no line begins or ends in the air."""
    profile = saved(name)
    ids = [n.id for n in profile.graph.nodes]
    rows = gutter(ids, edges(profile.graph, ids), lanes=lanes)
    widths = {len(r.line) for r in rows.values()} | {len(r.below) for r in rows.values()}
    assert len(widths) == 1
    for one, two in pairwise(ids):
        below, line = rows[one].below, rows[two].line
        for column, sign in enumerate(below):
            if sign in "│┊":
                assert line[column] != " "
            elif line[column] in "├┤┼┴╯╰│┊":
                pytest.fail(f"node {two} joins a lane that nobody opened")


def test_what_a_model_calls_itself_cannot_write_to_the_terminal(saved: Saved) -> None:
    profile = saved("resnet18")
    nodes = tuple(replace(n, name=f"\x1b[31m{n.name}\n") for n in profile.graph.nodes)
    hostile = replace(profile, graph=replace(profile.graph, nodes=nodes))
    text = node_list(hostile.on(), select(hostile.on(), Range(start=1, end=5)))
    assert "\x1b" not in text
    assert len(text.splitlines()) == len(
        node_list(profile.on(), select(profile.on(), Range(start=1, end=5))).splitlines()
    )
