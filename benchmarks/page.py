"""Measures the interactive page in a real browser: python benchmarks/page.py [--runs 5] [--write]

The first picture and the opening of a layer of Llama-3.1-405B, frames a second while panning it and GPT-2
fully open, and the memory of the page. Needs chromium and playwright, and for the figures by the clock a
machine that does nothing else; processor time (of all threads that draw the page) hardly depends on that.
`--write` puts the figures into docs/viewer.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import opgraph

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
STEPS = 120
SIZE = {"width": 1440, "height": 900}

FRAMES = """const STEPS = 120; const gaps = []; let last = performance.now();
await new Promise(done => { let i = 0; const step = now => { gaps.push(now - last); last = now; i++;
  app.setCamera({...app.camera, x: app.camera.x + 9 * Math.cos(i / 9) / app.camera.zoom,
    y: app.camera.y + 9 * Math.sin(i / 7) / app.camera.zoom});
  i < STEPS ? requestAnimationFrame(step) : done(); }; requestAnimationFrame(step); });
return 1000 * (gaps.length - 1) / gaps.slice(1).reduce((a, b) => a + b);"""

ZOOMING = FRAMES.replace(
    "app.setCamera({...app.camera, ",
    "app.setCamera({...app.camera, zoom: app.camera.zoom * (1 + 0.03 * Math.sin(i / 6)), ",
)

OPENING = """await app.openAll(false);
const model = app.scene.boxes.find(b => b.item.path === 'model');
await app.toggle(model); const layers = app.scene.boxes.find(b => b.item.kind === 'fold');
const start = performance.now(); await app.toggle(layers);
await new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)));
return performance.now() - start;"""


PAGE = Path(__file__).parents[1] / "docs" / "viewer.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end -->\n"


@dataclass(frozen=True)
class Figure:
    """What was measured of a model's page, in which unit, and what is asked of it ("" where nothing is)."""

    model: str
    what: str
    value: float
    unit: str
    asked: str = ""

    def __str__(self) -> str:
        asked = f" (asked: {self.asked})" if self.asked else ""
        return f"{self.model}: {self.what}: {self.text}{asked}"

    @property
    def text(self) -> str:
        return f"{self.value:.3g} {self.unit}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="the figures into docs/viewer.md")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    figures = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        setting = (
            f"Chromium {browser.version} without a GPU, {os.cpu_count()} cores ({platform.machine()}), "
            f"medians of {arguments.runs}, load of the machine {os.getloadavg()[0]:.0f}"
        )
        print(setting)
        for model in ("meta-llama/Llama-3.1-405B", "gpt2"):
            file = Path(folder) / f"{model.rpartition('/')[2]}.html"
            opgraph.profile(model).view(file)
            page = browser.new_page(viewport=SIZE)
            for figure in measure(model, page, file, arguments.runs):
                print(figure, flush=True)
                figures.append(figure)
            page.close()
        browser.close()
    if arguments.write:
        write(setting, figures)


def measure(model: str, page: Any, file: Path, runs: int) -> Iterator[Figure]:
    """All figures of one page."""
    large = "Llama" in model

    def run(script: str) -> Any:
        return page.evaluate(f"async () => {{ const app = opgraphApp; {script} }}")

    def first_picture() -> float:
        page.goto("about:blank")
        start = time.perf_counter()
        page.goto(file.as_uri())
        page.wait_for_selector("#opgraph[data-ready]")
        return time.perf_counter() - start

    def spent(act: Callable[[], Any], unit: float) -> float:
        """The processor time that something takes, in parts of a second."""
        before = processor_time()
        act()
        return (processor_time() - before) / unit

    def median(what: str, unit: str, asked: str, figure: Callable[[], float]) -> Figure:
        return Figure(model, what, statistics.median(figure() for _ in range(runs)), unit, asked)

    yield Figure(model, "size of the page", file.stat().st_size / 1e6, "MB",
                 "4 MB or less" if large else "")  # fmt: skip
    yield median("first picture", "s", "1 s or less" if large else "", first_picture)
    yield median("first picture, processor time", "s", "", lambda: spent(first_picture, 1))
    if large:
        yield median("opening a layer", "ms", "below 300 ms", lambda: float(run(OPENING)))
    run("await app.setPlumbingHidden(false); await app.openAll(true, true); app.fit()")
    boxes = run("return app.scene.boxes.length")
    asked = "30 frames/s or more"
    yield median(
        f"panning {boxes:,} boxes, all in sight", "frames/s", asked, lambda: float(run(FRAMES))
    )
    yield median("zooming about there", "frames/s", asked, lambda: float(run(ZOOMING)))
    yield median(
        "a frame of that, processor time",
        "ms",
        "",
        lambda: spent(lambda: run(ZOOMING), STEPS / 1e3),
    )
    run("app.setCamera({...app.camera, zoom: 1})")
    yield median("panning at reading size", "frames/s", asked, lambda: float(run(FRAMES)))
    yield Figure(model, "memory, all open", memory_of_renderers(), "MB", "below 500 MB")


def write(setting: str, figures: Sequence[Figure]) -> None:
    """The figures as a table, in place of what stands in the page between its two marks."""
    rows = [f"| {f.model} | {f.what} | {f.text} | {f.asked} |" for f in figures]
    table = "\n".join(["| model | | measured | asked |", "|---|---|---:|---|", *rows])
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{setting}:\n\n{table}\n{END}{rest.partition(END)[2]}", "utf-8")


def renderers(file: str) -> Iterator[str]:
    """What Linux says in this file of each of the browser's renderers."""
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and b"--type=renderer" in (process / "cmdline").read_bytes():
                yield (process / file).read_text()
        except OSError:
            continue


def memory_of_renderers() -> float:
    """The largest proportional set size among the browser's renderers, in MB."""
    lines = [line.split() for text in renderers("smaps_rollup") for line in text.splitlines()]
    return max((int(line[1]) / 1e3 for line in lines if line[0] == "Pss:"), default=0.0)


def processor_time() -> float:
    """Seconds of all threads of the renderers so far."""
    ticks = [text.rpartition(")")[2].split()[11:13] for text in renderers("stat")]
    return sum(int(t) for both in ticks for t in both) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
