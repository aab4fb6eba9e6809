"""Results as a person holds them, on saved profiles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import opgraph
from opgraph import InputError, Profile, RenderError

Saved = Callable[[str], Profile]


def test_the_shares_of_bounds_are_the_whole(saved: Saved) -> None:
    for hardware in (None, "h100-sxm", "rtx-4090"):
        costed = saved("gpt2").on(hardware)
        assert sum(b.share for b in costed.bounds) == pytest.approx(1)
        assert sum(b.nodes for b in costed.bounds) == len(costed.node_bounds)


def test_a_device_is_named_or_given(saved: Saved) -> None:
    from opgraph.hardware import device

    profile = saved("resnet18")
    assert profile.on("h100-sxm").seconds == profile.on(device("h100-sxm")).seconds
    with pytest.raises(opgraph.OpgraphError, match="h200-nvx"):
        profile.on("h200-nvx")


def test_a_profile_without_a_device_has_no_time(saved: Saved) -> None:
    costed = saved("resnet18").on()
    assert (costed.ridge, costed.seconds, costed.fits, costed.prediction) == (
        10.0,
        None,
        None,
        None,
    )
    with pytest.raises(RenderError, match="needs a device"):
        _ = costed.roofline


def test_autocast_is_heeded_once(saved: Saved) -> None:
    lower = saved("resnet18").on(autocast="float16")
    assert lower.totals.flops == saved("resnet18").totals.flops
    assert lower.main_dtype == "float16"
    with pytest.raises(InputError, match="'float8' is not a choice"):
        saved("resnet18").on(autocast="float8")


def test_modules_and_operators_add_up(saved: Saved) -> None:
    """To what the device works, which is less than a run whose limit is the host."""
    costed = saved("bert-base-uncased").on("h100-sxm")
    modules = costed.by_module()
    assert costed.hosted
    works = costed.prediction.device_seconds
    assert modules[""].seconds == pytest.approx(works) != costed.seconds
    assert sum(row.seconds or 0 for row in costed.by_op().values()) == pytest.approx(works)
    assert modules["encoder.layer.0"].share == pytest.approx(
        modules["encoder.layer.0"].seconds / works
    )
    assert [n.id for n in modules["encoder.layer.0"].nodes] == sorted(
        n.id for n in costed.nodes if n.module.startswith("encoder.layer.0")
    )


def test_an_unknown_name_says_what_is_near(saved: Saved) -> None:
    with pytest.raises(InputError, match=r"no module 'encoder\.layer\.O'") as raised:
        saved("bert-base-uncased").by_module()["encoder.layer.O"]
    assert "encoder.layer" in (raised.value.hint or "")
    assert raised.value.__notes__ == [f"hint: {raised.value.hint}"]


def test_nodes_know_their_neighbours(saved: Saved) -> None:
    nodes = saved("resnet18").nodes
    assert [u.id for u in nodes[0].users] == [s.id for s in (nodes[1],)]
    assert nodes[1].sources == () or nodes[1].sources[0].id == nodes[0].id
    assert "conv2d" in repr(nodes[1])


def test_what_is_saved_is_read_again(saved: Saved, tmp_path: Path) -> None:
    profile = saved("gpt2")
    costed = profile.on("h100-sxm")
    costed.save(tmp_path / "gpt2.json")
    assert opgraph.load(tmp_path / "gpt2.json") == profile
    data = json.loads((tmp_path / "gpt2.json").read_text())
    assert data["costed"]["ridge"] == costed.ridge
    assert data["costed"]["prediction"]["seconds"] == costed.seconds
    assert "costed" not in json.loads(profile.to_json())


def test_a_suffix_that_nothing_writes_is_an_error(saved: Saved, tmp_path: Path) -> None:
    for result, suffix in (
        (saved("resnet18"), "docx"),
        (opgraph.compare(saved("resnet18"), saved("resnet50")), "svg"),
    ):
        with pytest.raises(RenderError, match=rf"no view is written to \.{suffix}"):
            result.save(tmp_path / f"x.{suffix}")
    with pytest.raises(RenderError, match=r"no picture is written to \.csv"):
        saved("resnet18").draw(tmp_path / "x.csv")
    assert not list(tmp_path.iterdir())


def test_an_option_that_is_not_heeded_is_an_error(saved: Saved, tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="csv heeds no option 'depth'"):
        saved("resnet18").save(tmp_path / "x.csv", depth=2)


@pytest.mark.parametrize(
    ("name", "options", "asked"),
    [
        ("x.csv", {"tensor_parallel": 2}, "tensor_parallel"),
        ("x.svg", {"hardware": "h100-sxm", "pipeline_parallel": 2}, "pipeline_parallel"),
        ("x.graphml", {"partition": "none"}, "partition"),
        ("x.overlay.json", {"hardware": "t4"}, "hardware"),
    ],
)
def test_what_a_view_would_show_nothing_of_is_refused(
    saved: Saved, tmp_path: Path, name: str, options: dict[str, object], asked: str
) -> None:
    costed = saved("resnet18").on(**options)
    with pytest.raises(RenderError, match=f"^{asked} changes nothing of "):
        costed.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_comparison_refuses_what_it_would_show_nothing_of(saved: Saved, tmp_path: Path) -> None:
    models = [saved(name).on("t4", tensor_parallel=2) for name in ("resnet18", "resnet50")]
    with pytest.raises(RenderError, match="tensor_parallel changes nothing of comparison"):
        opgraph.compare(*models).save(tmp_path / "x.md")


@pytest.mark.slow
def test_subgraphs_that_were_asked_for_are_in_every_table(saved: Saved, tmp_path: Path) -> None:
    costed = saved("resnet18").on(partition="none")
    costed.save(tmp_path / "x.csv")
    header = (tmp_path / "x.csv").read_text().splitlines()[0].split(",")
    assert "fusion" in header
    assert header == ["id", *costed.to_pandas().columns]
    assert "fusion" not in saved("resnet18").to_pandas().columns


def test_a_value_that_a_view_does_not_have_is_refused(saved: Saved, tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="svg has no color_by intensity"):
        saved("resnet18").save(tmp_path / "x.svg", color_by="intensity")
    with pytest.raises(RenderError, match="model-explorer-overlay has no color_by op"):
        saved("resnet18").save(tmp_path / "x.overlay.json", color_by="op")
    with pytest.raises(RenderError, match="color_by time is of the time on a device"):
        saved("resnet18").draw(tmp_path / "x.svg", color_by="time")


def test_shares_and_order_are_of_the_time_on_a_device(saved: Saved) -> None:
    costed = saved("gpt2").on("a100")
    shares = [row.share for row in costed.by_op().values()]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    assert next(iter(saved("gpt2").by_op())) == "addmm"


@pytest.mark.slow
def test_every_result_has_a_face(saved: Saved) -> None:
    comparison = opgraph.compare(saved("resnet18"), saved("resnet50"), hardware="t4")
    for result in (saved("resnet18"), saved("resnet18").on("t4"), comparison):
        assert "resnet18" in repr(result)
        assert len(repr(result).splitlines()) == 1
        assert len(str(result).splitlines()) > 10
        assert "<" in result._repr_html_()
        assert len(result.to_pandas())


def test_a_costed_model_is_compared_on_its_own_device(saved: Saved) -> None:
    found = opgraph.compare(saved("resnet18").on("t4"), saved("resnet50").on("t4"))
    assert found.device is not None
    with pytest.raises(InputError, match="has its device"):
        opgraph.compare(saved("resnet18").on("t4"), saved("resnet50"), hardware="t4")


def test_what_is_not_taken_is_named(saved: Saved) -> None:
    profile = saved("resnet18")
    for asked in (
        lambda: opgraph.profile("resnet18", batchsize=2),
        lambda: opgraph.profile("resnet18", hardware="h100-sxm"),
        lambda: opgraph.compare(profile, profile, nonsense=1),
        lambda: opgraph.sweep("resnet18", bath_size=[1]),
        lambda: profile.by_module(deth=1),
    ):
        with pytest.raises(InputError, match="does not take") as error:
            asked()
        assert error.value.hint
    with pytest.raises(InputError, match="traced already"):
        opgraph.compare(profile, profile, seq_len=512)
    for options in ({"bogus": 1}, {"depth": 2}):
        for ask in (profile.widget, profile.view):
            with pytest.raises(RenderError, match="heeds no option"):
                ask(**options)
    with pytest.raises(RenderError, match="which file"):
        profile.view()
    with pytest.raises(InputError, match="depth: -1 is not a whole number"):
        profile.by_module(depth=-1)
    with pytest.raises(InputError, match="a sweep over what"):
        opgraph.sweep("resnet18")


def test_a_fold_is_all_of_its_modules_together(saved: Saved) -> None:
    profile = saved("gpt2")
    modules = profile.by_module()
    fold, parts = modules["h.[0-3].attn"], [modules[f"h.{i}.attn"] for i in range(4)]
    assert fold.flops == sum(part.flops for part in parts)
    assert fold.parameters == sum(part.parameters or 0 for part in parts)
    assert fold.count == 4
    assert [n.id for n in fold.nodes] == sorted(n.id for part in parts for n in part.nodes)
    tree = profile.on().tree
    for item in tree.repeats():
        assert modules[tree.title(item)].flops == tree.cost(item).flops
    with pytest.raises(InputError, match="no module"):
        modules["h.[0-3].atn"]


def test_flops_are_the_same_in_every_table_of_bounds(saved: Saved) -> None:
    from opgraph.views.text.overview import overview_data

    for hardware in (None, "h100-sxm"):
        found = overview_data(saved("gpt2").on(hardware))
        assert [b["flops"] for b in found["bounds"]] == [b["flops"] for b in found["bottlenecks"]]
        assert sum(b["flops"] for b in found["bounds"]) == saved("gpt2").totals.flops


@pytest.mark.slow
def test_formulas_are_of_the_precision_and_the_convention(saved: Saved) -> None:
    whole = opgraph.sweep("resnet18", symbolic=True, image_size=32).profile
    assert whole is not None
    assert whole.formulas is not None
    assert Profile.of(whole).on(autocast="float16").profile.formulas is None


def test_a_graph_of_nothing_is_shown_by_every_view(tmp_path: Path, saved: Saved) -> None:
    data = saved("resnet18").to_dict()
    scopes = [{**s, "inputs": [], "outputs": []} for s in data["graph"]["scopes"][:1]]
    data["graph"] = {key: [] for key in data["graph"]} | {"scopes": scopes}
    path = tmp_path / "empty.json"
    path.write_text(json.dumps(data))
    empty = opgraph.load(path)
    for suffix in ("txt", "md", "svg", "mmd", "dot", "csv", "html", "json"):
        empty.save(tmp_path / f"x.{suffix}")
    empty.save(tmp_path / "x.trace.json", hardware="h100-sxm")


def test_models_on_different_devices_are_told_apart(saved: Saved) -> None:
    one = saved("resnet18")
    assert opgraph.compare(one.on("h100-sxm"), one.on("rtx-4090")).labels == (
        "resnet18  NVIDIA H100 SXM5 80GB",
        "resnet18  NVIDIA GeForce RTX 4090",
    )
    with pytest.raises(InputError, match="on a device, and another is not"):
        opgraph.compare(one.on(), one.on("h100-sxm"))


def test_subgraphs_are_objects_with_their_cost(saved: Saved) -> None:
    """Those of the partition add up to the whole; any nodes are one, and a profile of their own."""
    profile = saved("bert-base-uncased")
    costed = profile.on("h100-sxm", run="graphs")
    parts = costed.subgraphs
    for figure in ("flops", "bytes"):
        assert sum(getattr(p, figure) for p in parts) == getattr(costed.totals, figure)
    assert sum(p.seconds for p in parts) == pytest.approx(sum(costed.seconds_by_node.values()))
    fused = max(parts, key=lambda p: len(p.nodes))
    assert fused.fused_bytes < fused.bytes
    assert all(n.record.scope.startswith(fused.module) for n in fused.nodes)
    assert fused.to_dict()["rule"] == fused.rule

    layer = costed.subgraph("encoder.layer.3")
    assert layer.module == "encoder.layer.3"
    assert costed.subgraph([n.id for n in layer.nodes]).cost == layer.cost
    alone = costed.extract(layer)
    assert (alone.totals.flops, alone.totals.bytes) == (layer.flops, layer.bytes)
    assert alone.on("h100-sxm").seconds == pytest.approx(
        layer.seconds, rel=0.02
    )  # its input is far
    assert opgraph.Profile.from_dict(alone.to_dict()) == alone
    assert profile.extract(layer.nodes).graph == alone.graph
    assert alone.run == costed.run
    for wrong, said in (
        ([], "no node"),
        ([10**6], "no node 1000000"),
        ("encoder.leyer", "no module"),
    ):
        with pytest.raises(InputError, match=said):
            costed.subgraph(wrong)


@pytest.mark.live
def test_a_part_of_a_training_knows_its_forwards_and_what_was_substituted_in_it() -> None:
    """Of both dropouts the second; each backward stands behind the node that it belongs to."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 4), nn.Dropout())
    whole = opgraph.profile(model, torch.zeros(2, 4), mode="train", loss="sum", target="cuda")
    part = whole.extract([n.id for n in whole.graph.nodes if n.scope in ("2", "3")])
    assert [(s.op, s.count) for s in whole.target.substitutions] == [("dropout", 2), ("adamw", 1)]
    assert [(s.op, s.count) for s in part.target.substitutions] == [("dropout", 1), ("adamw", 1)]
    graph = part.graph
    back = {n.op: graph.node(n.forward).op for n in graph.nodes if n.forward is not None}
    assert {back["mm"], back["native_dropout_backward"]} == {"linear", "dropout"}


@pytest.mark.live
def test_a_forward_that_fails_is_given_no_latency_and_no_advice() -> None:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 4))
    said = str(opgraph.profile(model, torch.zeros(2, 4), partial=True).on("t4"))
    assert "the figures are those of the part that ran" in said
    assert not any(word in said for word in ("Latency", "Throughput", "would help"))
