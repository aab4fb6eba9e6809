"""The page at its limits: a file that means harm, and a very large one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opgraph import Profile
from opgraph.views.page.data import page_data
from opgraph.views.page.html import html

Browse = Callable[..., Any]
Saved = Callable[[str], Profile]
EVIL = "</script><img src=x onerror=alert(1)>\u202egnp.\x00\x1b[31m<b>&lt;{{1}}${2}"


def page_with(data: dict[str, Any], saved: Saved, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page for data that `Profile` itself would refuse."""
    monkeypatch.setattr("opgraph.views.page.html.page_data", lambda *_, **__: data)
    return html(saved("resnet18").on())


def test_names_are_never_markup(
    saved: Saved, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = page_data(saved("resnet18").on())
    for node in data["profile"]["graph"]["nodes"]:
        for key in ("name", "op", "target", "arguments", "file"):
            node[key] = f"{node['id']}{EVIL}"
    for scope in data["profile"]["graph"]["scopes"]:
        scope["cls"] = EVIL
    data["profile"]["graph"]["nodes"][5]["error"] = EVIL
    data["profile"]["graph"]["breaks"] = [{"fragment": 0, "reason": EVIL, "file": EVIL, "line": 1}]
    data["profile"]["model"].update(name=EVIL, cls=EVIL, notes=[EVIL])
    page = browse(page_with(data, saved, monkeypatch), "evil")
    page.run("await app.openAll(true, true); await app.select(app.tree.leaf[5], true)")
    page.run("app.search('onerror'); app.setDock('memory'); app.setMoment(app.memory.peakAt)")
    page.page.get_by_role("button", name="Filter", exact=True).click()
    page.settle()
    count = (
        "return document.querySelector('#opgraph').shadowRoot"
        ".querySelectorAll('img, b > b, script').length"
    )
    assert page.run(count) == 0
    assert "onerror" in page.page.locator(".panel").inner_text()
    assert "\u202e" not in page.page.locator(".panel").inner_text()
    page.keep("names")


@pytest.mark.parametrize(
    "break_it",
    [
        lambda g: g["nodes"][9].update(inputs=[10**9, -4, 0]),
        lambda g: g["nodes"][9].update(inputs=g["nodes"][40]["outputs"]),
        lambda g: g["nodes"][9].update(kernels=[10**6]),
        lambda g: g["nodes"][9].update(outputs=g["nodes"][3]["outputs"]),
        lambda g: g["nodes"][9].update(scope="a.b." * 2000 + "c"),
        lambda g: g.update(scopes=[], storages=[[5, 10**9, -3, 10**9]]),
        lambda g: g.update(nodes=[], values=[], kernels=[]),
    ],
    ids=["no such value", "backwards", "no such kernel", "made twice", "very deep", "odd storages",
         "nothing"],
)  # fmt: skip
def test_a_broken_file_still_opens(
    saved: Saved, browse: Browse, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[Any], None]
) -> None:
    data = page_data(saved("resnet18").on())
    break_it(data["profile"]["graph"])
    page = browse(page_with(data, saved, monkeypatch), "broken")
    page.run("await app.openAll(true, true)")
    page.page.get_by_role("button", name="Memory", exact=True).click()
    page.settle()


@pytest.mark.slow
def test_a_hundred_thousand_nodes_do_not_hang_it(
    saved: Saved, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = page_data(saved("resnet18").on())
    graph = data["profile"]["graph"]
    count = 100_000
    graph["values"] = [
        {"id": i, "shape": [1, 8], "dtype": "float32", "bytes": 32} for i in range(count)
    ]
    graph["nodes"] = [
        {"id": i + 1, "kind": "call", "op": f"op{i * i % 7}", "name": f"n{i}", "outputs": [i],
         "inputs": [i - 1, i // 2] if i else [], "kernels": [i % 5]}
        for i in range(count)
    ]  # fmt: skip
    graph.update(storages=[], inputs=[], outputs=[])
    data["partition"] = {"rules": [], "parts": [], "subgraphs": []}
    page = browse(page_with(data, saved, monkeypatch), "large")
    assert page.run("return app.scene.boxes.length") < 1000  # opened are as many as can be seen
    page.run("await app.openAll(true)")
    page.run("app.search('n99999'); await app.stepHit(1)")
    page.settle()
    assert page.run("return app.selected.node") == 99_999
    page.keep("hundred-thousand")


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_page_that_is_cut_off_says_so(
    saved: Saved, chromium: Any, tmp_path: Path, share: float
) -> None:
    whole = html(saved("resnet18").on())
    path = tmp_path / "cut.html"
    path.write_text(whole[: int(len(whole) * share)], "utf-8")
    page = chromium.new_page()
    page.goto(path.as_uri())
    assert "the file is not whole" in page.locator("#opgraph").inner_text()
    path.write_text(whole, "utf-8")
    page.goto(path.as_uri())
    page.wait_for_selector("#opgraph[data-ready]")
    assert not page.get_by_text("the file is not whole").is_visible()
    page.close()


@pytest.mark.slow
def test_the_largest_model_makes_a_small_page(shown: Callable[[str], Profile]) -> None:
    assert len(html(shown("llama-405b").on("h100-sxm")).encode()) < 1e6
