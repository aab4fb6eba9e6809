"""Makes every image in docs/ that shows what opgraph makes: python benchmarks/gallery.py [NAME …]

The pictures of docs/gallery.md, the rooflines, and the screenshots of the page (which need chromium,
playwright and pillow): single ones, and a sheet for each of nine models at three sizes in light and dark.
`--check` makes the pictures anew beside those in docs/, and what the screenshots are of, says which differ
from what is there (docs/images/made.json keeps what each screenshot was made of), and ends with 1 if any
does. It needs no browser.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import opgraph
from opgraph.views.page.data import page_data
from opgraph.views.page.html import bundle, html

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
    "viewer-llama-405b-unfolded": Page(
        "meta-llama/Llama-3.1-405B",
        {"seq_len": 4096},
        None,
        ("await app.openAll(true, true); app.fit()",),
    ),
    "viewer-roofline": Page("gpt2", {}, "rtx-4090", ("app.setDock('roofline')",)),
}

SHEETS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "page-resnet18": ("resnet18", {}, None),
    "page-bert": ("bert-base-uncased", {}, "rtx-4090"),
    "page-gpt2": ("gpt2", {}, "h100-sxm"),
    "page-t5": ("t5-small", {}, None),
    "page-yolov8n": ("yolov8n.pt", {}, "rtx-4090"),
    "page-detr": ("facebook/detr-resnet-50", {}, "l4"),
    "page-mixtral": ("mistralai/Mixtral-8x7B-v0.1", {}, "h100-sxm"),
    "page-llama": ("meta-llama/Llama-3.1-405B", {"seq_len": 4096}, "h100-sxm"),
    "page-branch": ("examples/gated.py:Gated", {"input_shape": (1, 3, 64, 64)}, None),
}
"""For each sheet: the model, how it is profiled, on which device."""
SIZES = ((1440, 900), (1920, 1080), (390, 844))
SHEET_ROW = 460
"""Pixels of height of a row of a sheet."""
MADE = DOCS / "images/made.json"


@cache
def _profiled(model: str, sizes: tuple[tuple[str, Any], ...]) -> opgraph.Profile:
    return opgraph.profile(model, **dict(sizes))


def profiled(model: str, sizes: dict[str, Any]) -> opgraph.Profile:
    """The model at these sizes, traced once for all images of it."""
    return _profiled(model, tuple(sizes.items()))


def pictures(names: Iterable[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """Draw these pictures; each with its place in docs/."""
    for name in names:
        if name in PICTURES:
            model, sizes, options = PICTURES[name]
            path = folder / f"{name}.svg"
            profiled(model, sizes).draw(path, **options)
            yield f"gallery/{name}.svg", path
        elif name in ROOFLINES:
            model, sizes = ROOFLINES[name]
            path = folder / f"{name}.svg"
            profiled(model, sizes).on("h100-sxm").save(path)
            yield f"images/{name}.svg", path


def shown(name: str) -> tuple[opgraph.Costed, opgraph.Costed | None]:
    """What an image shows: a model on a device, and the one beside which it stands."""
    if name in SHEETS:
        model, sizes, hardware = SHEETS[name]
        return profiled(model, sizes).on(hardware), None
    page = PAGES[name]
    other = None if page.against is None else opgraph.load(DOCS.parent / page.against).on()
    return profiled(page.model, page.sizes).on(page.hardware), other


def made_of(name: str) -> str:
    """A digest of what is in an image's page: the program, and of the data what is seen of it. Times of
    tracing, versions, and devices that are not chosen are not."""
    costed, other = shown(name)
    data = page_data(costed, against=other)
    for unseen in ("tracing", "versions"):
        data["profile"].pop(unseen, None)
    data["devices"] = [device for device in data["devices"] if device["id"] == data.get("device")]
    parts = [bundle(), json.dumps(data, sort_keys=True), repr(PAGES.get(name, SHEETS.get(name)))]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def pages(names: Iterable[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """Take these screenshots; each with its place in docs/. What each was made of is kept."""
    chosen = [name for name in names if name in PAGES or name in SHEETS]
    if not chosen:
        return
    made = json.loads(MADE.read_text()) if MADE.is_file() else {}
    with _browser() as browser:
        for name in chosen:
            costed, other = shown(name)
            made[name] = made_of(name)
            path = folder / f"{name}.html"
            path.write_text(html(costed, against=other), encoding="utf-8")
            if name in SHEETS:
                yield f"gallery/{name}.webp", sheet(browser, path)
            else:
                page = PAGES[name]
                image = folder / f"{name}.png"
                image.write_bytes(shot(browser, path, page.size, page.scheme, page.steps))
                yield f"images/{name}.png", image
            MADE.write_text(json.dumps(dict(sorted(made.items())), indent=1) + "\n")


def shot(
    browser: Any, path: Path, size: tuple[int, int], scheme: str, steps: tuple[str, ...] = ()
) -> bytes:
    """A page as it opens, or after some steps, as PNG."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, offline=True
    )
    tab = context.new_page()
    tab.goto(path.as_uri())
    tab.wait_for_selector("[data-ready]")
    for step in steps:
        tab.evaluate(f"async () => {{ const app = globalThis.opgraphApp; {step} }}")
    tab.wait_for_timeout(800)
    image: bytes = tab.screenshot()
    context.close()
    return image


def sheet(browser: Any, path: Path) -> Path:
    """The page at all sizes, light above dark, as one image."""
    from io import BytesIO

    from PIL import Image

    rows = []
    for scheme in ("light", "dark"):
        row = []
        for size in SIZES:
            image = Image.open(BytesIO(shot(browser, path, size, scheme))).convert("RGB")
            wide = round(image.width * SHEET_ROW / image.height)
            row.append(image.resize((wide, SHEET_ROW), Image.Resampling.LANCZOS))
        rows.append(row)
    width = max(sum(image.width + 8 for image in row) for row in rows) - 8
    made = Image.new("RGB", (width, len(rows) * (SHEET_ROW + 8) - 8), "#808080")
    for number, row in enumerate(rows):
        x = 0
        for image in row:
            made.paste(image, (x, number * (SHEET_ROW + 8)))
            x += image.width + 8
    target = path.with_suffix(".webp")
    made.save(target, quality=72, method=6)
    return target


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
    known = [*PICTURES, *ROOFLINES, *PAGES, *SHEETS]
    names = arguments.names or known
    unknown = {*names} - {*known}
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
            made = json.loads(MADE.read_text()) if MADE.is_file() else {}
            for name in names:
                if name in PAGES or name in SHEETS:
                    differs = made.get(name) != made_of(name)
                    stale += differs
                    print(f"{name}{' is stale' if differs else ''}", flush=True)
            return int(stale > 0)
        for place, path in pages(names, Path(folder)):
            shutil.copy(path, DOCS / place)
            print(f"docs/{place}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
