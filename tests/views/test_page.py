"""The page in a real browser, as a person uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opgraph import Profile

Browse = Callable[..., Any]
MODELS = ("resnet18", "bert-base-uncased", "yolov8n", "gpt2")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens(saved: Callable[[str], Profile], browse: Browse, name: str, scheme: str) -> None:
    page = browse(saved(name), name, color_scheme=scheme)
    assert page.page.title() == saved(name).model.name
    assert page.run("return app.scene.boxes.length") > 4
    assert page.run("return app.dark") is (scheme == "dark")
    page.keep(scheme)


def test_a_click_opens_and_a_second_opens_all_beneath(
    saved: Callable[[str], Profile], browse: Browse
) -> None:
    page = browse(saved("resnet18"), "resnet18")
    page.run("await app.openAll(false); app.fit();")
    x, y = where(page, "layer2")
    page.page.mouse.click(x, y)
    page.page.wait_for_timeout(500)
    page.settle()
    assert set(paths(page)) >= {"layer2.0", "layer2.1"}
    assert "layer2.0.conv1" not in paths(page)
    assert page.page.locator(".panel h2").inner_text() == "layer2"
    # What was clicked has not moved: its header is where the card was.
    assert where(page, "layer2", header=True)[1] == pytest.approx(y, abs=30)
    page.run("await app.openAll(false); app.fit();")
    page.page.mouse.dblclick(*where(page, "layer2"))
    page.settle()
    assert {"layer2.0.conv1", "layer2.0.downsample.0", "layer2.1.bn2"} <= set(paths(page))


def paths(page: Any) -> list[str]:
    found: list[str] = page.run("return app.scene.boxes.map(b => b.item.path)")
    return found


def where(page: Any, path: str, header: bool = False) -> tuple[float, float]:
    """The middle of a module's box (or of its header) on the screen."""
    height = "Math.min(30, b.h)" if header else "b.h"
    x, y = page.run(
        f"""const b = app.scene.boxes.find(b => b.item.path === {path!r});
        const c = app.camera, r = document.querySelector('#opgraph').shadowRoot
          .querySelector('canvas.graph').getBoundingClientRect();
        return [r.left + (b.x + b.w / 2 - c.x) * c.zoom, r.top + (b.y + {height} / 2 - c.y) * c.zoom];"""
    )
    return x, y
