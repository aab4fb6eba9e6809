"""For the site (mkdocs.yml): what a page links to outside of docs/ is in the repository."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\]\(\.\./([^)\s]+)\)")
_REPOSITORY = "https://github.com/opgraph/opgraph/blob/main/"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links that leave docs/ to the repository."""
    return _OUTSIDE.sub(rf"]({_REPOSITORY}\1)", markdown)
