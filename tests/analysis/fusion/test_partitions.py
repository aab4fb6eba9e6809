"""The compiler's own groups."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import opgraph
from opgraph import Profile
from opgraph.analysis.compiled import compiled_groups
from opgraph.record.errors import ProfileError
from opgraph.views import render

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def resnet() -> Profile:
    return opgraph.profile("resnet18", inductor=True, target="cpu")


@pytest.mark.slow
def test_torchinductor_takes_normalization_addition_and_activation_together(resnet):
    """Convolutions are calls of a library on the CPU: 20 of them, and the linear layer. Between them, one
    kernel each for normalization and what follows (a downsampling's two normalizations are one)."""
    graph = resnet.graph
    names = [tuple(graph.node(i).name for i in g) for g in compiled_groups(resnet.compiled) if g]
    assert ("conv1",) in names
    assert ("bn1", "relu") in names
    assert ("layer1.0.bn2", "layer1.0.add", "layer1.0.relu_1") in names
    assert len([n for n in names if any("bn" in part for part in n)]) == 17


@pytest.mark.slow
def test_every_node_is_in_exactly_one_subgraph(resnet):
    costed = resnet.on(partition="inductor")
    assert sorted(i for p in costed.parts for i in p.nodes) == [n.id for n in resnet.graph.nodes]
    compiled = resnet.on(run="compiled")
    assert sum(p.launches for p in costed.parts) == len(resnet.compiled.kernels)
    assert compiled.totals.cost.formula == len(resnet.compiled.kernels)


@pytest.mark.slow
def test_the_groups_are_kept_in_the_file(resnet, saved):
    again = Profile.from_dict(json.loads(resnet.to_json()))
    assert again == resnet
    assert "71 nodes in 41 subgraphs" in render("table", again.on(partition="inductor"))
    data = json.loads(resnet.to_json())
    for broken in ([0], [10_000], ["1"], [True], 3):
        data["inductor"]["kernels"][0]["nodes"] = broken
        with pytest.raises(ProfileError):
            Profile.from_dict(data)
    with pytest.raises(opgraph.RenderError, match="does not have TorchInductor's groups"):
        render("table", saved("resnet18").on(partition="inductor"))


@pytest.mark.slow
def test_a_compiled_profile_is_dynamos(resnet):
    assert resnet.tracing.tracer == "dynamo"
    with pytest.raises(opgraph.InputError, match="what Dynamo captures"):
        opgraph.profile("resnet18", inductor=True, tracer="fx")
    assert replace(resnet, compiled=None).totals == resnet.totals
