"""A real browser for the tests that need one: Debian's Chromium, driven by Playwright, with no way out to
any network. Every page's errors are kept, and a test that leaves some fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import opgraph
from opgraph import Profile
from opgraph.views import render

TRACED = {
    "detr-resnet-50": "facebook/detr-resnet-50",
    "llama-405b": "meta-llama/Llama-3.1-405B",
    "mixtral": "mistralai/Mixtral-8x7B-v0.1",
    "t5-small": "t5-small",
}
"""Models of which no profile is saved with the tests."""

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--process-per-site",
)  # fmt: skip
SCREENSHOTS = Path(os.environ.get("OPGRAPH_SCREENSHOTS", Path(__file__).parent / "screenshots"))


@cache
def _traced(name: str) -> Profile:
    return opgraph.profile(TRACED[name])


_PAGES: dict[int, tuple[Profile, str]] = {}


def _page(profile: Profile) -> str:
    """The page of a profile, made once; who has the profile keeps its id from any other."""
    if id(profile) not in _PAGES:
        _PAGES[id(profile)] = profile, str(render("html", profile.on()))
    return _PAGES[id(profile)][1]


@pytest.fixture
def shown(saved: Callable[[str], Profile]) -> Callable[[str], Profile]:
    """The profile of a model that pages are tried with, by its short name."""
    return lambda name: _traced(name) if name in TRACED else saved(name)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser. Tests are skipped where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
    )
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


class Page:
    """A page with a profile in it, over file://."""

    def __init__(self, page: Any, name: str) -> None:
        self.page = page
        self.name = name
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda e: self.errors.append(str(e)))
        page.on("console", lambda m: m.type in ("error", "warning") and self.errors.append(m.text))
        page.on("request", lambda r: self.requests.append(r.url))

    def open(self, path: Path, fragment: str = "") -> None:
        self.page.goto(path.as_uri() + fragment)
        self.page.wait_for_selector("#opgraph[data-ready]", timeout=30_000)

    def run(self, script: str) -> Any:
        """The value of a script, in which `app` is the page's application."""
        return self.page.evaluate(f"async () => {{ const app = opgraphApp; {script} }}")

    def settle(self) -> None:
        """Wait until what was asked for is laid out and drawn."""
        self.run("await app.update(); await new Promise(requestAnimationFrame);")

    def lit(self) -> list[int]:
        """The ids of the nodes that are lit."""
        return self.run(  # type: ignore[no-any-return]
            "return app.lit ? [...app.lit].flatMap((on, i) => on ? [i + 1] : []) : []"
        )

    def paths(self) -> list[str]:
        """The paths of the modules of all boxes."""
        return self.run("return app.scene.boxes.map(b => b.shown.path)")  # type: ignore[no-any-return]

    def where(self, path: str, header: bool = False) -> tuple[float, float]:
        """The middle of a module's box (or of its header) on the screen."""
        height = "Math.min(30, b.h)" if header else "b.h"
        x, y = self.run(
            f"""const b = app.scene.boxes.find(b => b.item.path === {path!r});
            const c = app.camera, r = document.querySelector('#opgraph').shadowRoot
              .querySelector('canvas.graph').getBoundingClientRect();
            return [r.left + (b.x + b.w / 2 - c.x) * c.zoom,
                    r.top + (b.y + {height} / 2 - c.y) * c.zoom];"""
        )
        return x, y

    def export(self, form: str, what: str, folder: Path) -> tuple[str, bytes]:
        """Save a picture ("SVG", "what is seen"): the name it is given, and what is in it."""
        self.page.get_by_role("button", name="Export").click()
        with self.page.expect_download() as download:
            self.page.get_by_role("menuitem", name=f"{form} {what}").click()
        path = folder / download.value.suggested_filename
        download.value.save_as(path)
        return path.name, path.read_bytes()

    def keep(self, what: str) -> None:
        """Keep a picture for people to look at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{self.name}-{what}.png")


@pytest.fixture(scope="session")
def windows(
    chromium: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Any]]:
    """`windows(color_scheme="dark")` is an empty page, with the network cut. Pages of the same options
    are drawn in one process, which goes on with a page that stays: starting one takes longer than most
    tests."""
    contexts: dict[frozenset[tuple[str, Any]], Any] = {}
    empty = tmp_path_factory.mktemp("pages") / "empty.html"
    empty.touch()

    def window(**options: Any) -> Any:
        key = frozenset(options.items())
        if key not in contexts:
            contexts[key] = chromium.new_context(
                offline=True, accept_downloads=True,
                permissions=["clipboard-read", "clipboard-write"], **options,
            )  # fmt: skip
            contexts[key].new_page().goto(empty.as_uri())
        return contexts[key].new_page()

    yield window
    for context in contexts.values():
        context.close()


@pytest.fixture
def browse(windows: Callable[..., Any], tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """`browse(profile, name)` opens a profile's page, with the network cut."""
    pages: list[Page] = []

    def open_page(
        content: Profile | str,
        name: str,
        fragment: str = "",
        size: tuple[int, int] = (1440, 900),
        **options: Any,
    ) -> Page:
        path = tmp_path / f"{name}.html"
        path.write_text(content if isinstance(content, str) else _page(content), "utf-8")
        page = Page(windows(**options), name)
        pages.append(page)
        page.page.set_viewport_size({"width": size[0], "height": size[1]})
        page.open(path, fragment)
        return page

    yield open_page
    errors = [e for page in pages for e in page.errors]
    reached = [
        r for page in pages for r in page.requests if not r.startswith(("file:", "blob:", "data:"))
    ]
    for page in pages:
        page.page.close()
    assert not errors
    assert not reached
