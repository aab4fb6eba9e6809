"""Comparisons point at exactly what differs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from torch import nn

import opgraph
from opgraph import Profile, RenderError
from opgraph.analysis.compare.alignment import Change
from opgraph.analysis.compare.comparison import compared
from opgraph.analysis.tree import ItemKind

Saved = Callable[[str], Profile]


def differing(change: Change) -> list[tuple[str, str | None, str | None]]:
    """Status and both paths of the modules that differ themselves."""
    return [
        (c.status, c.before and c.before.path, c.after and c.after.path)
        for c in change.walk()
        if c.details or c.status in ("added", "removed", "renamed")
    ]


def test_a_changed_layer_is_the_only_difference(saved: Saved) -> None:
    (change,) = compared([saved("resnet18").on(), saved("resnet18-changed").on()]).changes
    assert differing(change) == [
        ("changed", "layer2.0.conv2", "layer2.0.conv2"),
        ("changed", "layer3.1.relu", "layer3.1.relu"),
    ]
    details = [c.details for c in change.walk() if c.details]
    assert details[0] == ("weight 128x128x5x5, was 128x128x3x3",)
    assert details[1][0] == "SiLU, was ReLU"


def test_a_profile_differs_in_nothing_from_itself(saved: Saved) -> None:
    comparison = compared([saved("gpt2").on(), saved("gpt2").on()])
    assert comparison.changes[0].status == "same"
    assert comparison.nodes() == ()
    assert all(c.same for c in comparison.operators())
    assert comparison.to_dict()["changes"] == [[]]


def test_half_of_berts_layers_are_gone_in_distilbert(saved: Saved) -> None:
    (change,) = compared(
        [saved("bert-base-uncased").on(), saved("distilbert-base-uncased").on()]
    ).changes
    found = {(status, before): after for status, before, after in differing(change)}
    assert found["removed", "encoder.layer.[6-11]"] is None
    assert found["removed", "pooler"] is None
    assert found["changed", "encoder"] == "transformer"
    assert found["changed", "encoder.layer.[0-5]"] == "transformer.layer.[0-5]"
    assert found["renamed", "encoder.layer.[0-5].intermediate.dense"] == (
        "transformer.layer.[0-5].ffn.lin1"
    )


def test_at_another_length_every_costly_module_changes_and_none_is_lost(saved: Saved) -> None:
    (change,) = compared(
        [saved("bert-base-uncased").on(), saved("bert-base-uncased-512").on()]
    ).changes
    assert {c.status for c in change.walk()} == {"same", "changed"}
    layers = next(c for c in change.walk() if c.count == 12)
    assert (layers.before and layers.before.path) == "encoder.layer.[0-11]"


@pytest.mark.parametrize("name", ["gpt2", "resnet50", "yolov8n"])
def test_what_is_folded_is_what_the_tree_folds(saved: Saved, name: str) -> None:
    costed = saved(name).on()
    (change,) = compared([costed, costed]).changes
    tree = costed.tree
    folds = {
        (tree.title(item), item.count)
        for item in tree.items
        if item.kind is ItemKind.FOLD and item.member.kind is ItemKind.MODULE
    }
    assert {(c.either.path, c.count) for c in change.walk() if c.count > 1} == folds


def mlp(*widths: int) -> nn.Module:
    layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    return nn.Sequential(*layers)


@pytest.mark.slow
def test_a_layer_put_in_between_is_one_addition_and_the_rest_is_renamed() -> None:
    comparison = opgraph.compare(mlp(8, 16, 32, 64), mlp(8, 16, 16, 32, 64))
    assert differing(comparison.changes[0]) == [
        ("added", None, "1"),
        ("renamed", "1", "2"),
        ("renamed", "2", "3"),
    ]


def test_folded_neighbours_keep_their_costs() -> None:
    comparison = opgraph.compare(mlp(8, 8, 8, 8, 4), mlp(8, 8, 8, 8, 8, 8, 4))
    change = comparison.changes[0]
    added = [c for c in change.walk() if c.status == "added"]
    assert [c.count for c in added] == [2]
    assert sum(c.after.flops for c in change.children if c.after) == change.either.flops


def test_nodes_are_aligned_within_their_modules(saved: Saved) -> None:
    comparison = compared([saved("resnet18").on(), saved("resnet18-changed").on()])
    assert [
        (n.module, n.before and n.before.id, n.after and n.after.id) for n in comparison.nodes()
    ] == [
        ("layer2.0.conv2", 23, 23),
        ("layer3.1.relu", 47, None),
        ("layer3.1.relu", 51, None),
        ("layer3.1.relu", None, 47),
        ("layer3.1.relu", None, 51),
    ]


def test_labels_tell_profiles_of_one_name_apart(saved: Saved) -> None:
    comparison = compared(
        [saved("bert-base-uncased").on(), saved("bert-base-uncased-512").on(), saved("gpt2").on()]
    )
    assert comparison.labels[0].startswith("bert-base-uncased  input_ids 1x128 int64")
    assert comparison.labels[1].startswith("bert-base-uncased  input_ids 1x512 int64")
    assert comparison.labels[2] == "gpt2"


def test_one_profile_is_no_comparison(saved: Saved) -> None:
    with pytest.raises(RenderError, match="nothing to compare with"):
        compared([saved("gpt2").on()])
