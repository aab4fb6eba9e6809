"""What is seen before anything is clicked: letters that can be read, boxes that stand apart, shares of the
cost, and the sentence that `profile` ends with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opgraph import Profile
from opgraph.views.headline import headline

Saved = Callable[[str], Profile]
Browse = Callable[..., Any]

SMALLEST = 10
"""The smallest letters that boxes have, in units of the graph."""

BOXES = (
    """return app.scene.boxes.map(b => [b.x, b.y, b.w, b.h, app.scene.boxes.indexOf(b.parent)])"""
)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1440, 900), (1920, 1080), (390, 844)], ids=str)
@pytest.mark.parametrize("name", ["gpt2", "yolov8n", "resnet18", "bert-base-uncased"])
def test_the_first_frame_can_be_read(
    saved: Saved, browse: Browse, name: str, size: tuple[int, int]
) -> None:
    profile = saved(name)
    page = browse(profile, name, size=size)
    assert page.run("return app.camera.zoom") * SMALLEST >= 9
    x, y, h, zoom = page.run("const c = app.camera; return [c.x, c.y, app.size.height, c.zoom]")
    boxes = page.run(BOXES)
    seen = [b for b in boxes if x <= b[0] and y <= b[1] and b[1] + b[3] <= y + h / zoom]
    assert len(seen) >= 6
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            if a[4] == b[4]:  # within the same container
                apart = a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0]
                assert apart or a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1]
    row = page.page.locator(".parts-row").first.locator("button")
    assert row.count() > 4
    assert sum(page.run("return app.row().map(([, share]) => share)")) == pytest.approx(1, abs=1e-6)
    sentence = page.page.locator(".sentence")
    assert sentence.inner_text() == headline(profile.on())[0]
    page.page.get_by_label("Device").select_option("h100-sxm", force=True)
    page.settle()
    assert sentence.inner_text() == headline(profile.on("h100-sxm"))[0]
