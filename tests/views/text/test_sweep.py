"""Sweeps as a person sees them, and as files."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from opgraph import Profile, RenderError
from opgraph.analysis.scaling.sweep import SweepPoint, point_of
from opgraph.results import Sweep
from opgraph.views.page.sweep import html, png, svg
from opgraph.views.tables import csv_text, rows_parquet
from opgraph.views.text.sweep import sweep_text

Saved = Callable[[str], Profile]
Golden = Callable[[str, str], None]


@pytest.fixture
def lengths(saved: Saved) -> Sweep:
    """BERT at two lengths, and one that is too long for it."""
    points = (
        point_of(saved("bert-base-uncased").on(), {"seq_len": 128}),
        point_of(saved("bert-base-uncased-512").on(), {"seq_len": 512}),
        SweepPoint({"seq_len": 600}, {}, error="node 9 (add): RuntimeError: 600 is too long"),
    )
    return Sweep("bert-base-uncased", {"seq_len": (128, 512, 600)}, points)


@pytest.mark.parametrize("width", [80, 140])
def test_points_look_like_their_golden(lengths: Sweep, golden: Golden, width: int) -> None:
    cheap = replace(lengths, points=tuple(replace(p, ridge=60.0) for p in lengths.points))
    golden(sweep_text(cheap, width=width), f"sweep-points-{width}.txt")


def test_where_launches_are_all_that_a_run_waits_for_none_of_it_is_arithmetic(saved: Saved) -> None:
    point = point_of(saved("gpt2").on("h100-sxm"), {"seq_len": 128})
    assert (point.compute_share, point.values["launch_bound"]) == (0.0, 1.0)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_figure_of_a_point_is_cut(saved: Saved, width: int) -> None:
    """What has no room is left out whole."""
    costed = saved("bert-base-uncased").on("h100-sxm")
    sizes = {"dtype": "bfloat16", "batch_size": 64, "context_len": 512}
    found = Sweep(
        "bert-base-uncased", {n: (size,) for n, size in sizes.items()}, (point_of(costed, sizes),),
        device=costed.device,
    )  # fmt: skip
    text = sweep_text(found, width=width)
    assert "…" not in text
    assert ("FLOPs/byte" in text, "used" in text) == (width == 140, True)


@pytest.mark.parametrize("width", [80, 140])
def test_formulas_look_like_their_golden(saved: Saved, golden: Golden, width: int) -> None:
    symbolic = Sweep("resnet18", {}, (), profile=saved("resnet18-formulas"))
    golden(sweep_text(symbolic, width=width), f"sweep-formulas-{width}.txt")


def test_formulas_are_not_left_out_of_a_file_in_silence(saved: Saved, tmp_path: Path) -> None:
    symbolic = Sweep("resnet18", {}, (), profile=saved("resnet18-formulas"))
    symbolic.save(tmp_path / "x.json")
    with pytest.raises(RenderError, match="symbolic changes nothing of sweep-csv"):
        symbolic.save(tmp_path / "x.csv")


@pytest.mark.slow
def test_files_hold_every_point(lengths: Sweep) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(lengths.records()))))
    assert [r["seq_len"] for r in rows] == ["128", "512", "600"]
    assert rows[0]["flops"] == "22348431360"
    assert rows[2]["flops"] == ""
    table = pytest.importorskip("pyarrow.parquet").read_table(io.BytesIO(rows_parquet(lengths)))
    assert table.column("flops").to_pylist()[0] == 22348431360


@pytest.mark.slow
def test_pictures_and_pages(lengths: Sweep) -> None:
    pytest.importorskip("matplotlib")
    assert png(lengths).startswith(b"\x89PNG")
    drawn = ET.fromstring(svg(lengths))
    styles = [e.text for e in drawn.iter("{http://www.w3.org/2000/svg}style") if e.text]
    assert any("prefers-color-scheme:dark" in style for style in styles)
    # Each colour has its own in the dark.
    used = {
        c for e in drawn.iter() for c in re.findall(r"(?:fill|stroke): #\w+", e.get("style", ""))
    }
    assert {"fill: #ffffff", "fill: #1a1f27"} <= used
    for colour in used:
        assert any(f'[style*="{colour}"]' in style for style in styles), colour
    page = html(replace(lengths, model="<script>alert(1)</script>"))
    assert "<script" not in page
    assert "<svg" in page


def test_a_sweep_of_which_nothing_ran_says_no_ridge() -> None:
    found = Sweep("model", {"batch_size": (1,)}, (SweepPoint({"batch_size": 1}, {}, error="no"),))
    assert "ridge" not in sweep_text(found)
    assert "At batch size 1: no" in sweep_text(found)
