"""Breaking a picture into pages of A4: an overview first, then windows of it at a size that can be read,
cut where the fewest boxes are."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from opgraph.views.drawing.scene import Group, Line, Rect, Scene, Text

SHORT, LONG = 595.0, 842.0
MARGIN, FOOT = 28.0, 20.0
SCALE = 0.6
"""Points in a pixel: names are printed at 7 points, figures at 6."""
SLACK = 0.12
"""How far from equal parts a cut may be, as a part of the paper, to lie between boxes."""


@dataclass(frozen=True, slots=True)
class Page:
    """A window of a picture (`x`, `y`, `width`, `height`, in pixels) on paper (in points)."""

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
