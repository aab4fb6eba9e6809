"""One saved profile on one device, read through every view: the same ridge point, the same shares of
bounds, the same latency, and for modules the same "each, x n, of the total". (The page is read in a
browser, in tests/views/page/test_one_truth.py.)"""

from __future__ import annotations

import base64
import io
import json
import re
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest

import opgraph
from opgraph import Costed
from opgraph.analysis.tree import Item, ItemKind, Metric
from opgraph.cli import main
from opgraph.record import units
from opgraph.record.kinds import Bound
from opgraph.views.headline import whole_of

DATA = Path(__file__).parent / "data"
HARDWARE = "h100-sxm"
TRACED = {
    "llama": ("meta-llama/Llama-3.1-405B", {"seq_len": 512}),
    "swin": ("swin_t", {}),
}
NAMES = ["gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("yolov8n", *TRACED))]


@pytest.fixture(scope="module", params=NAMES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name: str = request.param
    if name not in TRACED:
        return DATA / f"{name}.json"
    model, options = TRACED[name]
    found = tmp_path_factory.mktemp("traced") / f"{name}.json"
    opgraph.profile(model, **options).save(found)
    return found


@pytest.fixture(scope="module")
def costed(path: Path) -> Costed:
    return opgraph.load(path).on(HARDWARE)


Said = Callable[..., str]


@pytest.fixture(scope="module")
def said(path: Path) -> Said:
    """What a command prints; each is run once."""

    @cache
    def run(command: str, *more: str) -> str:
        with redirect_stdout(io.StringIO()) as out, pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", "200")
            assert main([command, str(path), *more, "--hardware", HARDWARE]) == 0
        return out.getvalue()

    return run


def modules(costed: Costed) -> list[Item]:
    """Up to ten modules with FLOPs, the first of them in a repeat where there is one."""
    kinds = (ItemKind.MODULE, ItemKind.FOLD)
    shown = [i for i in costed.tree.root.shown() if i.kind in kinds and i.path]
    found = [i for i in shown if costed.tree.total(Metric.FLOPS, i)]
    return sorted(found, key=lambda i: -i.times)[:10]


def test_the_ridge_point_is_the_same(
    path: Path, costed: Costed, said: Said, tmp_path: Path
) -> None:
    ridge = f"{costed.ridge:.4g}"
    assert f"ridge {ridge} FLOPs/byte" in said("profile")
    assert f"Bottlenecks, ridge {ridge}" in said("explore")
    assert json.loads(said("explore", "--json"))["ridge"] == costed.ridge
    assert json.loads(said("profile", "--json"))["costed"]["ridge"] == costed.ridge
    assert json.loads(said("compare", str(path), "--json"))["totals"]["ridge"] == [costed.ridge] * 2
    costed.draw(tmp_path / "x.svg")
    texts = [t.text or "" for t in ET.parse(tmp_path / "x.svg").iter() if t.tag.endswith("}text")]
    assert any(f"at a ridge of {ridge} FLOPs/byte" in t for t in texts)


def test_the_shares_of_bounds_are_the_same(path: Path, costed: Costed, said: Said) -> None:
    shares = {b.bound.value: b.share for b in costed.bounds}
    table = said("profile").partition("Bottlenecks on")[2]
    for bound, share in shares.items():
        (row,) = re.findall(rf"^\W*{bound} +[\d,]+ +([\d.<>]+ %)", table, re.MULTILINE)
        assert row == units.percent(share)
    sentence = ", ".join(f"{units.percent(b.share)} {b.bound.label}" for b in costed.bounds)
    assert f"{sentence} of {whole_of(costed, Metric.SECONDS)}" in " ".join(said("explore").split())
    for command in ("explore", "profile"):
        data = json.loads(said(command, "--json"))
        found = data["bounds"] if command == "explore" else data["costed"]["bounds"]
        assert {b["bound"]: b["share"] for b in found} == shares
    totals = json.loads(said("compare", str(path), "--json"))["totals"]
    waits = {b.value: costed.waits.get(b, 0.0) for b in map(Bound, shares)}
    assert data["costed"]["waits"] == {b: share for b, share in waits.items() if share}
    assert {b: totals[f"{b}_bound"][0] for b in shares} == waits


def test_the_latency_is_the_same(path: Path, costed: Costed, said: Said) -> None:
    assert costed.seconds is not None
    assert costed.prediction is not None
    text = units.between(costed.seconds, *costed.prediction.interval)
    assert re.search(rf"^Latency +{re.escape(text)} predicted", said("profile"), re.MULTILINE)
    assert f"{text} on {costed.device.name}" in said("explore")  # type: ignore[union-attr]
    assert json.loads(said("explore", "--json"))["seconds"] == costed.seconds
    data = json.loads(said("profile", "--json"))
    assert data["costed"]["prediction"]["seconds"] == costed.seconds
    totals = json.loads(said("compare", str(path), "--json"))["totals"]
    assert totals["latency"] == [costed.seconds] * 2


def test_each_times_and_share_of_modules_are_the_same(
    costed: Costed, said: Said, tmp_path: Path
) -> None:
    chosen = modules(costed)
    assert len(chosen) >= 5
    table = said("profile", "--depth", "99")
    costed.draw(tmp_path / "x.svg", depth=99)
    picture = (tmp_path / "x.svg").read_text("utf-8")
    by_flops = said("profile", "--depth", "99", "--sort", "flops")
    for item in chosen:
        flops, time = (costed.tree.share(m, item) for m in (Metric.FLOPS, Metric.SECONDS))
        assert flops.total == flops.each * flops.times
        share = re.escape(units.percent(time.share))
        assert re.search(rf" {re.escape(units.seconds(time.total))} +{share}", table), item.path
        share = re.escape(units.percent(flops.share))
        assert re.search(rf" {re.escape(units.count(flops.total))} +{share}", by_flops), item.path
        if flops.times > 1:
            each = rf"{re.escape(units.count(flops.each))} +× {flops.times} +"
            assert re.search(each + re.escape(units.count(flops.total)), table), item.path
            taken = units.seconds(time.total / time.times)
            assert f"{taken} ·" in picture or f"each {taken}" in picture, item.path
        assert units.percent(time.share) in picture, item.path


def test_the_time_of_modules_is_the_same_in_python(costed: Costed) -> None:
    rows = costed.by_module()
    for item in modules(costed):
        if item.times == 1 and item.kind is ItemKind.MODULE and not item.call:
            total = costed.tree.figures(item).seconds
            assert total is not None
            assert rows[item.path].seconds == pytest.approx(total.total)


@pytest.mark.parametrize(
    ("file", "more", "of"),
    [
        ("resnet18", [], "the FLOPs"),
        ("resnet18", ["--hardware", "l4"], "the device's work"),
        ("resnet18", ["--hardware", "epyc-9654"], "the time"),
        ("resnet18-run", [], "the measured time"),
        ("resnet18-run", ["--hardware", "l4"], "the measured time"),
    ],
)
def test_what_the_shares_are_of_is_the_same(
    file: str, more: list[str], of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the facts, on the card, in the overview and in the sentence below the table: that of the costliest
    module."""
    path = str(DATA / f"{file}.json")
    device = more[1] if more else None
    costed = opgraph.load(path).on(device)
    spot = costed.tree.hot_spots(1)[0]
    share, said = units.percent(spot.share), {}
    for command in ("explain", "card", "explore", "profile"):
        assert main([command, path, *more]) == 0
        said[command] = " ".join(capsys.readouterr().out.split())
    assert f"the costliest part is {spot.path}: {share} of {of}." in said["explain"]
    assert f"| costliest modules | share of {of} |" in said["card"]
    assert re.search(
        rf"Costliest modules [^%]* {re.escape(spot.path)} [^%]* {share} ", said["explore"]
    )
    of = {"the time": "it", "the device's work": "its work"}.get(of, of)
    assert f"{spot.path}, {share} of {of}." in said["profile"]


BLOCK = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256), nn.LayerNorm(256))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        "graphs",
        *(pytest.param(how, marks=pytest.mark.live) for how in ("engine", "compiled,graphs")),
    ],
)
def test_how_it_is_run_is_the_same(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the table, the overview, a list of nodes, the picture and the page: the time and the bytes of the
    kernels that run so, and in words that they do."""
    monkeypatch.setenv("COLUMNS", "200")
    model = [str(DATA / "gpt2.json")]
    if how == "engine":
        model = ["gpt2", "--mode", "decode", "--model-arg", "n_layer=2"]
    elif how != "graphs":
        (tmp_path / "block.py").write_text(BLOCK)
        model = [f"{tmp_path}/block.py:build", "--input-shape", "8x256"]

    def said(command: str, *more: str) -> str:
        assert main([command, *model, "--hardware", HARDWARE, "--run", how, *more]) == 0
        return capsys.readouterr().out

    said("profile", "-o", f"{tmp_path}/kept.json")
    model = [f"{tmp_path}/kept.json"]  # traced once
    words = {"engine": "through an engine", "compiled,graphs": "compiled, as graphs"}.get(
        how, "as graphs"
    )
    costed = json.loads(said("profile", "--json"))["costed"]
    latency = units.between(costed["prediction"]["seconds"], *costed["prediction"]["interval"])
    assert f"{latency} predicted {words} for a batch" in said("profile")
    assert f"{latency} on NVIDIA H100 SXM5 80GB {words}," in said("explore")
    overview = json.loads(said("explore", "--json"))
    assert overview["seconds"] == costed["prediction"]["seconds"]
    assert overview["bounds"] == costed["bounds"]
    nodes = json.loads(said("explore", "--start", "1", "--json"))["nodes"]
    assert sum(n["seconds"] or 0.0 for n in nodes) == pytest.approx(overview["seconds"])
    said("draw", "-o", f"{tmp_path}/x.svg")
    assert f"{latency} {words}" in (tmp_path / "x.svg").read_text("utf-8")
    said("view", "-o", f"{tmp_path}/x.html")
    found = re.search('id="opgraph-data">([^<]+)', (tmp_path / "x.html").read_text("utf-8"))
    assert found is not None
    page = json.loads(zlib.decompress(base64.b64decode(found[1])))
    (device,) = (d for d in page["devices"] if d["id"] == HARDWARE)
    assert device["said"] == f"{latency} {words}"
    kernels = page["profile"]["graph"]["kernels"]
    moved = [sum(sum(kernels[k].get(way, 0) for way in ("read", "written")) for k in n.get("kernels", ()))
             for n in page["profile"]["graph"]["nodes"]]  # fmt: skip
    assert moved == [n["bytes"] for n in nodes]
    assert sum(moved) == overview["totals"]["bytes_read"] + overview["totals"]["bytes_written"]
    ran = page.get("ran") or [n.get("kernels", ()) for n in page["profile"]["graph"]["nodes"]]
    assert sum(ord(k) - 49 if "ran" in page else len(k) for k in ran) == len(page["live"][1])
