"""Who cannot see the page, or not its colours, or has no mouse: axe-core finds nothing to object to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from opgraph import Profile

Saved = Callable[[str], Profile]
Browse = Callable[..., Any]

STATES = {
    "first": (),
    "node": ("return app.select(app.tree.leaf[20], true)",),
    "memory": ("app.setDock('memory')", "app.setMoment(40)"),
    "roofline": ("app.setDevice('h100-sxm')", "app.setDock('roofline')"),
    "measure": ("app.setMode('flops')",),
    "found": ("app.search('add')",),
}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", STATES)
def test_axe_finds_no_violation(saved: Saved, browse: Browse, state: str, scheme: str) -> None:
    page = browse(saved("gpt2"), "gpt2", color_scheme=scheme, bypass_csp=True)
    for step in STATES[state]:
        page.run(step)
    page.settle()
    found = Axe().run(page.page).response["violations"]
    said = [f"{v['id']}: {n['target']} {n['failureSummary']}" for v in found for n in v["nodes"]]
    assert not said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Help (?)", "Filter", "Export"])
def test_what_pops_up_is_accessible_too(saved: Saved, browse: Browse, name: str) -> None:
    page = browse(saved("resnet18"), "resnet18", bypass_csp=True)
    page.page.get_by_role("button", name=name).click()
    found = Axe().run(page.page).response["violations"]
    assert not [
        f"{v['id']}: {n['target']} {n['failureSummary']}" for v in found for n in v["nodes"]
    ]
