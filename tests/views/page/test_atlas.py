"""The atlas as a page, in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.surveying import test_atlas

HOSTILE, dataset = test_atlas.HOSTILE, test_atlas.dataset


@pytest.mark.slow
def test_the_page_searches_sorts_plots_and_asks_nothing_of_a_network(
    chromium: Any, dataset: Path, tmp_path: Path
) -> None:
    from opgraph.surveying.sql import Atlas

    file = tmp_path / "atlas.html"
    Atlas().save(file)
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    page = context.new_page()
    errors: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("console", lambda m: m.type in ("error", "warning") and errors.append(m.text))
    page.on("request", lambda r: requests.append(r.url))
    page.goto(file.as_uri())
    page.wait_for_selector("#opgraph[data-ready]")
    page.locator("#search").fill("resnet50 torchvision")
    names = page.locator("tbody tr td:first-child")
    assert "resnet50" in names.all_inner_texts()
    page.locator('button[data-column="parameters"]').click()
    figures = page.locator("tbody tr td:nth-child(4)")
    least = figures.first.inner_text()
    page.locator('button[data-column="parameters"]').click()
    assert figures.last.inner_text() == least
    page.locator("#across").select_option("parameters")
    page.locator("#up").select_option("latency_l4")
    assert page.locator("svg text").filter(has_text="time on l4").count() == 1
    dots = page.locator("svg circle")
    assert dots.count() == names.count()
    assert 1 <= page.locator("svg circle.front").count() <= dots.count()
    page.locator("#pareto").uncheck()
    assert page.locator("svg circle.front").count() == 0
    names.filter(has_text=re.compile("^resnet50$")).click()
    assert page.locator("#said code").inner_text() == "opgraph view resnet50 --open"
    Atlas(dataset).save(file)
    page.goto(file.as_uri())
    page.locator("tbody tr").first.click()
    assert page.title() == "opgraph atlas"
    assert HOSTILE.partition("\x1b")[0] in page.locator("tbody").inner_text()
    context.close()
    assert not errors
    assert all(url.startswith("file:") for url in requests)
