"""The page as text: one file, nothing from outside, and nothing of a model that could run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opgraph import Profile, RenderError
from opgraph.views import render
from opgraph.views.page.html import bundle, embed

HOSTILE = "</script><script>alert(1)</script><!--\u2028\u2029&amp;\x00\x1b[31m"


def page_of(profile: Profile) -> str:
    return str(render("html", profile.on()))


def data_of(page: str) -> dict[str, object]:
    found = re.search(
        r'<script type="application/octet-stream" id="opgraph-data">([\w+/=]*)</script>', page
    )
    assert found is not None
    data: dict[str, object] = json.loads(zlib.decompress(base64.b64decode(found[1])))
    return data


def test_the_page_holds_the_profile(saved: Callable[[str], Profile]) -> None:
    profile = saved("resnet18")
    assert Profile.from_dict(data_of(page_of(profile))["profile"]) == profile


def test_the_page_is_written_as_a_page_alone(
    saved: Callable[[str], Profile], tmp_path: Path
) -> None:
    saved("resnet18").view(tmp_path / "page.HTML")
    with pytest.raises(RenderError, match=r"no page is written to \.json"):
        saved("resnet18").view(tmp_path / "page.json")
    assert [path.name for path in tmp_path.iterdir()] == ["page.HTML"]


def test_the_page_is_small_and_names_no_address(saved: Callable[[str], Profile]) -> None:
    profile = saved("resnet18")
    page = page_of(profile)
    assert len(page) < 4e5 + len(profile.to_json()) / 4
    head = page.partition("<script")[0]
    assert not re.search(r"\b(src|href)=|https?:", head)
    assert not re.search(r"\beval\(|new Function\(|\bimport\(", bundle())


def test_the_policy_allows_this_script_and_no_network(saved: Callable[[str], Profile]) -> None:
    page = page_of(saved("resnet18"))
    found = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert found is not None
    rules = dict(rule.strip().split(" ", 1) for rule in found[1].split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in found[1]
    assert "http" not in found[1]
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"


@pytest.mark.slow
def test_names_cannot_leave_the_data(saved: Callable[[str], Profile]) -> None:
    profile = saved("resnet18")
    graph = profile.graph
    nodes = tuple(replace(n, name=f"{n.id}{HOSTILE}", op=HOSTILE) for n in graph.nodes)
    hostile = replace(
        profile,
        graph=replace(graph, nodes=nodes),
        model=replace(profile.model, name=HOSTILE, cls=HOSTILE),
    )
    page, plain = page_of(hostile), page_of(profile)
    assert page.count("<script") == plain.count("<script")
    assert page.count("</script>") == plain.count("</script>")
    assert "alert(1)</script>" not in page
    assert Profile.from_dict(data_of(page)["profile"]) == hostile


@pytest.mark.parametrize("text", ["<", ">", "&", "\u2028", "\u2029", "\ud800"])
def test_what_could_end_a_script_is_written_as_an_escape(text: str) -> None:
    assert text not in embed([text])
    assert json.loads(embed([text])) == [text]


def test_the_bundle_has_no_end_of_a_script() -> None:
    assert "</script" not in bundle().lower()
    assert "<!--" not in bundle()
