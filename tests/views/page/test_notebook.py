"""The page in a notebook: what a cell holds, and real notebooks in a real browser."""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import DATA

import opgraph
from opgraph import Profile
from opgraph.views.page.notebook import LARGEST_FRAME, mimebundle

SCREENSHOTS = Path(os.environ.get("OPGRAPH_SCREENSHOTS", Path(__file__).parents[1] / "screenshots"))
ROOT = Path(opgraph.__file__).parents[1]


@pytest.mark.slow
def test_a_cell_holds_html_and_text(saved: Callable[[str], Profile]) -> None:
    """In the fallback names are text."""
    bundle = mimebundle(saved("resnet18").on())
    assert set(bundle) == {"text/html", "text/plain"}
    assert len(json.dumps(bundle)) < 1_000_000
    assert bundle["text/plain"] == str(saved("resnet18"))
    page = bundle["text/html"]
    assert len(page) < LARGEST_FRAME
    assert "<script" not in page.partition("srcdoc=")[0] + page.rpartition("</iframe>")[2]
    assert 'sandbox="allow-scripts allow-downloads"' in page
    # It begins with a picture, which readers show that let no script run.
    assert page.startswith('<div><img alt="Operator graph of resnet18"')
    drawn = base64.b64decode(page.partition("base64,")[2].partition('"')[0]).decode()
    assert drawn.startswith("<svg")
    assert ">conv1<" in drawn
    assert "<script" not in drawn


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


@pytest.mark.slow
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
    notebook = json.loads(path.read_text())
    output = notebook["cells"][0]["outputs"][0]
    assert "".join(output["data"]["text/html"]).startswith("<div><img")
    assert "widgets" not in notebook["metadata"]
    assert len(json.dumps(output)) < 1_000_000


JUPYTER = {"jupyterlab": "lab/tree", "notebook": "notebooks"}
"""The applications that show Jupyter's notebooks, and where in them a notebook is found."""


def wait(ready: Callable[[], Any], seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until
        time.sleep(0.25)


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2):
            return True
    except OSError:
        return False


def read(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=10) as response:
        return json.load(response)


def idle(kernels: str) -> bool:
    """Whether the server has a kernel that waits for work. While it starts one, it may fail to say."""
    try:
        return any(k["execution_state"] == "idle" and k["connections"] for k in read(kernels))
    except OSError:
        return False


@contextmanager
def serving(command: Sequence[str], environment: dict[str, str], address: str) -> Iterator[None]:
    """A server while it is needed, once it answers."""
    server = subprocess.Popen(
        [sys.executable, "-m", *command],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait(lambda: answers(address))
        yield
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize("application", JUPYTER)
def test_a_click_in_jupyter_is_seen_in_python(
    application: str, environment: dict[str, str], port: int, chromium: Any, tmp_path: Path
) -> None:
    pytest.importorskip(application, reason=f"not installed (pip install {application})")
    pytest.importorskip("anywidget")
    notebook = cells(
        f"import opgraph\np = opgraph.load({str(DATA / 'resnet18.json')!r})\nw = p.widget()\nw",
        "print('chosen', w.selected['path'], w.selected['nodes'])",
    )
    (tmp_path / "page.ipynb").write_text(json.dumps(notebook))
    themes = tmp_path / "settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings"
    themes.parent.mkdir(parents=True)
    themes.write_text('{"theme": "JupyterLab Dark"}')
    environment["JUPYTERLAB_SETTINGS_DIR"] = str(tmp_path / "settings")
    token = secrets.token_hex(8)
    command = (
        application, "--no-browser", "--allow-root", f"--port={port}", "--ServerApp.ip=127.0.0.1",
        f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={tmp_path}", "--LabApp.news_url=None",
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    with serving(command, environment, f"{address}/api?token={token}"):
        page = chromium.new_page(viewport={"width": 1600, "height": 1000})
        page.goto(f"{address}/{JUPYTER[application]}/page.ipynb?token={token}")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
        # A cell that is run before the kernel is there is lost.
        kernels = f"{address}/api/kernels?token={token}"
        wait(lambda: idle(kernels))
        page.click(".jp-Notebook .jp-CodeCell >> nth=0 >> .jp-Editor")
        page.keyboard.press("Shift+Enter")
        page.wait_for_selector(".row .label", timeout=90_000)
        page.locator(".row", has_text="layer2").first.click()
        page.wait_for_selector(".panel h2:text('layer2')")
        # It is as dark as the notebook around it, whatever the system is.
        page.wait_for_selector(".opgraph.dark")
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{application}.png")
        page.click(".jp-Notebook .jp-CodeCell >> nth=1 >> .jp-Editor")
        page.keyboard.press("Shift+Enter")
        page.wait_for_selector("text=chosen layer2", timeout=30_000)
        # Whenever the sheet of another theme has come, it is followed.
        page.add_style_tag(content="div { color: black }")
        page.wait_for_selector(".opgraph:not(.dark)")
        page.close()


@pytest.mark.slow
def test_a_click_in_marimo_is_seen_in_python(
    environment: dict[str, str], port: int, chromium: Any, tmp_path: Path
) -> None:
    pytest.importorskip("marimo", reason="not installed (pip install marimo)")
    pytest.importorskip("anywidget")
    notebook = tmp_path / "notebook.py"
    notebook.write_text(MARIMO.format(path=str(DATA / "resnet18.json")))
    command = ("marimo", "run", "--headless", "--no-token", f"--port={port}", str(notebook))
    address = f"http://127.0.0.1:{port}/"
    with serving(command, environment, address):
        page = chromium.new_page(viewport={"width": 1600, "height": 1000})
        page.goto(address)
        page.wait_for_selector(".row .label", timeout=90_000)
        page.locator(".row", has_text="layer2").first.click()
        page.wait_for_selector("text=chosen layer2", timeout=30_000)
        assert not page.locator(".opgraph.dark").count()
        page.screenshot(path=SCREENSHOTS / "marimo.png")
        page.close()


MARIMO = """
import marimo

app = marimo.App(width="medium")


@app.cell
def _():
    import marimo as mo
    import opgraph

    w = mo.ui.anywidget(opgraph.load({path!r}).widget())
    w
    return mo, w


@app.cell
def _(mo, w):
    mo.md(f"chosen {{w.value['selected']['path']}}" if w.value["selected"] else "")
    return
"""
