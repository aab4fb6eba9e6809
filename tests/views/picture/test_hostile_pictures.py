"""A model whose names attack whatever shows them: every format still draws, and nothing runs."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import torch
from tests.conftest import MERMAID
from torch import nn

import opgraph
from opgraph import Profile
from opgraph.views import render

NAMES = (
    "<script>alert(1)</script>",
    "\"' onload='alert(1)' x=\"",
    "line\nbreak\rand\ttab",
    "--> ]]> */ end\nclick n1 href",
    "=HYPERLINK('http://x')",
    "😀\u202eevil\x1b[31m\x00",
    "<img src=x onerror=alert(1)>",
    "`|**[x](javascript:alert(1))**",
    "</TD></TABLE>> & &#60;b&#62; \\N \\G \\",
    "x" * 5_000,
)


class Raises(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("</text><script>alert(2)</script> \" ' -->\n=cmd|' /C calc'!A0")


@pytest.fixture(scope="module")
def hostile() -> Profile:
    inner = nn.Sequential()
    for width, name in enumerate(NAMES, start=4):  # of unlike sizes, so that none is folded away
        layers = nn.Sequential(nn.Linear(width, width + 1), nn.ReLU())
        inner.add_module(name.replace(".", "·"), layers)
    model = nn.Sequential()
    model.add_module("<b onclick=alert(1)>", inner)
    model.add_module("<svg/onload=alert(1)>", Raises())
    return opgraph.profile(model, torch.zeros(1, 4), partial=True)


def test_svg_is_only_shapes_and_text(hostile: Profile) -> None:
    for options in ({}, {"depth": 1}, {"depth": 99, "parameters": True}):
        root = ET.fromstring(render("svg", hostile.on(), **options))  # type: ignore[arg-type]
        tags = {e.tag.rpartition("}")[2] for e in root.iter()}
        assert tags <= {"svg", "title", "desc", "style", "g", "rect", "text", "path", "polygon"}
        assert not [a for e in root.iter() for a in e.attrib if a.lower().startswith("on")]
        shown = [t.text or "" for t in root.iter() if t.tag.endswith("text")]
        assert any("<script>" in t for t in shown)
        assert max(map(len, shown)) < 200


@pytest.mark.slow
@pytest.mark.parametrize("form", ["svg", "html-of-svg"])
def test_nothing_runs_in_a_browser(
    hostile: Profile, chromium: Any, tmp_path: Path, form: str
) -> None:
    svg = str(render("svg", hostile.on()))
    path = tmp_path / ("a.svg" if form == "svg" else "a.html")
    path.write_text(svg if form == "svg" else f"<!doctype html><body>{svg}</body>", "utf-8")
    page = chromium.new_page()
    ran: list[str] = []
    page.on("dialog", lambda d: (ran.append(d.message), d.dismiss()))
    page.on("pageerror", lambda e: ran.append(str(e)))
    page.on("request", lambda r: r.url.startswith(("file:", "data:")) or ran.append(r.url))
    page.goto(path.as_uri())
    page.wait_for_timeout(200)
    assert page.locator("svg script, svg [onload], svg foreignObject").count() == 0
    assert page.locator("g.box").count() > len(NAMES)
    assert not ran
    page.close()


def test_graphviz_draws_it(hostile: Profile) -> None:
    pygraphviz = pytest.importorskip("pygraphviz")
    dot = str(render("dot", hostile.on()))
    graph = pygraphviz.AGraph(string=dot)
    drawn = ET.fromstring(graph.draw(format="svg", prog="dot"))
    assert not [e for e in drawn.iter() if e.tag.endswith(("script", "image"))]
    assert any("<script>" in (e.text or "") for e in drawn.iter())


@pytest.mark.skipif(not MERMAID.exists(), reason="npm ci in tests/foreign brings Mermaid")
def test_mermaid_draws_it(hostile: Profile, chromium: Any) -> None:
    page = chromium.new_page()
    ran: list[str] = []
    page.on("dialog", lambda d: (ran.append(d.message), d.dismiss()))
    page.add_script_tag(path=str(MERMAID))
    svg = page.evaluate(
        """async (text) => {
            mermaid.initialize({startOnLoad: false, securityLevel: "loose"});
            return (await mermaid.render("drawn", text)).svg;
        }""",
        render("mermaid", hostile.on()),
    )
    page.set_content(svg)
    assert page.locator("script, [onclick], [onload], [onerror], img").count() == 0
    assert page.locator("g.node").count() > len(NAMES)
    assert not ran
    page.close()


@pytest.mark.slow
def test_pdf_and_png_show_it(hostile: Profile) -> None:
    pdfium = pytest.importorskip("pypdfium2")
    text = pdfium.PdfDocument(render("pdf", hostile.on()))[0].get_textpage().get_text_range()
    assert "<script>" in text
    assert bytes(render("png", hostile.on()))[:4] == b"\x89PNG"  # type: ignore[arg-type]


def test_no_cell_is_a_formula(hostile: Profile) -> None:
    rows = list(csv.reader(io.StringIO(str(render("csv", hostile.on())))))
    assert not [c for row in rows[1:] for c in row if c[:1] in ("=", "+", "-", "@", "\t", "\r")]


def test_markdown_stays_text(hostile: Profile) -> None:
    report = str(render("markdown", hostile.on()))
    tables = [line for line in report.splitlines() if line.startswith("|")]
    assert tables
    assert not [line for line in tables if "<" in line.replace("\\<", "")]
    assert not [line for line in tables if "](" in line.replace("\\]", "").replace("\\(", "")]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["graphml", "model-explorer", "parquet"])
def test_other_formats_carry_it(hostile: Profile, form: str) -> None:
    content = render(form, hostile.on())
    assert content
    if form == "graphml":
        assert ET.fromstring(content).tag.endswith("graphml")
