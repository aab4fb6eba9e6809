"""Every exchange format, opened by a program that is not ours: pyarrow, pandas, networkx, Mermaid in a real
browser, Model Explorer's own data classes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import DATA, MERMAID

from opgraph import Profile
from opgraph.analysis.memory import memory
from opgraph.analysis.timing.prediction import predict
from opgraph.cli import main
from opgraph.hardware import device
from opgraph.views import render, view_for, views
from opgraph.views.picture.picture import picture


def links(profile: Profile) -> list[tuple[int, int]]:
    """One link for each tensor that a node reads from another."""
    producer = profile.graph.producer
    return sorted(
        (producer[v].id, n.id) for n in profile.graph.nodes for v in n.inputs if v in producer
    )


def test_csv_has_a_row_for_each_node(saved: Callable[[str], Profile]) -> None:
    profile = saved("resnet18")
    rows = list(csv.DictReader(io.StringIO(str(render("csv", profile.on())))))
    assert [int(r["id"]) for r in rows] == [n.id for n in profile.graph.nodes]
    assert sum(int(r["flops"]) for r in rows) == profile.totals.flops


@pytest.mark.slow
def test_parquet_is_read_by_pyarrow(saved: Callable[[str], Profile], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    profile = saved("resnet18")
    table = parquet.read_table(io.BytesIO(bytes(render("parquet", profile.on()))))  # type: ignore[arg-type]
    assert table.num_rows == len(profile.graph.nodes)
    assert sum(table["flops"].to_pylist()) == profile.totals.flops
    assert str(table.schema.field("arithmetic_intensity").type) == "double"


@pytest.mark.slow
def test_a_data_frame_adds_up(saved: Callable[[str], Profile]) -> None:
    pytest.importorskip("pandas")
    profile = saved("gpt2")
    frame = profile.to_pandas()
    assert frame.flops.sum() == profile.totals.flops
    assert frame.groupby("op").size()["layer_norm"] == 25
    assert frame.loc[1, "kind"] == "input"


def test_networkx_has_the_graph(saved: Callable[[str], Profile]) -> None:
    nx = pytest.importorskip("networkx")
    profile = saved("bert-base-uncased")
    graph = profile.to_networkx()
    assert sorted(graph.edges()) == links(profile)
    assert nx.is_directed_acyclic_graph(graph)
    assert graph.nodes[15]["op"] == "linear"
    assert graph.edges[11, 15, 0]["shape"] == "1x128x768"


def test_graphml_is_read_by_networkx(saved: Callable[[str], Profile]) -> None:
    nx = pytest.importorskip("networkx")
    profile = saved("resnet18")
    text = str(render("graphml", profile.on()))
    graph = nx.parse_graphml(text, node_type=int, force_multigraph=True)
    assert sorted((a, b) for a, b, _ in graph.edges) == links(profile)
    assert sum(flops for _, flops in graph.nodes(data="flops")) == profile.totals.flops
    assert graph.nodes[2]["arithmetic_intensity"] == pytest.approx(61.289902)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "gpt2"])
def test_model_explorer_takes_the_graph_and_the_overlay(
    saved: Callable[[str], Profile], name: str
) -> None:
    builder = pytest.importorskip("model_explorer.graph_builder")
    dacite = pytest.importorskip("dacite")
    profile = saved(name)
    data = json.loads(str(render("model-explorer", profile.on())))
    collection = dacite.from_dict(
        builder.GraphCollection, data, dacite.Config(strict=True, check_types=True)
    )
    (graph,) = collection.graphs
    found = [(int(e.sourceNodeId), int(n.id)) for n in graph.nodes for e in n.incomingEdges]
    assert sorted(found) == links(profile)
    assert {n.namespace for n in graph.nodes} == {
        n.scope.replace(".", "/") for n in profile.graph.nodes
    }
    overlays = pytest.importorskip("model_explorer.node_data_builder")
    overlay = json.loads(str(render("model-explorer-overlay", profile.on())))[graph.id]
    made = dacite.from_dict(overlays.GraphNodeData, overlay, dacite.Config(strict=True))
    assert sum(r.value for r in made.results.values()) == profile.totals.flops


@pytest.mark.slow
@pytest.mark.skipif(not MERMAID.exists(), reason="npm ci in tests/foreign brings Mermaid")
@pytest.mark.parametrize("name", ["resnet18", "bert-base-uncased", "yolov8n"])
def test_mermaid_draws_the_flowchart(
    saved: Callable[[str], Profile], chromium: Any, name: str
) -> None:
    depth = 2 if name == "yolov8n" else None
    drawing = picture(saved(name).on(), depth=depth).drawing
    text = render("mermaid", saved(name).on(), depth=depth)
    page = chromium.new_page()
    page.add_script_tag(path=str(MERMAID))
    svg = page.evaluate(
        """async (text) => {
            mermaid.initialize({startOnLoad: false, securityLevel: "strict"});
            await mermaid.parse(text);
            return (await mermaid.render("drawn", text)).svg;
        }""",
        text,
    )
    page.set_content(svg)
    assert page.locator("g.node").count() == len(drawing.leaves)
    assert page.locator("g.cluster").count() == len(drawing.boxes) - len(drawing.leaves)
    assert page.locator("path.flowchart-link").count() == len(drawing.edges)
    page.close()


@pytest.mark.parametrize("name", ["resnet18", "gpt2"])
def test_the_trace_keeps_the_rules_of_its_format(
    saved: Callable[[str], Profile], name: str
) -> None:
    """As the Trace Event Format has it: complete events of a thread nest, counters have numbers."""
    profile = saved(name)
    data = json.loads(str(render("trace", profile.on("h100-sxm"))))
    slices = [e for e in data["traceEvents"] if e["ph"] == "X"]
    open_until: list[float] = []
    lanes = {e["tid"]: e["args"]["name"] for e in data["traceEvents"] if e["name"] == "thread_name"}
    assert lanes == {1: "host", 2: "kernels"}  # the host is the limit
    assert {e["tid"] for e in slices if e["cat"] == "kernel"} == {2}
    for event in sorted(slices, key=lambda e: (e["tid"], e["ts"], -e["dur"])):
        assert event["dur"] >= 0
        while open_until and open_until[-1] <= event["ts"] + 1e-3:
            open_until.pop()
        end = event["ts"] + event["dur"]
        assert not open_until or end <= open_until[-1] + 2e-3
        open_until.append(end)
    predicted = predict(profile.graph, device("h100-sxm"))
    spent = {c: sum(e["dur"] for e in slices if e["cat"] == c) for c in ("operator", "kernel")}
    assert spent["operator"] == pytest.approx(predicted.seconds * 1e6, rel=1e-3)
    launched = sum(k.seconds for k in predicted.kernels if k.kernel)  # views have none
    assert spent["kernel"] == pytest.approx(launched * 1e6, rel=1e-3)
    counters = [e["args"]["bytes"] for e in data["traceEvents"] if e["ph"] == "C"]
    assert max(counters) <= memory(profile.graph).peak
    assert {e["ph"] for e in data["traceEvents"]} == {"M", "X", "C"}


@pytest.mark.parametrize("name", ["bert-base-uncased", "yolov8n"])
def test_the_report(
    saved: Callable[[str], Profile], golden: Callable[[str, str], None], name: str
) -> None:
    golden(str(render("markdown", saved(name).on())), f"report-{name}.md")


@pytest.mark.parametrize(
    ("path", "view"),
    [
        ("a.json", "json"), ("a.csv", "csv"), ("a.parquet", "parquet"), ("a.md", "markdown"),
        ("a.model-explorer.json", "model-explorer"), ("a.overlay.json", "model-explorer-overlay"),
        ("a.graphml", "graphml"), ("a.mmd", "mermaid"), ("a.DOT", "dot"), ("a.svg", "svg"),
    ],
)  # fmt: skip
def test_a_suffix_means_a_format(path: str, view: str) -> None:
    assert view_for(path).name == view


@pytest.mark.slow
def test_the_command_writes_each_format(tmp_path: Path) -> None:
    for view in views().values():
        path = tmp_path / f"resnet18{view.suffixes[0]}"
        timed = view.needs or view.name == "trace"  # which can be of a measured run as well
        needed = ["--hardware", "h100-sxm"] if timed else []
        assert main(["export", str(DATA / "resnet18.json"), *needed, "-o", str(path)]) == 0
        assert path.stat().st_size > 500


@pytest.mark.slow
def test_text_goes_to_stdout_and_bytes_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    model = str(DATA / "resnet18.json")
    assert main(["export", model, "--format", "mermaid"]) == 0
    assert capsys.readouterr().out.startswith("flowchart TB")
    assert main(["export", model, "--format", "png"]) == 2
    assert "name a file with -o" in capsys.readouterr().err
    assert main(["export", model]) == 2
    assert main(["export", model, "--format", "ogg"]) == 2
    assert main(["export", model, "--format", "trace"]) == 2
    assert "a timeline needs a device, or a run that was measured" in capsys.readouterr().err
