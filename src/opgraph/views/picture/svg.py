"""Writing a scene as SVG: plain shapes and selectable text, colours in one style sheet, tooltips, links,
and no script. With the theme "auto" the picture follows the reader's light or dark setting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from opgraph.record.errors import MissingDependency, RenderError
from opgraph.views.picture.fonts import FAMILY, embedded, files, font
from opgraph.views.picture.scene import (
    DARK,
    LIGHT,
    THEMES,
    Group,
    Line,
    Polygon,
    Rect,
    Scene,
    Shape,
    Text,
    Theme,
    corners,
)

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FALLBACK = f"{FAMILY},'Helvetica Neue',Helvetica,Arial,'Liberation Sans',sans-serif"


def to_svg(scene: Scene, theme: str = "auto", *, fonts: bool = True) -> str:
    """The scene as an SVG document. `fonts` embeds the typeface (14 kB)."""
    width, height = _number(scene.width), _number(scene.height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label={_attribute(scene.title)}>',
        f"<title>{_text(scene.title)}</title>",
        f"<desc>{_text(scene.description)}</desc>",
        f"<style>{embedded() if fonts else ''}{_style(theme)}</style>",
    ]
    for shape in scene.shapes:
        parts += _shape(shape)
    parts.append("</svg>\n")
    return "\n".join(parts)


def _style(theme: str) -> str:
    base = f"text{{font-family:{_FALLBACK};font-kerning:none;white-space:pre}}.b{{font-weight:600}}"
    if theme != "auto":
        return base + _colours(THEMES[theme])
    return f"{base}{_colours(LIGHT)}@media (prefers-color-scheme:dark){{{_colours(DARK)}}}"


def _colours(theme: Theme) -> str:
    return "".join(
        f".f-{role}{{fill:{colour}}}.s-{role}{{stroke:{colour}}}" for role, colour in theme.items()
    )


def _shape(shape: Shape) -> Iterator[str]:
    if isinstance(shape, Group):
        yield from _group(shape)
    elif isinstance(shape, Rect):
        yield _rect(shape)
    elif isinstance(shape, Text):
        if shape.text:
            yield _words(shape)
    elif isinstance(shape, Line):
        yield (
            f'<path d="{_path(shape)}" fill="none"{_stroke(shape.stroke, shape.thickness, shape.dash)}/>'
        )
    else:
        yield _polygon(shape)


def _group(group: Group) -> Iterator[str]:
    data = "".join(f" data-{key}={_attribute(value)}" for key, value in group.data if value)
    name = f' id="{group.id}"' if group.id else ""
    link = group.link
    yield f'<g class="{group.role}"{name}{data}>'
    if link:
        yield f'<a href={_attribute(link)} target="_blank">'
    if group.tooltip:
        yield f"<title>{_text(group.tooltip)}</title>"
    for shape in group.shapes:
        yield from _shape(shape)
    if link:
        yield "</a>"
    yield "</g>"


def _rect(r: Rect) -> str:
    fill = f' class="f-{r.fill}"' if r.fill else ' fill="none"'
    if r.fill and r.stroke:
        fill = f' class="f-{r.fill} s-{r.stroke}"'
    elif r.stroke:
        fill = f' fill="none" class="s-{r.stroke}"'
    width = f' stroke-width="{_number(r.thickness)}"' if r.stroke and r.thickness != 1.0 else ""
    dash = f' stroke-dasharray="{" ".join(map(_number, r.dash))}"' if r.dash else ""
    radius = f' rx="{_number(r.radius)}"' if r.radius else ""
    return (
        f'<rect x="{_number(r.x)}" y="{_number(r.y)}" width="{_number(r.width)}" '
        f'height="{_number(r.height)}"{radius}{fill}{width}{dash}/>'
    )


def _words(t: Text) -> str:
    classes = f"f-{t.fill}{' b' if t.bold else ''}{f' s-{t.halo}' if t.halo else ''}"
    anchor = "" if t.anchor == "start" else f' text-anchor="{t.anchor}"'
    halo = ' stroke-width="3" stroke-linejoin="round" paint-order="stroke"' if t.halo else ""
    turn = f' transform="rotate(-90 {_number(t.x)} {_number(t.y)})"' if t.turned else ""
    return (
        f'<text x="{_number(t.x)}" y="{_number(t.y)}" font-size="{_number(t.size)}" '
        f'class="{classes}"{anchor}{halo}{turn}>{_text(t.text)}</text>'
    )


def _polygon(p: Polygon) -> str:
    points = " ".join(f"{_number(x)},{_number(y)}" for x, y in p.points)
    return f'<polygon points="{points}" class="f-{p.fill}"/>'


def _stroke(role: str, thickness: float, dash: tuple[float, ...]) -> str:
    width = f' stroke-width="{_number(thickness)}"' if thickness != 1.0 else ""
    dashes = f' stroke-dasharray="{" ".join(map(_number, dash))}"' if dash else ""
    return f' class="s-{role}"{width}{dashes}'


def _path(line: Line) -> str:
    first, last = line.points[0], line.points[-1]
    parts = [f"M{_pair(first)}"]
    for begin, corner, end in corners(line.points, line.radius):
        parts.append(f"L{_pair(begin)}Q{_pair(corner)} {_pair(end)}")
    parts.append(f"L{_pair(last)}")
    return "".join(parts)


def _pair(point: tuple[float, float]) -> str:
    return f"{_number(point[0])} {_number(point[1])}"


def _number(value: float) -> str:
    """At most one decimal, a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def _text(text: str) -> str:
    return escape(_ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text))


def _attribute(text: str) -> str:
    return quoteattr(_ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text))


# A scene as PNG: the SVG of it, rasterized by resvg, which comes as a wheel for every platform.

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
    known = font().advances.keys() & font(bold=True).advances.keys()
    ours = all(c in known for s in scene.flat() if isinstance(s, Text) for c in s.text)
    return bytes(
        resvg_py.svg_to_bytes(svg_string=svg, font_files=files(), zoom=zoom, skip_system_fonts=ours)
    )
