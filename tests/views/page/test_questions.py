"""Ten questions that people ask of a model, each answered in at most two clicks. `docs/viewer.md` lists
them with the places of their answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opgraph import Profile
from opgraph.analysis.compare.pairing import unite
from opgraph.record import units
from opgraph.views.headline import headline

pytestmark = pytest.mark.slow

Saved = Callable[[str], Profile]
Browse = Callable[..., Any]


class Clicks:
    """What a person does, counted."""

    def __init__(self, page: Any) -> None:
        self.page, self.count = page, 0

    def click(self, locator: Any) -> None:
        self.count += 1
        locator.click()
        self.page.settle()

    def choose(self, device: str) -> None:
        self.count += 1
        self.page.page.get_by_label("Device").select_option(device)
        self.page.settle()

    def box(self, name: str) -> None:
        """A click on a box of the graph."""
        self.count += 1
        x, y = self.page.run(
            f"const b = app.scene.boxes.find(b => b.item.label === {name!r}); const c = app.camera;"
            " return [(b.x + b.w / 2 - c.x) * c.zoom, (b.y + 12 - c.y) * c.zoom]"
        )
        self.page.page.locator("canvas.graph").click(position={"x": x, "y": y})
        self.page.settle()

    def panel(self) -> str:
        assert self.count <= 2
        return str(self.page.page.locator(".panel").inner_text())


@pytest.fixture
def resnet(saved: Saved, browse: Browse) -> Clicks:
    return Clicks(browse(saved("resnet18"), "resnet18"))


def test_which_layer_costs_most(resnet: Clicks, saved: Saved) -> None:
    sentence = resnet.page.page.locator(".sentence").inner_text()
    assert f"costliest {saved('resnet18').on().hotspots[0].path}, " in sentence


def test_is_it_bound_by_compute_or_memory(resnet: Clicks, saved: Saved) -> None:
    resnet.choose("epyc-9654")
    said, meaning = headline(saved("resnet18").on("epyc-9654"))
    assert resnet.page.page.locator(".sentence").inner_text() == said
    assert resnet.page.page.locator(".sentence").get_attribute("title") == meaning


def test_what_is_alive_at_the_peak(resnet: Clicks, saved: Saved) -> None:
    resnet.click(resnet.page.page.get_by_role("button", name="Memory", exact=True))
    resnet.click(resnet.page.page.get_by_role("button", name="Go to the peak"))
    assert resnet.count <= 2
    charts = resnet.page.page.locator(".charts").inner_text()
    assert units.size(saved("resnet18").on().memory.peak) in charts


def test_does_it_fit_on_a_4090(resnet: Clicks, saved: Saved) -> None:
    resnet.choose("rtx-4090")
    fit = saved("resnet18").on("rtx-4090").fit
    assert fit is not None
    assert f"{units.size(fit.needed)} of {units.size(fit.capacity)}: fits" in resnet.panel()


def test_what_would_a_larger_batch_change(resnet: Clicks) -> None:
    assert "opgraph sweep resnet18 --batch-size 1,8,32,128" in resnet.panel()


def test_where_does_this_residual_go(saved: Saved, browse: Browse) -> None:
    clicks = Clicks(browse(saved("gpt2"), "gpt2"))
    clicks.box("add")
    panel = clicks.panel()
    assert "READ BY" in panel.upper()
    assert "h.0.ln_2" in panel
    assert len(clicks.page.run("return app.marks().out")) == 2  # the norm, and around the block


def test_which_source_line(resnet: Clicks) -> None:
    resnet.box("conv1")
    assert "torchvision/models/resnet.py:" in resnet.panel()


def test_what_are_the_arguments(resnet: Clicks, saved: Saved) -> None:
    resnet.box("maxpool")
    [node] = [n for n in saved("resnet18").nodes if n.op == "max_pool2d"]
    assert node.arguments in resnet.panel()


def test_what_changed(saved: Saved, browse: Browse) -> None:
    from opgraph.views import render

    before, after = saved("resnet18"), saved("resnet18-changed")
    text = str(render("html", after.on("l4"), against=before.on("l4")))
    clicks = Clicks(browse(text, "changed"))
    assert unite(before.graph, after.graph).changes
    panel = clicks.panel()
    assert "AGAINST RESNET18" in panel.upper()
    heads = clicks.page.page.locator(".table-head").inner_text()
    assert "Δ time" in heads
    took = [sum(p.on("l4").prediction.by_node.values()) for p in (before, after)]
    more = clicks.page.run("return app.difference.more('time', app.tree.root)")
    assert more == pytest.approx(took[1] - took[0], abs=1e-9)
    assert "Δ FLOPs" in heads
    assert "Δ bytes" in heads


def test_share_it_with_a_colleague(resnet: Clicks) -> None:
    resnet.click(resnet.page.page.get_by_role("button", name="Export"))
    with resnet.page.page.expect_download() as card:
        resnet.click(resnet.page.page.get_by_role("menuitem", name="Card"))
    assert resnet.count == 2
    assert card.value.suggested_filename == "resnet18.card.png"
    head = Path(card.value.path()).read_bytes()[:24]
    assert head[:4] == b"\x89PNG"
    assert [int.from_bytes(head[i : i + 4], "big") for i in (16, 20)] == [2400, 1260]
