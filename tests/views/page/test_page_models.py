"""A person's walk through the page, once for each of six very different models: everything that can be done
there is done, and what it shows is what the profile says. `browse` fails on any error in the console."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.apart import thorough

from opgraph import Profile
from opgraph.analysis.memory import memory

Browse = Callable[..., Any]
MODELS = (
    "resnet18",
    "llama-405b",
    *thorough("bert-base-uncased", "yolov8n", "gpt2", "detr-resnet-50"),
)

DOT = """const c = document.querySelector('#opgraph').shadowRoot.querySelector('canvas.plot');
const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
const coloured = i => p[i + 3] > 100 &&
  Math.max(p[i], p[i + 1], p[i + 2]) - Math.min(p[i], p[i + 1], p[i + 2]) > 90;
const at = p.findIndex((_, i) => i % 4 === 0 && coloured(i)) / 4, r = c.getBoundingClientRect();
return [r.left + at % c.width, r.top + Math.floor(at / c.width) + 2];"""
"""Where the roofline has a dot: where the chart has a colour."""

STATE = """return [app.selected?.id, app.colours.mode, app.device.id, app.query, app.dock,
app.camera, [...app.view.open].sort(), app.scene.boxes.length]"""


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_walk_through_the_page(
    shown: Callable[[str], Profile], browse: Browse, tmp_path: Path, name: str
) -> None:
    profile = shown(name)
    page = browse(profile, name)
    assert page.page.title() == profile.model.name
    assert page.run("return app.costs.total('flops')") == profile.totals.flops
    costliest = opens_with_a_click(page)
    selects_both_ways(page, costliest)
    searches(page, profile)
    filters(page, profile)
    switches_the_device(page, profile)
    recolours(page)
    shows_the_peak(page, profile)
    clicks_a_dot_of_the_roofline(page)
    page.keep("walk")
    exports(page, tmp_path, profile)
    prints(page, tmp_path, profile)
    page.run("app.setCamera({x: 10, y: 20, zoom: 0.5})")
    page.page.wait_for_timeout(600)
    again = browse(profile, f"{name}-again", page.run("return location.hash"))
    again.page.wait_for_timeout(300)
    assert again.run(STATE) == page.run(STATE)


def opens_with_a_click(page: Any) -> str:
    """Everything closed, then a click on the costliest module; its path."""
    page.run("await app.openAll(false); app.fit();")
    costliest, label = page.run(
        """const boxes = app.scene.boxes.filter(b => b.item.children.length && b.item.path);
        boxes.sort((a, b) => app.costs.item('flops', b.item) - app.costs.item('flops', a.item));
        return [boxes[0].item.path, boxes[0].item.label];"""
    )
    before = set(page.paths())
    page.page.mouse.click(*page.where(costliest))
    page.page.wait_for_timeout(500)
    page.settle()
    assert any(p.startswith(f"{costliest}.") and p not in before for p in page.paths())
    assert page.page.locator(".panel h2").inner_text() == label
    return str(costliest)


def selects_both_ways(page: Any, path: str) -> None:
    """From the table to the graph, and back."""
    inside = page.run(
        f"""await app.select(null); app.fit();
        return app.scene.boxes.find(b => b.item.path === {path!r}).children[0].item.id"""
    )
    page.page.mouse.move(200, 500)
    page.page.mouse.wheel(0, -100_000)
    page.page.wait_for_timeout(300)
    page.page.locator(f".row[data-item='{inside}']").first.click()
    page.settle()
    assert page.run("return app.selected.id") == inside
    page.run("await app.select(null)")
    x, y = page.run(
        f"""const b = app.scene.boxes.find(b => b.item.id === {inside});
        app.setCamera({{x: b.x - 100, y: b.y - 100, zoom: 1}}); const c = app.camera;
        const r = document.querySelector('#opgraph').shadowRoot.querySelector('canvas.graph')
          .getBoundingClientRect();
        return [r.left + (b.x + b.w / 2 - c.x) * c.zoom,
                r.top + (b.y + Math.min(b.h / 2, 14) - c.y) * c.zoom];"""
    )
    page.page.mouse.click(x, y)
    page.page.wait_for_timeout(500)
    page.settle()
    assert page.run("return app.selected.id") == inside
    assert page.page.locator(".row.chosen").first.get_attribute("data-item") == str(inside)


def searches(page: Any, profile: Profile) -> None:
    """For an operator: its nodes are lit, and Enter goes to the first."""
    wanted = max(profile.nodes, key=lambda n: n.flops).op
    found = [n.id for n in profile.nodes if n.op == wanted]
    page.page.locator("canvas.graph").focus()
    page.page.keyboard.press("/")
    page.page.keyboard.type(f"op:{wanted}")
    page.page.wait_for_timeout(400)
    assert page.lit() == found
    page.page.keyboard.press("Enter")
    page.page.wait_for_timeout(400)
    assert page.run("return app.selected.node + 1") == found[0]
    assert page.page.locator(".hits").inner_text().endswith(f"{len(found):,}")
    page.run("app.search('')")


def filters(page: Any, profile: Profile) -> None:
    """By the costliest operator, then everything again."""
    wanted = max(profile.nodes, key=lambda n: n.flops).op
    page.page.get_by_role("button", name="Filter", exact=True).click()
    page.page.locator(".option", has_text=re.compile(rf"^\s*{wanted}[\d,\s]*$")).first.click()
    assert page.lit() == [n.id for n in profile.nodes if n.op == wanted]
    page.page.get_by_role("button", name="Clear the filter").click()
    assert page.lit() == []
    page.page.keyboard.press("Escape")


def switches_the_device(page: Any, profile: Profile) -> None:
    """The page predicts what the library does."""
    for name in ("h100-sxm", "a10"):
        page.page.get_by_label("Device").select_option(name)
        expected = profile.on(name).prediction.device_seconds
        assert page.run("return app.costs.total('time')") == pytest.approx(expected, rel=1e-8)


def recolours(page: Any) -> None:
    """Each colouring has a legend and a look of its own."""
    modes = page.run("return app.modes().map(m => m[0])")
    looks = []
    page.run("app.fit()")
    for mode in modes:
        page.page.get_by_label("Colour by").select_option(mode)
        page.settle()
        assert page.page.locator(".legend").inner_text()
        look = (
            "return document.querySelector('#opgraph').shadowRoot"
            ".querySelector('canvas.graph').toDataURL()"
        )
        looks.append(page.run(look))
    assert len(set(looks)) >= len(modes) - 2


def shows_the_peak(page: Any, profile: Profile) -> None:
    """What is alive at the peak is lit."""
    page.page.get_by_role("button", name="Memory", exact=True).click()
    page.page.get_by_role("button", name="Go to the peak").click()
    expected = memory(profile.graph)
    at = expected.peak_kernel
    assert at is not None
    assert page.run("return [app.memory.peak, app.memory.peakAt]") == [expected.peak, at]
    alive = {
        s.node
        for s in profile.graph.storages
        if s.bytes and s.node and s.born <= at and (s.died is None or at < s.died)
    }
    assert page.lit() == sorted(alive)


def clicks_a_dot_of_the_roofline(page: Any) -> None:
    page.page.get_by_role("button", name="Roofline").click()
    page.page.wait_for_timeout(300)
    page.page.mouse.click(*page.run(DOT))
    page.settle()
    assert page.run("return app.selected.node") >= 0
    assert "Fused subgraph" in page.page.locator(".panel").inner_text()


def exports(page: Any, folder: Path, profile: Profile) -> None:
    """What is seen, as SVG and as PNG."""
    for form, signature in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        name, content = page.export(form, "what is seen", folder)
        assert content.startswith(signature)
        if form == "SVG":
            assert len(list(ET.fromstring(content.decode()).iter())) > 10
    assert profile.model.name.rpartition("/")[2].casefold() in name.casefold()


def prints(page: Any, folder: Path, profile: Profile) -> None:
    """On paper there are the graph and the figures, without what is only for a screen."""
    import pypdfium2

    path = folder / "printed.pdf"
    page.page.pdf(path=path, format="A4", print_background=True)
    document = pypdfium2.PdfDocument(path)
    assert 1 <= len(document) <= 4
    text = "".join(document[i].get_textpage().get_text_range() for i in range(len(document)))
    assert profile.model.name in text
    assert "Search" not in text
