"""The compiler's own groups, and how two partitions are held against each other."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import opgraph
from opgraph import Profile
from opgraph.analysis.fusion.agreement import adjusted_rand, partition_agreement
from opgraph.analysis.fusion.partition import compiled, partition, singletons
from opgraph.record.errors import ProfileError
from opgraph.views import render


@pytest.fixture(scope="module")
def resnet() -> Profile:
    return opgraph.profile("resnet18", inductor=True)


def test_torchinductor_takes_normalization_addition_and_activation_together(resnet):
    """Convolutions are calls of a library on the CPU: 20 of them, and the linear layer. Between them, one
    kernel each for normalization and what follows (a downsampling's two normalizations are one)."""
    graph = resnet.graph
    names = [tuple(graph.node(i).name for i in group) for group in resnet.compiled]
    assert ("conv1",) in names
    assert ("bn1", "relu") in names
    assert ("layer1.0.bn2", "layer1.0.add", "layer1.0.relu_1") in names
    assert len([n for n in names if any("bn" in part for part in n)]) == 17


def test_every_node_is_in_exactly_one_subgraph(resnet):
    parts = compiled(resnet.graph, resnet.compiled)
    assert sorted(i for p in parts for i in p.nodes) == [n.id for n in resnet.graph.nodes]


def test_the_groups_are_kept_in_the_file(resnet, saved):
    again = Profile.from_dict(json.loads(resnet.to_json()))
    assert again == resnet
    assert "71 nodes in 41 subgraphs" in render("table", again, partition="inductor")
    data = json.loads(resnet.to_json())
    for broken in ([[1, 1]], [[0]], [[1], [10_000]], [["1"]], [[True]], 3):
        data["compiled"] = {"inductor": broken}
        with pytest.raises(ProfileError):
            Profile.from_dict(data)
    with pytest.raises(opgraph.RenderError, match="does not have TorchInductor's groups"):
        render("table", saved("resnet18"), partition="inductor")


def test_a_partition_agrees_with_itself(saved):
    graph = saved("gpt2").graph
    parts = partition(graph)
    found = partition_agreement(graph, parts, parts)
    assert (found.rand, found.agreeing) == (1.0, 1.0)
    apart = partition_agreement(graph, parts, singletons(graph))
    assert (apart.both, apart.second_only, apart.first_only) == (0, 0, found.both)
    assert apart.rand == pytest.approx(0, abs=0.01)


def test_the_adjusted_rand_index_by_hand():
    """Hubert and Arabie's formula for {1 2 3}{4 5 6} against {1 2}{3 4 5}{6}: 2 pairs together in both, 6
    and 4 in each, of 15: (2 - 24 / 15) / (5 - 24 / 15)."""
    labels = [(0, 0), (0, 0), (0, 1), (1, 1), (1, 1), (1, 2)]
    assert adjusted_rand(labels) == pytest.approx((2 - 24 / 15) / (5 - 24 / 15))
    assert adjusted_rand([(i, i) for i in range(4)]) == 1.0


def test_a_compiled_profile_is_dynamos(resnet):
    assert resnet.tracing.tracer == "dynamo"
    with pytest.raises(opgraph.InputError, match="what Dynamo captures"):
        opgraph.profile("resnet18", inductor=True, tracer="fx")
    assert replace(resnet, compiled=()).totals == resnet.totals
