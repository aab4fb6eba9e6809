"""Pictures, as programs that are not ours read them: an XML parser, Graphviz, a PDF reader, an image
library."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import torch
from tests.conftest import DATA
from torch import nn

import opgraph
from opgraph import Profile, RenderError
from opgraph.analysis.tree import Metric
from opgraph.cli import main
from opgraph.record.errors import MissingDependency
from opgraph.views import render
from opgraph.views.picture import cards
from opgraph.views.picture.build import build
from opgraph.views.picture.coloring import COLORINGS, coloring
from opgraph.views.picture.fonts import font
from opgraph.views.picture.layout import Rect as Area
from opgraph.views.picture.paint import facts
from opgraph.views.picture.picture import MEDIA, Options, Picture
from opgraph.views.picture.scene import THEMES, Line, Text

SVG = "{http://www.w3.org/2000/svg}"
WHOLE: dict[str, Any] = {"depth": 99, "fold": False}


def groups(svg: str | bytes, role: str) -> list[ET.Element]:
    return [g for g in ET.fromstring(svg).iter(f"{SVG}g") if g.get("class") == role]


@pytest.mark.parametrize(
    "name", ["resnet18", pytest.param("bert-base-uncased", marks=pytest.mark.slow)]
)
def test_svg_has_the_boxes_and_edges_of_the_graph(
    saved: Callable[[str], Profile], name: str
) -> None:
    profile = saved(name)
    svg = render("svg", profile.on(), **WHOLE)
    boxes = groups(svg, "box")
    inside = [int(n) for g in boxes for n in (g.get("data-nodes") or "").split()]
    assert sorted(inside) == [n.id for n in profile.graph.nodes]
    producer = profile.graph.producer
    pairs = {(producer[v].id, n.id) for n in profile.graph.nodes for v in n.inputs if v in producer}
    drawn = [(g.get("data-source"), g.get("data-target")) for g in groups(svg, "edge")]
    assert sorted(drawn) == sorted((f"n{a}", f"n{b}") for a, b in pairs)
    texts = {t.text for t in ET.fromstring(svg).iter(f"{SVG}text")}
    assert {n.op for n in profile.graph.nodes if n.scope == ""} <= texts | {"input"}
    assert all(g.find(f"{SVG}title") is not None for g in (*boxes, *groups(svg, "edge")))


def test_what_stands_for_repetitions_says_what_each_has_and_what_all_have(
    saved: Callable[[str], Profile],
) -> None:
    svg = render("svg", saved("bert-base-uncased").on())
    shares: dict[str, float] = {}
    for group in groups(svg, "box"):
        words = [t.text or "" for t in group.iter(f"{SVG}text")]
        share, times = float(group.get("data-share", "0")), int(group.get("data-times", "1"))
        shares[group.get("data-path", "")] = share
        if times > 1 and share >= 0.0005:
            assert any(w.startswith("each ") for w in words)
            assert any(w.endswith(f"× {times}") for w in words)
            assert f"{share * 100:.1f} % of the total" in words
        elif times == 1:
            assert not any(w.startswith("each ") or "of the total" in w for w in words)
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-4)
    assert shares["encoder.layer.[0-11].intermediate.dense"] == pytest.approx(0.324, abs=1e-3)


@pytest.mark.parametrize("name", ["resnet18", "bert-base-uncased"])
def test_graphviz_reads_the_same_counts_from_dot(
    saved: Callable[[str], Profile], name: str
) -> None:
    pygraphviz = pytest.importorskip("pygraphviz")
    profile = saved(name)
    graph = pygraphviz.AGraph(string=str(render("dot", profile.on(), **WHOLE)))
    producer = profile.graph.producer
    pairs = {(producer[v].id, n.id) for n in profile.graph.nodes for v in n.inputs if v in producer}
    assert {str(n) for n in graph.nodes()} == {f"n{n.id}" for n in profile.graph.nodes}
    assert {(str(a), str(b)) for a, b in graph.edges()} == {(f"n{a}", f"n{b}") for a, b in pairs}
    folded = pygraphviz.AGraph(string=str(render("dot", profile.on())))
    assert folded.draw(format="svg", prog="dot").count(b'class="cluster"') > 3


@pytest.mark.slow
def test_graphviz_lays_a_large_graph_out_in_seconds(
    saved: Callable[[str], Profile], tmp_path: Path
) -> None:
    pytest.importorskip("pygraphviz")
    path = tmp_path / "gpt2.dot"
    saved("gpt2").draw(path, **WHOLE)
    script = "import sys, pygraphviz; pygraphviz.AGraph(sys.argv[1]).draw(sys.argv[2], prog='dot')"
    command = [sys.executable, "-c", script, str(path), str(tmp_path / "gpt2.svg")]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    assert (tmp_path / "gpt2.svg").read_bytes().count(b'class="node"') == 508


@pytest.mark.slow
def test_pdf_shows_and_finds_text(saved: Callable[[str], Profile]) -> None:
    pdfium = pytest.importorskip("pypdfium2")
    whole = pdfium.PdfDocument(render("pdf", saved("resnet18").on()))
    assert len(whole) == 1
    text = whole[0].get_textpage().get_text_range()
    assert "resnet18" in text
    assert "layer4" in text
    assert "1×512×7×7" in text
    assert whole[0].render(scale=0.2).to_pil().convert("L").getextrema()[0] < 128
    pages = pdfium.PdfDocument(render("pdf", saved("resnet18").on(), **WHOLE, paginate=True))
    assert len(pages) > 4
    assert {page.get_size() for page in pages} == {(595, 842)}


@pytest.mark.parametrize(
    ("form", "package"), [("pdf", "reportlab.pdfgen.canvas"), ("png", "resvg_py")]
)
def test_what_brings_a_writer_is_said(
    saved: Callable[[str], Profile], monkeypatch: pytest.MonkeyPatch, form: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependency, match=r"is not installed") as caught:
        render(form, saved("resnet18").on(), depth=1)
    assert "opgraph[draw]" in str(caught.value.hint)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_png_has_the_size_that_was_asked_for(saved: Callable[[str], Profile], theme: str) -> None:
    pytest.importorskip("resvg_py")
    image = pytest.importorskip("PIL.Image")
    profile = saved("resnet18")
    svg = ET.fromstring(render("svg", profile.on(), depth=1))
    shown = image.open(
        io.BytesIO(bytes(render("png", profile.on(), depth=1, dpi=192, theme=theme)))
    )  # type: ignore[arg-type]
    assert shown.size == pytest.approx(
        [2 * float(svg.get(k) or 0) for k in ("width", "height")], abs=2
    )
    paper = tuple(int(THEMES[theme]["paper"][i : i + 2], 16) for i in (1, 3, 5))
    assert shown.convert("RGB").getpixel((3, 3)) == paper


@pytest.mark.slow
@pytest.mark.parametrize("form", ["svg", "pdf", "png", "dot", "mermaid"])
def test_the_same_profile_gives_the_same_bytes(form: str) -> None:
    """In other processes, with other hash seeds, too."""
    script = (
        "import sys, hashlib, opgraph; from opgraph.views import render; "
        f"c = render({form!r}, opgraph.load(sys.argv[1]).on()); "
        "print(hashlib.sha256(c if isinstance(c, bytes) else c.encode()).hexdigest()); "
        "assert 'torch' not in sys.modules"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script, str(DATA / "gpt2.json")],
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True, text=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.parametrize("by", [by for by in COLORINGS if by != "measured"])
def test_each_colour_has_a_sign_and_a_meaning(saved: Callable[[str], Profile], by: str) -> None:
    costed = saved("bert-base-uncased").on("h100-sxm" if by == "time" else None)
    svg = ET.fromstring(render("svg", costed, color_by=by))
    texts = [t.text for t in svg.iter(f"{SVG}text")]
    from opgraph.views.picture.picture import picture

    coloring = picture(costed, color_by=by).coloring
    assert coloring.legend
    for mark in coloring.legend:
        assert mark.meaning in texts
        assert mark.sign in texts


def test_views_are_no_other_work(saved: Callable[[str], Profile]) -> None:
    from opgraph.views.picture.picture import picture

    shown = picture(saved("gpt2").on(), color_by="op", depth=99)
    meanings = {b.op: shown.coloring.marks[b.id].meaning for b in shown.drawing.leaves
                if b.id in shown.coloring.marks}  # fmt: skip
    assert meanings["transpose"] == "view"
    assert meanings["addmm"] == "matrix product"
    assert meanings["scaled_dot_product_attention"] == "attention"


def test_the_modules_of_a_fold_are_drawn(saved: Callable[[str], Profile]) -> None:
    from opgraph.views.picture.picture import picture

    profile = saved("gpt2")
    shown = picture(profile.on(), module="h.[0-3].attn", depth=99)
    inside = {b.path for b in shown.drawing.boxes if b.kind in ("module", "operator")}
    assert {"h.[0-3]", "h.[0-3].attn", "h.[0-3].attn.c_attn"} <= inside
    assert not any("mlp" in path for path in inside)
    four = profile.by_module()["h.[0-3].attn"]
    assert shown.drawing.root.total.flops == four.flops


def test_links_go_to_source_lines(saved: Callable[[str], Profile]) -> None:
    svg = render("svg", saved("resnet18").on(), source_url="https://example.org/{path}#L{line}")
    links = {a.get("href") for a in ET.fromstring(svg).iter(f"{SVG}a")}
    assert "https://example.org/torchvision/models/resnet.py#L268" in links
    with pytest.raises(RenderError, match="links cannot begin"):
        render("svg", saved("resnet18").on(), source_url="javascript:alert({line})")


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["-o", "x.bmp"], "no picture is written to .bmp", ".svg"),
        (
            ["-o", "x.svg", "--color-by", "fusion", "--partition", "none"],
            "nothing is fused with the partition none",
            "choose fuse or inductor",
        ),
        (
            ["-o", "x.svg", "--module", "layer9"],
            "there is no module 'layer9'",
            "did you mean layer",
        ),
        (
            ["-o", "x.svg", "--color-by", "intensity"],
            "--color-by: 'intensity' is not a choice",
            "time, measured, fusion\n",
        ),
        (
            ["-o", "x.svg", "--color-by", "time"],
            "--color-by time is of the time on a device",
            "--hardware",
        ),
        (["-o", "x.svg", "--start", "900"], "there is no node 900", ""),
        (["-o", "x.svg", "--depth", "0"], "--depth takes a number of at least 1", ""),
        (["-o", "x.png", "--dpi", "2400"], "a PNG of", "write .svg or .pdf, or give --dpi"),
        (["-o", "no/folder/x.svg"], "cannot write no/folder/x.svg", "hint: mkdir -p no/folder"),
    ],
)
def test_what_cannot_be_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], message: str, hint: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["draw", str(DATA / "resnet18.json"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert hint in error
    assert not list(tmp_path.iterdir())


def test_the_command_says_what_it_drew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bert.svg"
    assert main(["draw", str(DATA / "bert-base-uncased.json"), "-o", str(path)]) == 0
    assert capsys.readouterr().err == f"wrote {path}: 43 boxes and 46 edges at depth 4 of 4\n"
    assert path.read_text("utf-8").startswith("<svg")


def test_a_profile_draws_itself(saved: Callable[[str], Profile], tmp_path: Path) -> None:
    saved("resnet18").draw(tmp_path / "a.svg", module="layer1.0", parameters=True)
    svg = (tmp_path / "a.svg").read_text("utf-8")
    assert {g.get("data-kind") for g in groups(svg, "box")} == {"operator", "parameters", "stub"}
    with pytest.raises(RenderError, match="svg heeds no option 'colour'"):
        saved("resnet18").draw(tmp_path / "b.svg", colour="op")


@pytest.mark.parametrize(
    ("name", "medium"),
    [("resnet18", "column"), pytest.param("bert-base-uncased", "column", marks=pytest.mark.slow),
     *(pytest.param(*each, marks=pytest.mark.slow) for each in product(["gpt2", "yolov8n"], MEDIA))],
)  # fmt: skip
def test_a_picture_for_a_place_has_letters_that_can_be_read_there(
    saved: Callable[[str], Profile], name: str, medium: str
) -> None:
    device = "h100-sxm" if medium == "column" else None
    drawn = Picture(
        saved(name).on(device), Options(medium=medium, caption="What it costs.", header=False)
    )
    room, scene = MEDIA[medium], drawn.scene
    texts = [shape for shape in scene.flat() if isinstance(shape, Text) and shape.text]
    assert min(text.size for text in texts) >= room.letters - 1e-6
    assert scene.width <= room.width + 0.1
    ends = [
        t.x + font(bold=t.bold).width(t.text, t.size)
        for t in texts
        if t.anchor == "start" and not t.turned
    ]
    assert max(ends) <= scene.width
    assert scene.height <= room.height + 0.1
    assert not drawn.notes
    said = " ".join(text.text for text in texts)
    assert "What it costs." in said
    assert ("one box" in said) == any(b.kind == "run" for b in drawn.drawing.leaves)
    assert ("Not drawn" in said) == any(drawn.drawing.unseen)
    closed = [b for b in drawn.drawing.leaves if b.kind == "module"]
    assert ("closed module" in said) == bool(closed)
    assert saved(name).model.name not in said
    assert not any(text.text.startswith("#") for text in texts)


@pytest.mark.slow
def test_what_stands_for_several_says_nothing_of_one() -> None:
    """Inputs of several shapes have none as one box, and those that are not listed are counted."""

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            rows = [nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)]
            self.layers = nn.ModuleList(nn.Sequential(*rows) for _ in range(4))

        def forward(self, *xs: torch.Tensor) -> torch.Tensor:
            y = torch.cat(xs)
            for layer in self.layers:
                y = layer(y) + y
            return y

    for rows, shape in (((3, 3, 3), (3, 8)), ((2, 3, 4, 5), None)):
        costed = opgraph.profile(Joined(), inputs=tuple(torch.randn(n, 8) for n in rows)).on()
        first = build(costed.tree, most=4).leaves[0]
        assert (first.kind, first.shape) == ("input", shape)
        assert facts(costed).endswith(" and 1 more" if len(rows) > 3 else "xs.2 3×8")


@pytest.mark.parametrize(("mode", "said"), [("train", "mode train  ·  "), ("infer", "")])
def test_the_head_of_a_picture_says_the_mode_of_what_is_no_single_forward(
    mode: str, said: str
) -> None:
    costed = opgraph.profile(torch.nn.Linear(4, 4), inputs=(torch.randn(2, 4),), mode=mode).on()
    assert facts(costed).startswith(f"{said}20 parameters  ·  ")


def test_a_class_of_which_no_letter_fits_is_left_out(saved: Callable[[str], Profile]) -> None:
    costed = saved("gpt2").on()
    drawing = build(costed.tree, most=9)
    opened = next(b for b in drawing.boxes if b.open and b.cls == "GPT2Block")
    look = cards.look(drawing, coloring(costed, drawing, "bottleneck"), brief=True)
    said = [
        {
            s.text
            for s in cards.band(opened, Area(0, 0, width, 40), look, level=0)
            if isinstance(s, Text)
        }
        for width in range(120, 320, 4)
    ]
    assert "…" not in set().union(*said)
    assert "GPT2Block" in said[-1]


def test_the_costliest_modules_are_opened_first(saved: Callable[[str], Profile]) -> None:
    tree = saved("gpt2").on().tree
    drawn = {most: build(tree, most=most) for most in (4, 8, 9, 12, 24)}
    opened = {most: [b.name for b in d.boxes if b.open] for most, d in drawn.items()}
    assert opened[4] == opened[8] == []
    assert (opened[9], opened[12]) == (["h.[0-11]"], ["h.[0-11]", "mlp"])
    runs = {most: [b.name for b in d.leaves if b.kind == "run"] for most, d in drawn.items()}
    assert (runs[9], runs[12], runs[24]) == (
        ["wte, wpe, add", "add, ln_2"],
        ["wte, wpe, add"],
        [],
    )
    for most, drawing in drawn.items():
        assert len(drawing.leaves) <= most
        for metric in (Metric.FLOPS, Metric.PARAMETERS, Metric.BYTES):
            left = tree.total(metric, tree.root) - sum(
                drawing.total(metric, b) for b in drawing.leaves
            )
            assert 0 <= left <= 0.01 * tree.total(metric, tree.root)  # reshapes are not drawn


def test_edges_go_through_what_is_not_drawn(saved: Callable[[str], Profile]) -> None:
    """A mask that only decides a branch is not there, nor is its input; what is reshaped is read by whoever
    reads that."""
    drawing = build(saved("gpt2").on().tree, most=9)
    names = {b.id: b.name for b in drawing.boxes}
    assert "attention_mask" not in names.values()
    joined = [(names[e.source], names[e.target]) for e in drawing.edges]
    assert joined[:2] == [("input_ids", "wte, wpe, add"), ("wte, wpe, add", "ln_1")]
    assert ("ln_f", "output") in joined


@pytest.mark.slow
def test_figures_are_there_whole_or_not_at_all(saved: Callable[[str], Profile]) -> None:
    """Parameters go before FLOPs, and neither is cut in its middle; in a narrow column shares are left."""
    narrow, svg = (
        ET.fromstring(render("svg", saved("resnet18").on(), medium=m)) for m in ("column", None)
    )
    assert not [t for t in narrow.iter(f"{SVG}text") if "".join(t.itertext()).endswith("MFLOPs")]
    assert [t for t in narrow.iter(f"{SVG}text") if "of the total" in "".join(t.itertext())]
    words = ["".join(text.itertext()) for text in svg.iter(f"{SVG}text")]
    shown = [text for text in words if text.endswith("MFLOPs")]
    assert len(shown) > 3
    assert not [text for text in shown if "…" in text]


@pytest.mark.slow
@pytest.mark.parametrize("medium", ["readme", "paper"])
@pytest.mark.parametrize("name", ["gpt2", "yolov8n"])
def test_no_label_of_a_line_lies_on_a_line(
    saved: Callable[[str], Profile], name: str, medium: str
) -> None:
    scene = Picture(saved(name).on(), Options(medium=medium)).scene
    shapes = list(scene.flat())
    labels = [s for s in shapes if isinstance(s, Text) and s.turned]
    assert labels
    for label in labels:
        half = font().width(label.text, label.size) / 2
        for line in (s for s in shapes if isinstance(s, Line)):
            for (x, y), (to_x, to_y) in pairwise(line.points):
                beside = max(x, to_x) < label.x - 0.6 * label.size or min(x, to_x) > label.x
                apart = max(y, to_y) < label.y - half or min(y, to_y) > label.y + half
                assert beside or apart, label


class _Wide(nn.Module):
    """Layers side by side, none of which is like another."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8 + i) for i in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([layer(x) for layer in self.layers], -1)


def test_what_costs_far_less_is_not_opened_beside_what_has_no_room() -> None:
    model = nn.Sequential(_Wide(12), nn.Linear(162, 8), _Wide(2))
    tree = opgraph.profile(model, torch.zeros(2, 8)).on().tree
    for most, opened in ((4, set()), (12, set()), (18, {"0"}), (20, {"0", "2"})):
        assert {b.path for b in build(tree, most=most).boxes if b.open} == opened, most
