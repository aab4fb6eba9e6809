"""Makes every image in docs/ that shows what opgraph makes: python benchmarks/gallery.py [NAME …]

The pictures of docs/gallery.md, the rooflines, and the screenshots of the page (which need chromium and
playwright). `--check` makes the pictures anew beside those in docs/, says which differ, and ends with 1 if
any does; of screenshots only whether they are there.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import opgraph

DOCS = Path(__file__).parents[1] / "docs"

PICTURES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "resnet18": ("resnet18", {}, {}),
    "resnet152": ("resnet152", {}, {}),
    "bert": ("bert-base-uncased", {"seq_len": 128}, {}),
    "bert-right": ("bert-base-uncased", {"seq_len": 128}, {"direction": "right", "color_by": "op"}),
    "gpt2": ("gpt2", {"seq_len": 128}, {}),
    "gpt2-time": ("gpt2", {"seq_len": 128}, {"color_by": "time", "hardware": "h100-sxm", "theme": "dark"}),
    "t5": ("t5-small", {}, {}),
    "yolov8n": ("yolov8n.pt", {}, {}),
    "detr": ("facebook/detr-resnet-50", {}, {}),
    "whisper": ("openai/whisper-tiny", {}, {}),
    "mixtral": ("mistralai/Mixtral-8x7B-v0.1", {}, {}),
    "llama": ("meta-llama/Llama-3.1-405B", {}, {}),
    "densenet": ("densenet121", {}, {"color_by": "bytes"}),
    "part": (
        "bert-base-uncased", {"seq_len": 128},
        {"module": "encoder.layer.3.attention", "parameters": True, "color_by": "fusion"},
    ),
    "around": ("gpt2", {"seq_len": 128}, {"around": 32, "context": 6, "color_by": "flops"}),
}  # fmt: skip
"""For each picture of the gallery: the model, how it is profiled, how it is drawn."""

ROOFLINES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama.roofline": ("meta-llama/Llama-3.1-8B", {"seq_len": 512, "dtype": "bfloat16"}),
    "resnet18.roofline": ("resnet18", {}),
}
"""For each roofline on an H100: the model and how it is profiled."""


class Page(NamedTuple):
    """A screenshot of the page: of which model, on which device, what is done there, in which light."""

    model: str
    sizes: dict[str, Any]
    hardware: str | None = None
    steps: tuple[str, ...] = ()
    scheme: str = "light"
    against: str | None = None
    size: tuple[int, int] = (1440, 900)


PAGES = {
    "viewer-llama-405b": Page("meta-llama/Llama-3.1-405B", {"seq_len": 4096}, "h100-sxm"),
    "viewer-bert-dark": Page("bert-base-uncased", {}, "rtx-4090", ("app.setMode('time')",), "dark"),
    "viewer-resnet18-peak": Page(
        "resnet18", {}, None, ("app.setDock('memory')", "app.setMoment(app.memory.peakAt)")
    ),
    "viewer-difference": Page("resnet18", {}, against="tests/data/resnet18-changed.json"),
    "viewer-gpt2": Page("gpt2", {}, "h100-sxm"),
    "viewer-yolov8n": Page("yolov8n.pt", {}, "rtx-4090"),
    "viewer-detr-large": Page("facebook/detr-resnet-50", {}, "l4", size=(1920, 1080)),
    "viewer-t5-small-dark": Page("t5-small", {}, scheme="dark"),
    "viewer-mixtral": Page("mistralai/Mixtral-8x7B-v0.1", {}, "h100-sxm"),
    "viewer-gpt2-narrow": Page("gpt2", {}, "h100-sxm", size=(390, 844)),
}


def pictures(names: Iterable[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """Draw these pictures; each with its place in docs/."""
    for name in names:
        if name in PICTURES:
            model, sizes, options = PICTURES[name]
            path = folder / f"{name}.svg"
            opgraph.profile(model, **sizes).draw(path, **options)
            yield f"gallery/{name}.svg", path
        elif name in ROOFLINES:
            model, sizes = ROOFLINES[name]
            path = folder / f"{name}.svg"
            opgraph.profile(model, **sizes).on("h100-sxm").save(path)
            yield f"images/{name}.svg", path


def pages(names: Iterable[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """Take these screenshots; each with its place in docs/."""
    chosen = {name: PAGES[name] for name in names if name in PAGES}
    if not chosen:
        return
    with _browser() as browser:
        for name, page in chosen.items():
            html, image = folder / f"{name}.html", folder / f"{name}.png"
            costed = opgraph.profile(page.model, **page.sizes).on(page.hardware)
            other = None if page.against is None else opgraph.load(DOCS.parent / page.against)
            costed.view(html, **({} if other is None else {"against": other.on()}))
            width, height = page.size
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=page.scheme, offline=True
            )
            tab = context.new_page()
            tab.goto(html.as_uri())
            tab.wait_for_selector("[data-ready]")
            for step in page.steps:
                tab.evaluate(f"const app = globalThis.opgraphApp; {step}")
            tab.wait_for_timeout(800)
            tab.screenshot(path=image)
            context.close()
            yield f"images/{name}.png", image


@contextmanager
def _browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    flags = ["--headless", "--no-sandbox", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true", help="say which pictures are stale")
    arguments = parser.parse_args()
    names = arguments.names or [*PICTURES, *ROOFLINES, *PAGES]
    unknown = {*names} - {*PICTURES, *ROOFLINES, *PAGES}
    if unknown:
        parser.error(f"there is no image {', '.join(sorted(unknown))}")
    stale = 0
    with tempfile.TemporaryDirectory() as folder:
        for place, path in pictures(names, Path(folder)):
            there = DOCS / place
            differs = not there.is_file() or there.read_bytes() != path.read_bytes()
            stale += differs
            if not arguments.check:
                shutil.copy(path, there)
            print(f"docs/{place}{' is stale' if differs and arguments.check else ''}", flush=True)
        if arguments.check:
            gone = [
                name
                for name in names
                if name in PAGES and not (DOCS / f"images/{name}.png").is_file()
            ]
            print("".join(f"docs/images/{name}.png is not there\n" for name in gone), end="")
            return int(stale + len(gone) > 0)
        for place, path in pages(names, Path(folder)):
            shutil.copy(path, DOCS / place)
            print(f"docs/{place}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
