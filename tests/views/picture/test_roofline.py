"""The roofline as a picture: every subgraph is on it, under the roofs of the device."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from tests.conftest import DATA

from opgraph.cli import main
from opgraph.record.errors import RenderError
from opgraph.views.picture.fonts import font
from opgraph.views.picture.formats import roofline_svg as svg
from opgraph.views.picture.roofline import marks, scene
from opgraph.views.picture.scene import Group, Rect, Text

NAMES = ("resnet18", "bert-base-uncased", "gpt2", "yolov8n")


@pytest.mark.parametrize("name", NAMES)
def test_every_subgraph_that_computes_is_a_mark(saved, name):
    points = [p for p in saved(name).on("h100-sxm").roofline if p.flops]
    total = sum(p.predicted for p in points)
    found = marks(points, total)
    assert sum(m.count for m in found) == len(points)
    assert sum(m.share for m in found) == pytest.approx(1)
    assert [m.share for m in found] == sorted((m.share for m in found), reverse=True)


def test_equal_layers_are_one_mark(saved):
    found = marks(saved("gpt2").on("h100-sxm").roofline, 1.0)
    assert {"h.*.mlp.c_fc.addmm": 12, "h.*.mlp.c_proj.addmm": 12}.items() <= {
        m.name: m.count for m in found
    }.items()


@pytest.mark.parametrize("name", NAMES)
def test_the_picture(saved, name):
    text = svg(saved(name).on("t4"))
    root = ET.fromstring(text)
    words = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words[0] == f"Roofline of {saved(name).model.name} on NVIDIA T4"
    assert any(w.startswith("ridge ") for w in words)
    assert "memory, 320 GB/s" in words
    assert "prefers-color-scheme" in text
    assert text == svg(saved(name).on("t4"))


@pytest.mark.parametrize("device", ["t4", "rtx-4090"])
@pytest.mark.parametrize("name", NAMES)
def test_no_mark_lies_on_the_name_of_the_roof_of_memory(saved, name, device):
    shapes = scene(saved(name).on(device)).shapes
    [said] = [s for s in shapes if isinstance(s, Text) and s.text.startswith("memory, ")]
    box = (said.x, said.y - 9, font(bold=True).width(said.text, said.size), 11)
    rims = [r for g in shapes if isinstance(g, Group) for r in g.shapes if isinstance(r, Rect)]
    assert not any(rim.meets(*box) for rim in rims)


@pytest.mark.slow
def test_it_is_written_by_its_name(tmp_path, capsys):
    resnet = str(DATA / "resnet18.json")
    for name, start in (("roofline.svg", b"<svg"), ("resnet.roofline.png", b"\x89PNG")):
        path = tmp_path / name
        assert main(["profile", resnet, "--hardware", "t4", "-o", str(path)]) == 0
        assert path.read_bytes().startswith(start)
    assert main(["profile", resnet, "-o", str(tmp_path / "roofline.svg")]) == 2
    assert "hint: --hardware h100-sxm" in capsys.readouterr().err


def test_without_a_device_there_is_none(saved):
    with pytest.raises(RenderError, match="needs a device"):
        svg(saved("resnet18").on())
