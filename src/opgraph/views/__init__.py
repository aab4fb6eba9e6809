"""The registry of views. A view is one file beside this one, with a function from a profile and its
options to text or bytes, and one line in `_BUILT_IN`; other packages add theirs through the entry point
group `opgraph.views`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from opgraph.record.errors import RenderError
from opgraph.record.files import write_atomically
from opgraph.record.profile import Profile

GROUP = "opgraph.views"


@dataclass(frozen=True, slots=True)
class View:
    """A way of showing a profile: its name, the ends of file names that mean it, where it is
    ("module:function", imported when it is used), the options that it cannot do without, and those of
    `opgraph profile` that it heeds beside them."""

    name: str
    suffixes: tuple[str, ...]
    target: str
    needs: tuple[str, ...] = ()
    heeds: tuple[str, ...] = ()

    def load(self) -> Callable[..., str | bytes]:
        module, _, function = self.target.partition(":")
        found: Callable[..., str | bytes] = getattr(import_module(module), function)
        return found


_PICTURE = ("depth", "fold", "hardware", "theme")

_BUILT_IN = (
    View(
        "table",
        (".txt",),
        "opgraph.views.text.table:table",
        heeds=(
            "depth",
            "sort",
            "top",
            "show_shapes",
            "fold",
            "verbose",
            "hardware",
            "memory",
            "partition",
            "layout",
        ),
    ),
    View("json", (".json",), "opgraph.views.files.json:to_json"),
    View("html", (".html", ".htm"), "opgraph.views.page.html:html"),
    View("csv", (".csv",), "opgraph.views.files.records:to_csv"),
    View("parquet", (".parquet",), "opgraph.views.files.records:to_parquet"),
    View("markdown", (".md", ".markdown"), "opgraph.views.text.markdown:to_markdown"),
    View("graphml", (".graphml",), "opgraph.views.files.graphml:to_graphml"),
    View(
        "model-explorer",
        (".model-explorer.json",),
        "opgraph.views.files.model_explorer:to_model_explorer",
    ),
    View(
        "model-explorer-overlay",
        (".overlay.json",),
        "opgraph.views.files.model_explorer:to_overlay",
    ),
    View("trace", (".trace.json",), "opgraph.views.files.trace:to_trace", ("hardware",)),
    View(
        "roofline",
        ("roofline.svg",),
        "opgraph.views.picture.roofline:svg",
        ("hardware",),
        ("theme",),
    ),
    View(
        "roofline-png",
        ("roofline.png",),
        "opgraph.views.picture.roofline:png",
        ("hardware",),
        ("theme",),
    ),
    View("svg", (".svg",), "opgraph.views.picture.picture:svg", heeds=_PICTURE),
    View("pdf", (".pdf",), "opgraph.views.picture.picture:pdf", heeds=_PICTURE),
    View("png", (".png",), "opgraph.views.picture.picture:png", heeds=_PICTURE),
    View("dot", (".dot", ".gv"), "opgraph.views.picture.picture:dot", heeds=_PICTURE),
    View("mermaid", (".mmd", ".mermaid"), "opgraph.views.picture.picture:mermaid", heeds=_PICTURE),
)


_NAMED = {v.name: v for v in _BUILT_IN}


@cache
def views() -> dict[str, View]:
    """All views by name, those of other packages as well."""
    from importlib.metadata import entry_points

    found = dict(_NAMED)
    for point in entry_points(group=GROUP):
        view = point.load()
        found.setdefault(view.name, view)
    return found


def render(name: str, profile: Profile, **options: Any) -> str | bytes:
    """Draw a profile with the view of that name.

    Raises `RenderError` when there is no such view.
    """
    return view_named(name).load()(profile, **options)


def view_named(name: str) -> View:
    """The view of that name.

    Raises `RenderError` when there is none.
    """
    # Asking what is installed takes a tenth of the time that showing a saved profile does.
    view = _NAMED.get(name) or views().get(name)
    if view is None:
        raise RenderError(f"there is no view {name!r}", hint=f"one of {', '.join(views())}")
    return view


def view_for(path: str | os.PathLike[str]) -> View:
    """The view that a file's suffix means, the longest suffix first (".trace.json" before ".json").

    Raises `RenderError` when no view writes such files.
    """
    name, suffix = Path(path).name.lower(), Path(path).suffix.lower()
    found = [(s, v) for v in views().values() for s in v.suffixes if name.endswith(s)]
    if found:
        return max(found, key=lambda pair: len(pair[0]))[1]
    known = ", ".join(s for v in views().values() for s in v.suffixes)
    raise RenderError(
        f"no view writes {suffix or 'files without a suffix'}", hint=f"one of {known}"
    )


def write(profile: Profile, path: str | os.PathLike[str], **options: Any) -> None:
    """Draw a profile into a file, as its suffix says; the file appears whole or not at all."""
    write_atomically(path, view_for(path).load()(profile, **options))
