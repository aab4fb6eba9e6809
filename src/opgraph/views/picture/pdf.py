"""Writing a scene as PDF, by reportlab: vector shapes, selectable text in an embedded font, links to source
lines. No date and no random id is written, so that the same scene gives the same bytes."""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any

from opgraph.record.errors import MissingDependency
from opgraph.views.picture.fonts import FAMILY, files, font
from opgraph.views.picture.scene import (
    THEMES,
    Group,
    Line,
    Point,
    Polygon,
    Rect,
    Scene,
    Shape,
    Text,
    Theme,
    corners,
    placed,
)

# Breaking a picture into pages of A4: an overview first, then windows of it at a size that can be read,
# cut where the fewest boxes are.

SHORT, LONG = 595.0, 842.0
MARGIN, FOOT = 28.0, 20.0
SCALE = 0.6
"""Points in a pixel: names are printed at 7 points, figures at 6."""
SLACK = 0.12
"""How far from equal parts a cut may be, as a part of the paper, to lie between boxes."""


@dataclass(frozen=True, slots=True)
class Page:
    """A window of a picture (in pixels) on paper (in points)."""

    x: float
    y: float
    width: float
    height: float
    paper_width: float
    paper_height: float
    scale: float
    left: float = 0.0
    top: float = 0.0
    title: str = ""
    captions: tuple[Text, ...] = ()
    frames: tuple[Line, ...] = ()


def pages(scene: Scene) -> list[Page]:
    """The pages of a picture, in portrait or landscape, whichever takes fewer."""
    tried = [_tiles(scene, w, h) for w, h in ((SHORT, LONG), (LONG, SHORT))]
    tiles, paper = min(tried, key=lambda t: len(t[0]))
    if len(tiles) == 1:
        return [_page(tiles[0], paper, "", scene)]
    total = len(tiles) + 1
    overview = _overview(scene, tiles, paper, total)
    numbered = [
        _page(tile, paper, f"page {number} of {total}", scene)
        for number, tile in enumerate(tiles, start=2)
    ]
    return [overview, *numbered]


Tile = tuple[float, float, float, float]


def _tiles(scene: Scene, width: float, height: float) -> tuple[list[Tile], tuple[float, float]]:
    boxes = [
        next(s for s in shape.shapes if isinstance(s, Rect))
        for shape in scene.shapes
        if isinstance(shape, Group) and shape.role in ("box", "band")
    ]
    room = ((width - 2 * MARGIN) / SCALE, (height - 2 * MARGIN - FOOT) / SCALE)
    columns = _cuts([(b.x, b.x + b.width) for b in boxes], scene.width, room[0])
    rows = _cuts([(b.y, b.y + b.height) for b in boxes], scene.height, room[1])
    tiles = [
        (x, y, right - x, bottom - y)
        for x, right in pairwise(columns)
        for y, bottom in pairwise(rows)
    ]
    used = [t for t in tiles if t is tiles[0] or any(b.meets(*t) for b in boxes)]
    return used, (width, height)


def _cuts(spans: list[tuple[float, float]], length: float, room: float) -> list[float]:
    """Where to cut: in parts as equal as the paper allows, moved a little to where fewer boxes are cut."""
    count = ceil(length / room)
    cuts = [0.0]
    for left in range(count, 1, -1):
        wanted = cuts[-1] + (length - cuts[-1]) / left
        least = max(wanted - SLACK * room, length - room * (left - 1))
        most = min(wanted + SLACK * room, cuts[-1] + room)
        choices = [wanted, *(e + 2 for _, e in spans), *(s - 2 for s, _ in spans)]
        choices = sorted({min(max(c, least), most) for c in choices}, key=lambda c: abs(c - wanted))
        cuts.append(min(choices, key=lambda c: sum(s < c < e for s, e in spans)))
    return [*cuts, length]


def _page(tile: Tile, paper: tuple[float, float], number: str, scene: Scene) -> Page:
    foot = (Text(MARGIN, paper[1] - MARGIN + 6, f"{scene.title}{f' · {number}' if number else ''}", 7.5,
                 "muted"),)  # fmt: skip
    return Page(*tile, *paper, SCALE, MARGIN, MARGIN, number, foot)


def _overview(scene: Scene, tiles: list[Tile], paper: tuple[float, float], total: int) -> Page:
    """The whole picture, small, with the numbers of the pages."""
    width, height = paper
    scale = min(
        (width - 2 * MARGIN) / scene.width, (height - 2 * MARGIN - FOOT) / scene.height, SCALE
    )
    frames, captions = [], [
        Text(MARGIN, height - MARGIN + 6, f"{scene.title} · page 1 of {total}: overview", 7.5, "muted")
    ]  # fmt: skip
    for number, (x, y, w, h) in enumerate(tiles, start=2):
        outline = ((x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y))
        frames.append(Line(outline, "pill", 0.8 / scale))
        at = (MARGIN + (x + w) * scale - 4, MARGIN + y * scale + 12)
        captions.append(Text(*at, str(number), 11, "pill", bold=True, anchor="end"))
    return Page(0.0, 0.0, scene.width, scene.height, width, height, scale, MARGIN, MARGIN,
                f"page 1 of {total}", tuple(captions), tuple(frames))  # fmt: skip


# A page, with a window of the picture, captions, and links.

POINTS = 0.75
"""Points in a pixel: 96 pixels are an inch, and so are 72 points."""
MOST_POINTS = 14_400.0
"""The longest side of a page that readers take (ISO 32000-1, annex C); what is longer is drawn smaller."""


def to_pdf(scene: Scene, theme: str, *, paginate: bool = False) -> bytes:
    """The scene as a PDF of one page as large as the picture or, with `paginate`, as an overview and as
    many A4 pages as it takes; the theme "auto" is light here. Raises `MissingDependency` without reportlab.
    """
    try:
        from reportlab.pdfbase.pdfmetrics import registerFont
        from reportlab.pdfbase.ttfonts import TTFont
        from reportlab.pdfgen.canvas import Canvas
    except ImportError:
        raise MissingDependency("reportlab", "draw") from None
    for name, file in zip(_FACES, files(), strict=True):
        registerFont(TTFont(name, file))
    colours = THEMES["light" if theme == "auto" else theme]
    out = io.BytesIO()
    canvas = Canvas(out, invariant=1, pageCompression=1)
    canvas.setTitle(scene.title)
    canvas.setCreator("opgraph")
    canvas.setAuthor("")
    canvas.setSubject("")
    canvas.beginForm(_PICTURE, 0, 0, scene.width, scene.height)
    picture = _Pen(canvas, colours, scene.height)
    for shape in scene.shapes:
        picture.draw(shape)
    canvas.endForm()
    width, height = scene.width * POINTS, scene.height * POINTS
    small = min(1.0, MOST_POINTS / max(width, height))
    whole = Page(0, 0, scene.width, scene.height, width * small, height * small, POINTS * small)
    for page in pages(scene) if paginate else [whole]:
        _add_page(canvas, page, scene, picture.links, colours)
    canvas.save()
    return out.getvalue()


_FACES = (FAMILY, f"{FAMILY}-SemiBold")
_PICTURE = "picture"


def _add_page(
    canvas: Any, page: Page, scene: Scene, links: list[tuple[Rect, str]], colours: Theme
) -> None:
    """A page with a window of the picture, and a caption."""
    scale, left, right = page.scale, page.left, page.left + page.width * page.scale
    top = page.paper_height - page.top
    bottom = top - page.height * scale
    canvas.setPageSize((page.paper_width, page.paper_height))
    canvas.saveState()
    window = canvas.beginPath()
    window.rect(left, bottom, right - left, top - bottom)
    canvas.clipPath(window, stroke=0)
    x, y = left - page.x * scale, top + page.y * scale
    canvas.transform(scale, 0, 0, scale, x, y - scene.height * scale)
    canvas.doForm(_PICTURE)
    canvas.restoreState()
    caption = _Pen(canvas, colours, page.paper_height)
    for text in page.captions:
        caption.draw(text)
    for line in page.frames:
        caption.draw(*placed([line], scale, left - page.x * scale, page.top - page.y * scale))
    for box, url in links:
        a, b = max(left, x + box.x * scale), min(right, x + (box.x + box.width) * scale)
        c, d = max(bottom, y - (box.y + box.height) * scale), min(top, y - box.y * scale)
        if a < b and c < d:
            canvas.linkURL(url, (a, c, b, d), thickness=0)
    if page.title:
        canvas.bookmarkPage(page.title)
        canvas.addOutlineEntry(page.title, page.title)
        canvas.showOutline()
    canvas.showPage()


class _Pen:
    """Draws shapes, whose y runs downwards from `height`."""

    def __init__(self, canvas: Any, colours: Theme, height: float) -> None:
        self.links: list[tuple[Rect, str]] = []
        self._canvas, self._colours, self._height = canvas, colours, height

    def draw(self, shape: Shape) -> None:
        if isinstance(shape, Group):
            first = next((s for s in shape.shapes if isinstance(s, Rect)), None)
            if shape.link and first is not None:
                self.links.append((first, shape.link))
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
        self._ink(r.fill, r.stroke, r.thickness, r.dash)
        radius = min(r.radius, r.width / 2, r.height / 2)
        self._canvas.roundRect(r.x, self._height - r.y - r.height, r.width, r.height, radius,
                               stroke=int(r.stroke is not None), fill=int(r.fill is not None))  # fmt: skip

    def _polygon(self, p: Polygon) -> None:
        self._ink(p.fill)
        path = self._canvas.beginPath()
        path.moveTo(*self._up(p.points[0]))
        for point in p.points[1:]:
            path.lineTo(*self._up(point))
        path.close()
        self._canvas.drawPath(path, stroke=0, fill=1)

    def _line(self, line: Line) -> None:
        self._ink(None, line.stroke, line.thickness, line.dash)
        path = self._canvas.beginPath()
        path.moveTo(*self._up(line.points[0]))
        for begin, corner, end in corners(line.points, line.radius):
            path.lineTo(*self._up(begin))
            first, second = _between(begin, corner, 2 / 3), _between(end, corner, 2 / 3)
            path.curveTo(*self._up(first), *self._up(second), *self._up(end))
        path.lineTo(*self._up(line.points[-1]))
        self._canvas.drawPath(path, stroke=1, fill=0)

    def _words(self, t: Text) -> None:
        used = font(bold=t.bold)
        shown = "".join(c if c in used.advances else "\N{REPLACEMENT CHARACTER}" for c in t.text)
        back = {"start": 0.0, "middle": 0.5, "end": 1.0}[t.anchor] * used.width(shown, t.size)
        along = (0, 1, -1, 0) if t.turned else (1, 0, 0, 1)
        at = (t.x, t.y + back) if t.turned else (t.x - back, t.y)
        for colour, outline in ((t.halo, True), (t.fill, False)):
            if colour is None:
                continue
            self._canvas.setLineJoin(int(outline))
            self._ink(None if outline else colour, colour if outline else None, 3)
            words = self._canvas.beginText()
            words.setFont(_FACES[t.bold], t.size)
            words.setTextTransform(*along, *self._up(at))
            words.setTextRenderMode(int(outline))
            words.textOut(shown)
            self._canvas.drawText(words)

    def _ink(
        self, fill: str | None, stroke: str | None = None, thickness: float = 1.0,
        dash: tuple[float, ...] = (),
    ) -> None:  # fmt: skip
        if fill:
            self._canvas.setFillColor(self._colours[fill])
        if stroke:
            self._canvas.setStrokeColor(self._colours[stroke])
            self._canvas.setLineWidth(thickness)
            self._canvas.setDash(list(dash))

    def _up(self, point: Point) -> Point:
        return point[0], self._height - point[1]


def _between(start: Point, end: Point, part: float) -> Point:
    return start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part
