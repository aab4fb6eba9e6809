"""A scene as PNG: the SVG of it, rasterized by resvg, which comes as a wheel for every platform."""

from __future__ import annotations

from opgraph.errors import MissingDependency, RenderError
from opgraph.views.drawing.fonts import files, font
from opgraph.views.drawing.scene import Scene, Text
from opgraph.views.svg import to_svg

LONGEST_SIDE = 32_767
"""More than this, most programs cannot show."""
MOST_PIXELS = 400_000_000
"""1.6 GB while it is drawn."""


def to_png(scene: Scene, theme: str, dpi: float) -> bytes:
    """The scene as PNG; the theme "auto" is light here.

    Raises `RenderError` where the picture would have too many pixels, and `MissingDependency` without
    resvg.
    """
    zoom = dpi / 96.0
    width, height = round(scene.width * zoom), round(scene.height * zoom)
    if max(width, height) > LONGEST_SIDE or width * height > MOST_PIXELS:
        fitting = min(LONGEST_SIDE / max(scene.width, scene.height),
                      (MOST_PIXELS / scene.width / scene.height) ** 0.5) * 96.0  # fmt: skip
        raise RenderError(
            f"a PNG of {width:,} × {height:,} pixels is more than most programs can show",
            hint=f"write .svg or .pdf, or give --dpi {max(1, int(fitting))} or less",
        )
    try:
        import resvg_py
    except ImportError:
        raise MissingDependency("resvg-py", "draw") from None
    svg = to_svg(scene, "light" if theme == "auto" else theme, fonts=False)
    # Looking through the fonts of the system takes longer than drawing a small picture.
    known = font().glyphs.keys() & font(bold=True).glyphs.keys()
    ours = all(ord(c) in known for s in scene.flat() if isinstance(s, Text) for c in s.text)
    return bytes(
        resvg_py.svg_to_bytes(svg_string=svg, font_files=files(), zoom=zoom, skip_system_fonts=ours)
    )
