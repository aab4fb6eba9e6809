"""For the site (mkdocs.yml): where commands on a page run, and what a link to outside of docs/ leads to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

_OUTSIDE = re.compile(r"\]\(\.\./([^)\s]+)\)")
_REPOSITORY = "https://github.com/opgraph/opgraph/blob/main/"
_ROOT = Path(__file__).parent.parent
_RUN = ' exec="1"'
_COMMANDS = re.compile(
    r'^```bash exec="1" source="above" result="text"\n(.*?\n)```$', re.MULTILINE | re.DOTALL
)
_HIDDEN = re.compile(r"^.*# markdown-exec: hide\n", re.MULTILINE)
_folders: dict[str, tempfile.TemporaryDirectory[str]] = {}
_printed: dict[str, Future[list[str]]] = {}


def on_pre_build(**_: Any) -> None:
    """Tables as wide as a page, and no profile from an earlier build."""
    os.environ |= {"COLUMNS": "100", "OPGRAPH_CACHE": "0"}
    os.environ["PYTEST_PLUGINS"] = (
        "opgraph.integrations.pytest_plugin"  # of a checkout on the path, too
    )


def on_files(files: Any, **_: Any) -> None:
    """Run the commands of each page in a folder of its own, one behind the other, and as many pages at a
    time as there are cores: that takes nearly all of the time of a build."""
    pool = ThreadPoolExecutor(os.cpu_count())
    for file in files.documentation_pages():
        if _RUN not in file.content_string:
            continue
        folder = tempfile.TemporaryDirectory(prefix="opgraph-docs-")
        _folders[file.src_uri] = folder
        for name in ("examples", "tests"):
            (Path(folder.name) / name).symlink_to(_ROOT / name)
        blocks = _COMMANDS.findall(file.content_string)
        _printed[file.src_uri] = pool.submit(_run, blocks, folder.name)
    pool.shutdown(wait=False)


def _run(blocks: list[str], folder: str) -> list[str]:
    """What these commands print. Raises `PluginError`, which ends the build, for one that fails."""
    printed = []
    for block in blocks:
        done = subprocess.run(
            ["bash", "-c", block], cwd=folder, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if done.returncode:
            raise PluginError(f"{block}ended with {done.returncode}:\n{done.stdout}")
        printed.append(done.stdout)
    return printed


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Show what the commands of a page printed below them, run its Python in the same folder, and point
    links that leave docs/ to the repository."""
    where = page.file.src_uri
    if where in _printed:
        printed = iter(_printed[where].result())

        def shown(block: re.Match[str]) -> str:
            commands = _HIDDEN.sub("", block[1])
            return f"```bash\n{commands}```\n\n`````text\n{next(printed).rstrip()}\n`````"

        markdown = _COMMANDS.sub(shown, markdown)
        markdown = markdown.replace(_RUN, f'{_RUN} workdir="{_folders[where].name}"')
    return _OUTSIDE.sub(rf"]({_REPOSITORY}\1)", markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Put the JSON Schemas where their `$id` says; keep the interactive pages that were made, which pages
    of the site show, and nothing else of it."""
    from opgraph.views import schemas

    for file in schemas.FOLDER.glob("*.json"):
        address = schemas.schema(file.stem)["$id"]
        at = Path(config["site_dir"]) / address.removeprefix(config["site_url"])
        at.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, at)
    kept = Path(config["site_dir"]) / "views"
    kept.mkdir(exist_ok=True)
    while _folders:
        _, made = _folders.popitem()
        for page in Path(made.name).glob("*.html"):
            shutil.copy(page, kept)
        made.cleanup()
