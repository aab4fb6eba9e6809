"""The page says what Python says: the same ridge, latency, shares of bounds, and for every module the same
"each, × n, total, share". Everything is read as a person reads it, from the page's elements."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import opgraph
from opgraph import Profile
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.tree import Item, ItemKind, Metric, Tree
from opgraph.record import units

Browse = Callable[..., Any]
TRACED = {"llama-405b": "meta-llama/Llama-3.1-405B", "swin_t": "swin_t"}
MODELS = ("gpt2", "yolov8n", *(pytest.param(name, marks=pytest.mark.live) for name in TRACED))
WRITE = {Metric.FLOPS: units.flops, Metric.BYTES: units.size, Metric.SECONDS: units.seconds}


@pytest.fixture(scope="module")
def traced() -> Callable[[str], Profile]:
    known: dict[str, Profile] = {}

    def trace(name: str) -> Profile:
        if name not in known:
            known[name] = opgraph.profile(TRACED[name])
        return known[name]

    return trace


def panel(page: Any) -> dict[str, str]:
    """The rows of the panel, by name."""
    names = page.page.locator(".panel dt").all_inner_texts()
    values = page.page.locator(".panel dd").all_inner_texts()
    return {n: " ".join(v.split()) for n, v in zip(names, values, strict=True)}


def said(tree: Tree, metric: Metric, item: Item) -> str:
    share = tree.share(metric, item)
    write = WRITE[metric]
    total = write(share.total)
    if share.times > 1:
        total = f"each {write(share.each)} × {units.integer(share.times)} = {total}"
    return f"{total} · {units.percent(share.share)}" if share.share else total


def spread(tree: Tree) -> list[Item]:
    """Ten modules from all over the tree, those in folds first, each at its own path."""
    paths = [i.path for i in tree.items if i.kind is ItemKind.MODULE]
    modules = [
        i for i in tree.items
        if i.kind is ItemKind.MODULE and paths.count(i.path) == 1 and tree.share(Metric.FLOPS, i).total
    ]  # fmt: skip
    modules.sort(key=lambda i: (-min(i.times, 2), i.id))
    return modules[:: max(1, len(modules) // 10)][:10]


@pytest.mark.parametrize("hardware", ["h100-sxm", None])
@pytest.mark.parametrize("name", MODELS)
def test_the_page_says_what_python_says(
    saved: Callable[[str], Profile],
    traced: Callable[[str], Profile],
    browse: Browse,
    name: str,
    hardware: str | None,
) -> None:
    profile = traced(name) if name in TRACED else saved(name)
    costed: CostedRecord = profile.on("h100-sxm")
    page = browse(profile, name)
    if hardware is None:
        costed = profile.on()
    else:
        page.page.get_by_label("Device").select_option(hardware)
    page.settle()
    rows = panel(page)
    ridge = f"{costed.ridge:.1f} FLOPs/byte"
    assert rows["ridge point"] == (f"{ridge} at {costed.main_dtype}" if hardware else ridge)
    assert ridge in page.page.locator(".legend").inner_text()
    if costed.prediction is not None:
        assert rows["predicted time"] == units.seconds(costed.prediction.seconds)
    of = "of device time" if costed.hosted else "of time" if hardware else "of bytes"
    for bound in costed.bounds:
        label = {"launch": "launches"}.get(bound.bound, bound.bound)
        assert rows[label] == f"{units.percent(bound.share)} {of}"
    assert rows["FLOPs"] == units.flops(costed.totals.flops)
    assert rows["peak of live memory"] == units.size(costed.memory.peak)

    tree = costed.tree
    spots = [s.label for s in tree.hot_spots(10)]
    listed = page.page.locator(".panel section", has_text="Hot spots").locator("li .value")
    assert listed.all_inner_texts() == spots

    modules = spread(tree)
    assert len(modules) == 10
    for item in modules:
        page.page.get_by_label("Search").first.fill(f"name:{item.path}")
        page.page.get_by_label("Search").first.press("Enter")
        page.page.wait_for_timeout(150)
        page.settle()
        rows = panel(page)
        assert rows["FLOPs"] == said(tree, Metric.FLOPS, item), item.path
        assert rows["bytes moved"] == said(tree, Metric.BYTES, item), item.path
        if hardware:
            assert rows["predicted time"] == said(tree, Metric.SECONDS, item), item.path
        at = f"app.tree.items.find(i => i.path === {json.dumps(item.path)})"
        total = WRITE[costed.metric](tree.share(costed.metric, item).total)
        assert page.run(f"return app.colours.look({at}).figure") == total, item.path
        found = costed.tree.bound(item)
        bound = {"launch": "launches"}.get(found, found) if found else "nothing"
        assert rows["bound by"].startswith(f"{bound} "), item.path
