"""Sums: the parts make the whole, however they are cut."""

from __future__ import annotations

import re

import pytest

from opgraph.analysis.cost.totals import Cost, classify, cost_of, module_tree

PROFILES = ["resnet18", "bert-base-uncased", "gpt2", "yolov8n"]


@pytest.mark.parametrize("name", PROFILES)
def test_module_totals_are_the_sums_of_their_nodes(name, saved):
    profile = saved(name)
    graph, rows = profile.graph, profile.by_module()
    for module in module_tree(graph).walk():
        inside = [
            n for n in graph.nodes
            if not module.path or n.scope == module.path or n.scope.startswith(module.path + ".")
        ]  # fmt: skip
        assert module.cost == cost_of(inside), module.path
        assert module.cost == sum((c.cost for c in module.children), module.own)
        assert rows[module.path].cost == module.cost
    root = profile.by_module(depth=0)[""]
    assert root.cost == profile.totals.cost
    assert root.parameters == profile.totals.parameters


def test_what_an_interpreter_echoes_is_one_line(saved):
    profile = saved("resnet18")
    assert repr(profile) == "<Profile resnet18: 71 nodes, 3.63 GFLOPs, 11.69M parameters>"
    assert re.fullmatch(r"<Graph: 71 nodes, \d+ values, 68 modules>", repr(profile.graph))
    assert "children" not in repr(module_tree(profile.graph))
    assert "Bottlenecks" in str(profile)


@pytest.mark.parametrize("name", PROFILES)
def test_operators_add_up_to_the_totals(name, saved):
    profile = saved(name)
    assert sum((o.cost for o in profile.by_op().values()), Cost()) == profile.totals.cost


@pytest.mark.parametrize(
    ("intensity", "expected"),
    [(None, None), (0.0, "memory"), (4.99, "memory"), (5.0, "balanced"), (20.0, "balanced"),
     (20.01, "compute")],
)  # fmt: skip
def test_bottleneck_at_a_ridge_point_of_ten(intensity, expected):
    assert classify(intensity) == expected
