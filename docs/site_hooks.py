"""For the site (mkdocs.yml): where commands on a page run, and what a link to outside of docs/ leads to."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

_OUTSIDE = re.compile(r"\]\(\.\./([^)\s]+)\)")
_REPOSITORY = "https://github.com/opgraph/opgraph/blob/main/"
_ROOT = Path(__file__).parent.parent
_RUN = ' exec="1"'
_folders: list[tempfile.TemporaryDirectory[str]] = []


def on_pre_build(**_: Any) -> None:
    """Tables as wide as a page, and no profile from an earlier build."""
    os.environ |= {"COLUMNS": "100", "OPGRAPH_CACHE": "0"}
    os.environ["PYTEST_PLUGINS"] = (
        "opgraph.integrations.pytest_plugin"  # of a checkout on the path, too
    )


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Run the commands of a page in a folder of its own; point links that leave docs/ to the repository."""
    if _RUN in markdown:
        folder = tempfile.TemporaryDirectory(prefix="opgraph-docs-")
        _folders.append(folder)
        for name in ("examples", "tests"):
            (Path(folder.name) / name).symlink_to(_ROOT / name)
        markdown = markdown.replace(_RUN, f'{_RUN} workdir="{folder.name}"')
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
        folder = _folders.pop()
        for page in Path(folder.name).glob("*.html"):
            shutil.copy(page, kept)
        folder.cleanup()
