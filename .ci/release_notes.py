"""Print the changelog's section of a version: `python .ci/release_notes.py v1.2.3`. Ends with 1 where the
tag is not the version of the package, of CITATION.cff and of the conda recipe, or the changelog does not
have it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STATED = {
    "src/opgraph/version.py": r'__version__ = "(.+)"',
    "CITATION.cff": r"(?m)^version: (.+)$",
    "conda/recipe.yaml": r'(?m)^  version: "(.+)"$',
}
"""Where the version stands."""


def versions(root: Path = ROOT) -> dict[str, str]:
    """The version that each file states."""
    texts = {file: (root / file).read_text(encoding="utf-8") for file in STATED}
    found = {file: re.search(STATED[file], text) for file, text in texts.items()}
    return {file: match[1] if match else "none" for file, match in found.items()}


def notes(tag: str, root: Path = ROOT) -> str:
    """The section of a version. Raises `ValueError` where something disagrees."""
    version = tag.removeprefix("v")
    for file, stated in versions(root).items():
        if stated != version:
            raise ValueError(f"{file} states {stated}, and the tag is {tag}")
    sections = re.split(r"(?m)^## ", (root / "CHANGELOG.md").read_text(encoding="utf-8"))[1:]
    bodies = {head.strip(): body.strip() for head, _, body in (s.partition("\n") for s in sections)}
    if bodies.get("Unreleased"):
        raise ValueError("CHANGELOG.md still has changes under Unreleased")
    found = [
        b
        for head, b in bodies.items()
        if head == version or head.startswith((f"{version} ", f"[{version}]"))
    ]
    if not found or not found[0]:
        raise ValueError(f"CHANGELOG.md has nothing about {version}")
    return found[0] + "\n"


if __name__ == "__main__":
    try:
        sys.stdout.write(notes(sys.argv[1]))
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
