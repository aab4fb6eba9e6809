"""The documentation speaks of what is there: every link leads somewhere, every path and name exists."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_PATH = re.compile(r"`((?:src|tests|docs|benchmarks|viewer|examples)/[\w./-]+)`")
_NAME = re.compile(r"`(opgraph(?:\.\w+)+)(?:\(\))?`")


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = []
    for target in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        name, _, anchor = target.partition("#")
        if "://" in name or name.startswith("mailto:"):
            continue
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
            missing.append(target)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        pytest.skip("it speaks of what was there")
    paths = _PATH.findall(page.read_text(encoding="utf-8"))
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        pytest.skip("it speaks of what was there")
    names = set(_NAME.findall(page.read_text(encoding="utf-8")))
    assert sorted(name for name in names if not _exists(name)) == []


def _exists(dotted: str) -> bool:
    """Whether a module, or a name in one, is there: the longest part that can be imported has the rest."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, part, None)
        return True
    return False


_CODE = re.compile(
    r"(?P<before>(?:^.*\S.*\n)?\n?)"
    r"(?:^```(?P<how>.*)\n(?P<fenced>(?s:.*?))^```$|(?P<plain>(?:^    .*\n|^\n(?=    ))+))",
    re.MULTILINE,
)


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.name)
def test_commands_run_when_the_site_is_built_or_it_is_said_why_not(page: Path) -> None:
    idle = []
    for code in _CODE.finditer(page.read_text(encoding="utf-8")):
        how = code["how"] or ""
        if 'exec="1"' in how or how == "yaml" or "<!-- not run" in code["before"]:
            continue
        lines = (code["fenced"] or code["plain"]).splitlines()
        idle += [line for line in lines if line.strip().removeprefix("$ ").startswith("opgraph ")]
    assert idle == [], (
        'write ```bash exec="1" source="above" result="text", or <!-- not run: why --> before it'
    )
