"""Measures the interactive page in a real browser: python benchmarks/page.py [--runs 5]

The first picture and the opening of a layer of Llama-3.1-405B, frames a second while panning it and GPT-2
fully open, and the memory of the page. Needs chromium and playwright.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import opgraph

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
SIZE = {"width": 1440, "height": 900}

FRAMES = """const gaps = []; let last = performance.now();
await new Promise(done => { let i = 0; const step = now => { gaps.push(now - last); last = now; i++;
  app.setCamera({...app.camera, x: app.camera.x + 9 * Math.cos(i / 9) / app.camera.zoom,
    y: app.camera.y + 9 * Math.sin(i / 7) / app.camera.zoom});
  i < 120 ? requestAnimationFrame(step) : done(); }; requestAnimationFrame(step); });
return 1000 * (gaps.length - 1) / gaps.slice(1).reduce((a, b) => a + b);"""

OPENING = """await app.openAll(false);
const model = app.scene.boxes.find(b => b.item.path === 'model');
await app.toggle(model); const layers = app.scene.boxes.find(b => b.item.kind === 'fold');
const start = performance.now(); await app.toggle(layers);
await new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)));
return performance.now() - start;"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        print(f"{platform.machine()}, Chromium {browser.version}, medians of {runs}")
        for name, model in (("405b", "meta-llama/Llama-3.1-405B"), ("gpt2", "gpt2")):
            file = Path(folder) / f"{name}.html"
            opgraph.profile(model).view(file)
            measure(model, browser.new_page(viewport=SIZE), file, runs)
        browser.close()


def measure(model: str, page: Any, file: Path, runs: int) -> None:
    """All figures of one page."""

    def run(script: str) -> Any:
        return page.evaluate(f"async () => {{ const app = opgraphApp; {script} }}")

    def first_picture() -> float:
        page.goto("about:blank")
        start = time.perf_counter()
        page.goto(file.as_uri())
        page.wait_for_selector("#opgraph[data-ready]")
        return time.perf_counter() - start

    def say(what: str, unit: str, figure: Callable[[], float]) -> None:
        print(f"{model}: {what}: {statistics.median(figure() for _ in range(runs)):.4g} {unit}")

    print(f"{model}: the page is {file.stat().st_size / 2**20:.2f} MiB")
    say("first picture", "s", first_picture)
    if "Llama" in model:
        say("opening the layers", "ms", lambda: float(run(OPENING)))
    run("await app.setPlumbingHidden(false); await app.openAll(true, true); app.fit()")
    boxes = run("return app.scene.boxes.length")
    say(f"panning {boxes:,} boxes, all seen", "frames/s", lambda: float(run(FRAMES)))
    run("app.setCamera({...app.camera, zoom: 1})")
    say("panning at reading size", "frames/s", lambda: float(run(FRAMES)))
    print(f"{model}: {memory_of_renderers():.0f} MB in the page's process")
    page.close()


def memory_of_renderers() -> float:
    """The largest proportional set size among the browser's renderers, in MB."""
    sizes = [0.0]
    for process in Path("/proc").iterdir():
        try:
            command = (process / "cmdline").read_bytes()
            if process.name.isdigit() and b"--type=renderer" in command:
                lines = (process / "smaps_rollup").read_text().splitlines()
                sizes += [int(line.split()[1]) / 1e3 for line in lines if line.startswith("Pss:")]
        except OSError:
            continue
    return max(sizes)


if __name__ == "__main__":
    main()
