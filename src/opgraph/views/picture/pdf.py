"""Writing a scene as PDF: vector shapes, selectable text in an embedded font, links to source lines. No
date and no random id is written, so that the same scene gives the same bytes. (PDF 1.7, ISO 32000-1.)"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from opgraph.views.picture.fonts import Font, font
from opgraph.views.picture.scene import (
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
    used = [t for t in tiles if t is tiles[0] or any(_touches(t, b) for b in boxes)]
    return used, (width, height)


def _touches(tile: Tile, box: Rect) -> bool:
    x, y, width, height = tile
    return (
        x < box.x + box.width
        and box.x < x + width
        and y < box.y + box.height
        and box.y < y + height
    )


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
        frames.append(Line(outline, "pill", 0.8))
        at = (MARGIN + (x + w) * scale - 4, MARGIN + y * scale + 12)
        captions.append(Text(*at, str(number), 11, "pill", bold=True, anchor="end"))
    return Page(0.0, 0.0, scene.width, scene.height, width, height, scale, MARGIN, MARGIN,
                f"page 1 of {total}", tuple(captions), tuple(frames))  # fmt: skip


# The PDF file format: numbered objects, streams, pages, and fonts as it wants them.


class PdfFile:
    """Objects in the order added, pages among them."""

    def __init__(self, title: str) -> None:
        self._objects: list[bytes] = [
            b"",
            b"",
        ]  # the catalogue and the tree of pages, filled at the end
        self._pages: list[int] = []
        self._outline: list[tuple[str, int]] = []
        self._title = title

    def add(self, body: str) -> int:
        """Add an object; returns its number."""
        self._objects.append(body.encode("latin-1"))
        return len(self._objects)

    def add_stream(self, head: dict[str, str], data: str | bytes) -> int:
        """Add a compressed stream; returns its number."""
        packed = zlib.compress(data.encode("latin-1") if isinstance(data, str) else data, 9)
        entries = {**head, "Length": str(len(packed)), "Filter": "/FlateDecode"}
        start = "<< " + " ".join(f"/{k} {v}" for k, v in entries.items()) + " >>\nstream\n"
        self._objects.append(start.encode("latin-1") + packed + b"\nendstream")
        return len(self._objects)

    def add_link(self, box: str, url: str) -> int:
        """Add a link from a part of a page; returns its number."""
        return self.add(
            f"<< /Type /Annot /Subtype /Link /Rect [{box}] /Border [0 0 0] "
            f"/A << /S /URI /URI {text(url)} >> >>"
        )

    def add_page(
        self, width: float, height: float, unit: float, content: int, resources: str,
        annotations: list[int], title: str,
    ) -> None:  # fmt: skip
        """Add a page; `unit` is the size of its unit in points."""
        user = f" /UserUnit {unit:.4f}" if unit > 1 else ""
        links = f" /Annots [{' '.join(f'{n} 0 R' for n in annotations)}]" if annotations else ""
        number = self.add(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width:.2f} {height:.2f}]{user} "
            f"/Resources {resources} /Contents {content} 0 R{links} >>"
        )
        self._pages.append(number)
        if title:
            self._outline.append((title, number))

    def bytes(self) -> bytes:
        """The whole file."""
        outline = self._outlines()
        info = self.add(f"<< /Title {text(self._title)} /Producer (opgraph) >>")
        kids = " ".join(f"{n} 0 R" for n in self._pages)
        self._objects[0] = f"<< /Type /Catalog /Pages 2 0 R{outline} >>".encode("latin-1")
        self._objects[1] = f"<< /Type /Pages /Kids [{kids}] /Count {len(self._pages)} >>".encode()
        out = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
        offsets = []
        for number, body in enumerate(self._objects, start=1):
            offsets.append(len(out))
            out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
        start = len(out)
        out += f"xref\n0 {len(offsets) + 1}\n0000000000 65535 f \n".encode()
        for offset in offsets:
            out += f"{offset:010d} 00000 n \n".encode()
        out += f"trailer\n<< /Size {len(offsets) + 1} /Root 1 0 R /Info {info} 0 R >>\n".encode()
        return bytes(out + f"startxref\n{start}\n%%EOF\n".encode())

    def _outlines(self) -> str:
        """The bookmarks of pages that have titles."""
        if not self._outline:
            return ""
        root = len(self._objects) + 1
        last = root + len(self._outline)
        self.add(
            f"<< /Type /Outlines /First {root + 1} 0 R /Last {last} 0 R /Count {len(self._outline)} >>"
        )
        for number, (title, page) in enumerate(self._outline, start=root + 1):
            before = f" /Prev {number - 1} 0 R" if number > root + 1 else ""
            after = f" /Next {number + 1} 0 R" if number < last else ""
            self.add(
                f"<< /Title {text(title)} /Parent {root} 0 R{before}{after} /Dest [{page} 0 R /Fit] >>"
            )
        return f" /Outlines {root} 0 R /PageMode /UseOutlines"


def text(value: str) -> str:
    """A text outside of pages, as UTF-16 in hexadecimal."""
    return f"<feff{value.encode('utf-16-be', 'replace').hex()}>"


def embed(file: PdfFile, used: Font, name: str) -> int:
    """Embed a font, so that its text can be shown anywhere, searched and copied; returns its number."""
    scale = 1000 / used.em
    label = {"R": "Inter-Regular", "B": "Inter-SemiBold"}[name]
    data = file.add_stream({"Length1": str(len(used.data))}, used.data)
    box = " ".join(str(round(v * scale)) for v in used.box)
    descriptor = file.add(
        f"<< /Type /FontDescriptor /FontName /{label} /Flags 4 /FontBBox [{box}] /ItalicAngle 0 "
        f"/Ascent {round(used.ascent * scale)} /Descent {round(used.descent * scale)} "
        f"/CapHeight {round(0.727 * 1000)} /StemV 80 /FontFile2 {data} 0 R >>"
    )
    widths = " ".join(str(round(a * scale)) for a in used.advances)
    glyphs = file.add(
        f"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /{label} /CIDToGIDMap /Identity "
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> "
        f"/FontDescriptor {descriptor} 0 R /W [0 [{widths}]] >>"
    )
    unicode = file.add_stream({}, _to_unicode(used))
    return file.add(
        f"<< /Type /Font /Subtype /Type0 /BaseFont /{label} /Encoding /Identity-H "
        f"/DescendantFonts [{glyphs} 0 R] /ToUnicode {unicode} 0 R >>"
    )


def _to_unicode(used: Font) -> str:
    """The map from glyphs back to characters (Adobe technical note 5411)."""
    pairs = sorted(
        {glyph: code for code, glyph in sorted(used.glyphs.items(), reverse=True)}.items()
    )
    lines = [
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap",
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def",
        "/CMapName /Adobe-Identity-UCS def /CMapType 2 def",
        "1 begincodespacerange <0000> <ffff> endcodespacerange",
    ]
    for start in range(0, len(pairs), 100):
        part = pairs[start : start + 100]
        lines.append(f"{len(part)} beginbfchar")
        lines += [f"<{glyph:04x}> <{code:04x}>" for glyph, code in part]
        lines.append("endbfchar")
    lines.append("endcmap CMapName currentdict /CMap defineresource pop end end")
    return "\n".join(lines)


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
    """A page with a window of the picture, and a caption."""
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
    """Shapes as drawing operators, y running downwards (`flipped`)."""

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
