"""Writing a scene as PDF: vector shapes, selectable text in an embedded font, links to source lines. No
date and no random id is written, so that the same scene gives the same bytes. (PDF 1.7, ISO 32000-1.)"""

from __future__ import annotations

from collections.abc import Iterator

from opgraph.views.drawing.fonts import Font, font
from opgraph.views.drawing.pages import Page, pages
from opgraph.views.drawing.scene import Group, Line, Polygon, Rect, Scene, Shape, Text, corners
from opgraph.views.drawing.themes import THEMES, Theme
from opgraph.views.pdf_file import PdfFile, embed

POINTS = 0.75
"""Points in a pixel: 96 pixels are an inch, and so are 72 points."""
MOST_POINTS = 14_400.0
"""The longest side of a page that readers take (ISO 32000-1, annex C)."""
KAPPA = 0.5523
"""Where the control points of a curve must lie to make a quarter of a circle."""


def to_pdf(scene: Scene, theme: str, *, paginate: bool = False) -> bytes:
    """The scene as a PDF of one page as large as the picture or, with `paginate`, as an overview and as
    many A4 pages as it takes; the theme "auto" is light here."""
    colours = THEMES["light" if theme == "auto" else theme]
    file = PdfFile(scene.title)
    fonts = {name: embed(file, font(bold=name == "B"), name) for name in ("R", "B")}
    content = _Content(colours)
    for shape in scene.shapes:
        content.draw(shape)
    whole = [
        Page(
            0.0, 0.0, scene.width, scene.height, scene.width * POINTS, scene.height * POINTS, POINTS
        )
    ]
    layout = pages(scene) if paginate else whole
    drawn = file.add_stream({"Type": "/XObject", "Subtype": "/Form",
                             "BBox": f"[0 0 {_n(scene.width)} {_n(scene.height)}]",
                             "Resources": _resources(fonts)}, content.text())  # fmt: skip
    for page in layout:
        _add_page(file, page, drawn, fonts, content.links, colours)
    return file.bytes()


def _add_page(
    file: PdfFile, page: Page, drawn: int, fonts: dict[str, int],
    links: list[tuple[float, float, float, float, str]], colours: Theme,
) -> None:  # fmt: skip
    """A page shows a window of the picture, cut at its edges, and its caption."""
    unit = max(1.0, max(page.paper_width, page.paper_height) / MOST_POINTS)
    scale, width, height = page.scale / unit, page.paper_width / unit, page.paper_height / unit
    left, top = page.left / unit, page.top / unit
    parts = [f"q {_n(left)} {_n(height - top - page.height * scale)} {_n(page.width * scale)} "
             f"{_n(page.height * scale)} re W n"]  # fmt: skip
    x, y = left - page.x * scale, height - top + page.y * scale
    parts.append(f"{_n(scale, 5)} 0 0 {_n(-scale, 5)} {_n(x)} {_n(y)} cm /P Do Q")
    caption = _Content(colours, flipped=False)
    for text in page.captions:
        caption.draw(
            Text(
                text.x / unit,
                height - text.y / unit,
                text.text,
                text.size,
                text.fill,
                text.bold,
                text.anchor,
            )
        )
    for line in page.frames:
        caption.draw(Line(tuple((left + (a - page.x) * scale, height - top - (b - page.y) * scale)
                                for a, b in line.points), line.stroke, line.thickness))  # fmt: skip
    content = file.add_stream({}, "\n".join([*parts, caption.text()]))
    found = []
    for a, b, c, d, url in links:
        if a < page.x + page.width and c > page.x and b < page.y + page.height and d > page.y:
            box = [left + (max(a, page.x) - page.x) * scale,
                   height - top - (min(d, page.y + page.height) - page.y) * scale,
                   left + (min(c, page.x + page.width) - page.x) * scale,
                   height - top - (max(b, page.y) - page.y) * scale]  # fmt: skip
            found.append(file.add_link(" ".join(map(_n, box)), url))
    file.add_page(width, height, unit, content, _resources(fonts, drawn), found, page.title)


def _resources(fonts: dict[str, int], drawn: int | None = None) -> str:
    named = " ".join(f"/{name} {number} 0 R" for name, number in fonts.items())
    form = f" /XObject << /P {drawn} 0 R >>" if drawn is not None else ""
    return f"<< /Font << {named} >>{form} >>"


class _Content:
    """Shapes as drawing operators, in the scene's frame, whose y runs downwards (`flipped`)."""

    def __init__(self, colours: Theme, *, flipped: bool = True) -> None:
        self.links: list[tuple[float, float, float, float, str]] = []
        self._colours = {role: _rgb(colour) for role, colour in colours.items()}
        self._parts: list[str] = []
        self._flipped = flipped

    def text(self) -> str:
        return "\n".join(self._parts)

    def draw(self, shape: Shape) -> None:
        if isinstance(shape, Group):
            first = next((s for s in shape.shapes if isinstance(s, Rect)), None)
            if shape.link and first is not None:
                r = first
                self.links.append((r.x, r.y, r.x + r.width, r.y + r.height, shape.link))
            for part in shape.shapes:
                self.draw(part)
        elif isinstance(shape, Rect):
            self._rect(shape)
        elif isinstance(shape, Text):
            self._words(shape)
        elif isinstance(shape, Line):
            self._line(shape)
        else:
            self._polygon(shape)

    def _rect(self, r: Rect) -> None:
        fill = f"{self._colours[r.fill]} rg " if r.fill else ""
        stroke = self._stroke(r.stroke, r.thickness, r.dash) if r.stroke else ""
        paint = "B" if r.fill and r.stroke else "f" if r.fill else "S"
        self._parts.append(f"q {fill}{stroke}{_rounded(r)} {paint} Q")

    def _polygon(self, p: Polygon) -> None:
        (x, y), *rest = p.points
        path = " ".join(f"{_n(a)} {_n(b)} l" for a, b in rest)
        self._parts.append(f"{self._colours[p.fill]} rg {_n(x)} {_n(y)} m {path} h f")

    def _line(self, line: Line) -> None:
        (x, y), last = line.points[0], line.points[-1]
        path = [f"{_n(x)} {_n(y)} m"]
        for begin, corner, end in corners(line.points, line.radius):
            first = _between(begin, corner, 2 / 3)
            second = _between(end, corner, 2 / 3)
            path.append(f"{_pair(begin)} l {_pair(first)} {_pair(second)} {_pair(end)} c")
        path.append(f"{_pair(last)} l S")
        stroke = self._stroke(line.stroke, line.thickness, line.dash)
        self._parts.append(f"q {stroke}{' '.join(path)} Q")

    def _stroke(self, role: str, thickness: float, dash: tuple[float, ...]) -> str:
        dashes = f"[{' '.join(map(_n, dash))}] 0 d " if dash else ""
        return f"{self._colours[role]} RG {_n(thickness)} w {dashes}"

    def _words(self, t: Text) -> None:
        used = font(bold=t.bold)
        width = used.width(_shown(used, t.text), t.size)
        back = {"start": 0.0, "middle": width / 2, "end": width}[t.anchor]
        if t.turned:
            matrix, x, y = "0 -1 -1 0", t.x, t.y + back
        else:
            matrix, x, y = f"1 0 0 {-1 if self._flipped else 1}", t.x - back, t.y
        glyphs = "".join(f"{used.glyphs.get(ord(c), 0):04x}" for c in _shown(used, t.text))
        name = "B" if t.bold else "R"
        body = f"/{name} {_n(t.size)} Tf {matrix} {_n(x)} {_n(y)} Tm <{glyphs}> Tj"
        if t.halo:
            self._parts.append(f"q BT 1 Tr 1 j 3 w {self._colours[t.halo]} RG {body} ET Q")
        self._parts.append(f"BT {self._colours[t.fill]} rg {body} ET")


def _shown(used: Font, text: str) -> str:
    """The text with a sign for characters that the font lacks."""
    return "".join(c if ord(c) in used.glyphs else "\N{REPLACEMENT CHARACTER}" for c in text)


def _rounded(r: Rect) -> str:
    """The outline of a rectangle."""
    radius = min(r.radius, r.width / 2, r.height / 2)
    if radius <= 0:
        return f"{_n(r.x)} {_n(r.y)} {_n(r.width)} {_n(r.height)} re"
    return " ".join(_outline(r, radius))


def _outline(r: Rect, radius: float) -> Iterator[str]:
    x, y, right, bottom = r.x, r.y, r.x + r.width, r.y + r.height
    k = radius * (1 - KAPPA)
    yield f"{_n(x + radius)} {_n(y)} m {_n(right - radius)} {_n(y)} l"
    yield f"{_n(right - k)} {_n(y)} {_n(right)} {_n(y + k)} {_n(right)} {_n(y + radius)} c"
    yield f"{_n(right)} {_n(bottom - radius)} l"
    yield f"{_n(right)} {_n(bottom - k)} {_n(right - k)} {_n(bottom)} {_n(right - radius)} {_n(bottom)} c"
    yield f"{_n(x + radius)} {_n(bottom)} l"
    yield f"{_n(x + k)} {_n(bottom)} {_n(x)} {_n(bottom - k)} {_n(x)} {_n(bottom - radius)} c"
    yield f"{_n(x)} {_n(y + radius)} l"
    yield f"{_n(x)} {_n(y + k)} {_n(x + k)} {_n(y)} {_n(x + radius)} {_n(y)} c h"


def _between(
    start: tuple[float, float], end: tuple[float, float], part: float
) -> tuple[float, float]:
    return start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part


def _pair(point: tuple[float, float]) -> str:
    return f"{_n(point[0])} {_n(point[1])}"


def _n(value: float, digits: int = 2) -> str:
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    return text if text not in ("-0", "") else "0"


def _rgb(colour: str) -> str:
    """#rrggbb as three parts of one."""
    return " ".join(_n(int(colour[i : i + 2], 16) / 255, 3) for i in (1, 3, 5))
