"""The formats that a picture is written in: the views svg, pdf, png, dot and mermaid."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from opgraph.analysis.costed import CostedRecord
from opgraph.views.picture.picture import Picture, picture

FORMS = ("svg", "png", "pdf", "dot", "mermaid")


def written(drawn: Picture, form: str) -> str | bytes:
    """The picture in a format: "svg", "pdf", "png", "dot" or "mermaid"."""
    options = drawn.options
    match form:
        case "svg":
            from opgraph.views.picture.svg import to_svg

            return to_svg(drawn.scene, options.theme)
        case "png":
            from opgraph.views.picture.svg import to_png

            return to_png(drawn.scene, options.theme, options.dpi)
        case "pdf":
            from opgraph.views.picture.pdf import to_pdf

            return to_pdf(drawn.scene, options.theme, paginate=options.paginate)
        case "dot":
            from opgraph.views.picture.diagrams import to_dot

            return to_dot(drawn)
        case _:
            from opgraph.views.picture.diagrams import to_mermaid

            return to_mermaid(drawn)


def _view(form: str) -> Callable[..., str | bytes]:
    def drawn(costed: CostedRecord, **options: Any) -> str | bytes:
        return written(picture(costed, **options), form)

    return drawn


svg, png, pdf, dot, mermaid = map(_view, FORMS)
"""The pictures as views. The options are those of `Options`."""


def _figure(module: str, form: str) -> Callable[..., str | bytes]:
    def drawn(record: Any, *, theme: str = "auto") -> str | bytes:
        from opgraph.views.picture.svg import to_png, to_svg

        scene = import_module(f"opgraph.views.picture.{module}").scene(record)
        return to_svg(scene, theme) if form == "svg" else to_png(scene, theme, 192)

    return drawn


roofline_svg, roofline_png = (_figure("roofline", form) for form in ("svg", "png"))
curve_svg, curve_png = (_figure("curve", form) for form in ("svg", "png"))
"""Pictures of figures; a PNG has two dots a pixel."""
