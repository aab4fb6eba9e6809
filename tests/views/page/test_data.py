"""What Python gives to the page: the tree, the times of distinct work, and what became of every node."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest

import opgraph
from opgraph import Profile
from opgraph.analysis.costed import costed
from opgraph.analysis.selection import heaviest_path
from opgraph.hardware import device, devices
from opgraph.views.details import plumbing
from opgraph.views.page.data import page_data

Saved = Callable[[str], Profile]


def data_of(profile: Profile, hardware: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(page_data(profile.on(hardware))))
    return found


def work_of(data: dict[str, Any]) -> list[int]:
    """By node its distinct work, as the page reads it."""
    return [ord(character) - ord("1") for character in data["work"]]


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        "gpt2",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("bert-base-uncased", "yolov8n")),
    ],
)
def test_it_looks_like_its_golden(
    saved: Saved, golden: Callable[[str, str], None], name: str
) -> None:
    """The tests of the viewer read these goldens, too."""
    data = data_of(saved(name))
    del data["profile"], data["marks"]
    data["devices"] = [d for d in data["devices"] if d["id"] == "h100-sxm"]
    golden(json.dumps(data, separators=(",", ":")).replace('],"', '],\n"') + "\n", f"{name}.json")


@pytest.mark.slow
@pytest.mark.live
def test_a_device_runs_the_attention_that_it_chooses() -> None:
    profile = opgraph.profile(
        "HuggingFaceTB/SmolLM2-135M",
        dtype="bfloat16",
        seq_len=2048,
        model_args={"num_hidden_layers": 1},
    )
    given = {d["id"]: d["said"] for d in data_of(profile)["devices"]}
    for name in ("h100-sxm", "a100-sxm4-80gb", "t4"):
        found = profile.on(name).prediction
        assert found is not None
        assert given[name] == found.said
    plain = costed(profile, device("h100-sxm"))
    assert plain.profile.target != profile.target  # by cuDNN there, which is quicker than flash


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "yolov8n"])
def test_every_device_has_the_times_that_python_predicts(saved: Saved, name: str) -> None:
    data = data_of(saved(name))
    given = {d["id"]: d for d in data["devices"]}
    assert list(given) == [d.id for d in devices()]
    for machine in devices():
        c = costed(saved(name), machine)
        found = given[machine.id]
        queues = {
            name: [taken[kind] / 1e6 if kind >= 0 else 0.0 for kind in work_of(data)]
            for name, taken in found["queues"].items()
        }
        assert c.prediction is not None
        assert sum(queues["device"]) == pytest.approx(c.prediction.device_seconds, rel=1e-8)
        assert sum(queues["host"]) == pytest.approx(c.prediction.host_seconds, rel=1e-8)
        assert found["seconds"] == pytest.approx(c.prediction.seconds, rel=1e-8)
        assert found["limit"] == (c.prediction.limiting if c.hosted else "")
        assert found["said"] == c.prediction.said
        assert found["ridge"] == c.ridge
        bounds = {i + 1: found["bounds"][kind] for i, kind in enumerate(work_of(data)) if kind >= 0}
        told = {node: bound[0] for node, bound in c.node_bounds.items()}
        assert {node: bounds[node] for node in told} == told
        assert not any(queues["device"][node - 1] for node in bounds.keys() - told.keys())


def test_a_measured_run_goes_into_the_page_by_node_and_by_stream(saved: Saved) -> None:
    run = saved("resnet18-run")
    found, measured = data_of(run)["measured"], run.on().named_measurement()
    assert {node: us / 1e6 for node, us in found["nodes"]} == pytest.approx(measured.by_node)
    assert list(found["lanes"]) == ["thread 0"]
    for part, (begin, length, node, name) in zip(
        measured.run.timeline, found["lanes"]["thread 0"], strict=True
    ):
        event = measured.run.events[part.event]
        assert [begin / 1e6, length / 1e6] == pytest.approx([part.start, part.seconds], rel=1e-6)
        assert (node, found["names"][name]) == (event.nodes[0] if event.nodes else 0, event.name)


@pytest.mark.slow
def test_the_sizes_that_are_offered_cost_what_the_formulas_say(saved: Saved) -> None:
    profile = saved("resnet18-formulas")
    formulas, found = profile.formulas, data_of(profile)["sizes"]
    assert formulas is not None
    offered = [v["offered"] for v in found["variables"]]
    assert {1, 8, 32, 128} <= {*offered[0]}
    assert 224 in offered[1]
    kinds = [ord(character) - ord("1") for character in found["nodes"]]
    points = list(product(*offered))
    for point, total, costs in zip(points, found["totals"], found["costs"], strict=True):
        at = formulas.at(B=point[0], N=point[1])
        assert total == [at[q] for q in ("flops", "other_flops", "bytes", "peak_memory")]
        sums = [sum(costs[kind][q] for kind in kinds) for q in range(3)]
        assert sums == pytest.approx(total[:3], rel=1e-9)
    own = points.index(formulas.point())
    assert [found["costs"][own][kind][0] for kind in kinds] == [n.flops for n in profile.nodes]


def test_what_only_looks_at_data_or_steers_is_plumbing_however_much_it_moves(saved: Saved) -> None:
    graph = saved("bert-base-uncased").graph
    reads = [graph.reads(node) for node in graph.nodes]
    hidden = plumbing(graph, reads, (), ())
    views = [n.op for n, is_hidden in zip(graph.nodes, hidden, strict=True) if is_hidden]
    assert {"reshape", "transpose"} <= {*views}
    assert not {"linear", "layer_norm", "embedding"} & {*views}
    inputs = {n.name: h for n, h in zip(graph.nodes, hidden, strict=True) if n.kind == "input"}
    assert not inputs["input_ids"]
    # Its mask is only looked at: it masks nothing.
    gpt2 = saved("gpt2").graph
    unread = plumbing(gpt2, [gpt2.reads(node) for node in gpt2.nodes], (), ())
    found = [n.name for n, h in zip(gpt2.nodes, unread, strict=True) if h and n.kind == "input"]
    assert found == ["attention_mask"]
    for kind in ("control", "constant"):
        at = next(i for i, n in enumerate(graph.nodes) if n.kind == "call" and not hidden[i])
        nodes = [replace(n, kind=kind) if i == at else n for i, n in enumerate(graph.nodes)]
        assert plumbing(replace(graph, nodes=tuple(nodes)), reads, (), ())[at]


def test_a_device_of_ones_own_is_among_those_of_the_page(saved: Saved) -> None:
    own = replace(device("a10"), id="mine", name="My own")
    data = json.loads(json.dumps(page_data(saved("gpt2").on(own))))
    assert data["device"] == "mine"
    assert [d["name"] for d in data["devices"] if d["id"] == "mine"] == ["My own"]


def test_equal_layers_have_one_work(saved: Saved) -> None:
    data = data_of(saved("gpt2"))
    nodes = saved("gpt2").graph.nodes
    same = {work_of(data)[n.id - 1] for n in nodes if n.name.endswith(".mlp.c_fc.addmm")}
    assert len(same) == 1


def test_the_costliest_path_is_the_heaviest_of_all() -> None:
    """Against all chains of random graphs."""
    draw = Random(3)
    for _ in range(40):
        read = [draw.sample(range(1, i), min(i - 1, draw.randint(0, 3))) for i in range(1, 10)]
        weights = [draw.randint(0, 9) for _ in read]
        chains: list[list[int]] = [[]]
        for node, made in enumerate(read, start=1):
            chains += [[*c, node] for c in chains if not c or c[-1] in made]
        found = heaviest_path(read, weights)
        assert found in chains
        assert sum(weights[n - 1] for n in found) == max(
            sum(weights[n - 1] for n in chain) for chain in chains
        )
    assert heaviest_path([], []) == []
