"""The page in a notebook: what a cell holds, and a real JupyterLab in a real browser."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import opgraph
from opgraph import Profile
from opgraph.views.notebook import LARGEST_FRAME, mimebundle, static

SCREENSHOTS = Path(os.environ.get("OPGRAPH_SCREENSHOTS", Path(__file__).parent / "screenshots"))
ROOT = Path(opgraph.__file__).parents[1]
DATA = Path(__file__).parents[1] / "data"


def test_a_cell_holds_a_widget_html_and_text(saved: Callable[[str], Profile]) -> None:
    pytest.importorskip("anywidget")
    bundle = mimebundle(saved("resnet18"))
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    assert set(bundle) == {
        "application/vnd.jupyter.widget-view+json",
        "text/html",
        "text/plain",
    }
    assert len(json.dumps(bundle)) < 1_000_000
    assert bundle["text/plain"] == str(saved("resnet18"))


def test_names_are_text_in_the_fallback(saved: Callable[[str], Profile]) -> None:
    page = static(saved("resnet18"))
    assert len(page) < LARGEST_FRAME
    assert "<script" not in page.partition("srcdoc=")[0] + page.rpartition("</iframe>")[2]
    assert 'sandbox="allow-scripts allow-downloads"' in page


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which a kernel finds opgraph, and keeps its files to itself."""
    folders = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "RUNTIME")}
    return {
        **os.environ,
        **folders,
        "PYTHONPATH": str(ROOT),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }


def cells(*sources: str) -> dict[str, Any]:
    made = [
        {"cell_type": "code", "id": f"cell{i}", "metadata": {}, "outputs": [],
         "execution_count": None, "source": source}
        for i, source in enumerate(sources)
    ]  # fmt: skip
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def test_a_notebook_executes_to_less_than_a_megabyte(
    environment: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("anywidget")
    path = tmp_path / "profile.ipynb"
    path.write_text(
        json.dumps(cells(f"import opgraph\nopgraph.load({str(DATA / 'resnet18.json')!r})"))
    )
    subprocess.run(
        [sys.executable, "-c", "from nbclient.cli import main; main()", "--inplace", str(path)],
        env=environment, check=True, capture_output=True, timeout=180,
    )  # fmt: skip
    output = json.loads(path.read_text())["cells"][0]["outputs"][0]
    assert "application/vnd.jupyter.widget-view+json" in output["data"]
    assert len(json.dumps(output)) < 1_000_000


@pytest.fixture
def lab(environment: dict[str, str], tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A JupyterLab of its own: its address, and the folder it shows."""
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed (pip install jupyterlab)")
    pytest.importorskip("anywidget")
    folder = tmp_path / "notebooks"
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(8)
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}",
         f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}",
         "--LabApp.news_url=None", "--ServerApp.ip=127.0.0.1"],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{address}/api?token={token}", timeout=2)
                break
            except OSError:
                time.sleep(0.25)
        yield f"{address}/lab/tree/{{}}?token={token}", folder
    finally:
        server.terminate()
        server.wait(30)


def test_a_click_in_jupyterlab_is_seen_in_python(lab: tuple[str, Path], chromium: Any) -> None:
    address, folder = lab
    notebook = cells(
        f"import opgraph\np = opgraph.load({str(DATA / 'resnet18.json')!r})\nw = p.widget()\nw",
        "print('chosen', w.selected['path'], w.selected['nodes'])",
    )
    (folder / "page.ipynb").write_text(json.dumps(notebook))
    page = chromium.new_page(viewport={"width": 1600, "height": 1000})
    page.goto(address.format("page.ipynb"))
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
    # A cell that is run before the kernel is there is lost.
    page.wait_for_selector("text=/ipykernel.*Idle/", timeout=90_000)
    page.click(".jp-Notebook .jp-CodeCell >> nth=0 >> .jp-Editor")
    page.keyboard.press("Shift+Enter")
    page.wait_for_selector(".row .label", timeout=90_000)
    page.locator(".row", has_text="layer2").first.click()
    page.wait_for_selector(".panel h2:text('layer2')")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "jupyterlab.png")
    page.click(".jp-Notebook .jp-CodeCell >> nth=1 >> .jp-Editor")
    page.keyboard.press("Shift+Enter")
    page.wait_for_selector("text=chosen layer2", timeout=30_000)
    page.close()
