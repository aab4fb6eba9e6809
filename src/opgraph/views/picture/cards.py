"""Boxes as shapes: how large each must be, and how it looks. Name and type are its largest letters."""

from __future__ import annotations

from dataclasses import dataclass, replace

from opgraph.record import units
from opgraph.views.marks import Mark
from opgraph.views.picture import labels
from opgraph.views.picture.coloring import Coloring
from opgraph.views.picture.fonts import font
from opgraph.views.picture.layout import Rect as Area
from opgraph.views.picture.model import Box, Drawing
from opgraph.views.picture.scene import Polygon, Rect, Shape, Text

NARROWEST, WIDEST = 132.0, 236.0
SPINE = 15.0
TITLED = 420.0
"""The width that the title of an open box asks for at most."""
TITLE, BODY, SMALL = 12.0, 10.0, 9.0
CARD, BRIEF, COMPACT, BAND, LINE = 57.0, 43.0, 38.0, 44.0, 14.0
BRIEF_BAND = 31.0


@dataclass(frozen=True, slots=True)
class Look:
    """What a drawing's boxes share: marks and widths."""

    drawing: Drawing
    coloring: Coloring
    width: float
    small: float
    numbered: bool = False
    band: float = TITLED
    brief: bool = False

    @property
    def title(self) -> float:
        """The height of the title of an open box."""
        return BRIEF_BAND if self.brief else BAND

    def mark(self, box: Box) -> Mark | None:
        return self.coloring.marks.get(box.id)

    def share(self, box: Box) -> float:
        return self.coloring.shares.get(box.id, 0.0)

    def tooltip(self, box: Box) -> str:
        return labels.tooltip(box, self.coloring)

    def size(self, box: Box) -> tuple[float, float]:
        """The width and height of a box that is not open; the least ones of an open box."""
        if box.open:
            return min(_band_width(box, self), self.band), self.title
        if box.kind == "seam":
            return _width(("graph break", TITLE, True)) + 40, 16.0 + 12.0 * len(box.lines[:2])
        if box.kind == "parameters":
            return max(_width((line, SMALL, False)) for line in box.lines) + 24, (
                12.0 + 12.0 * len(box.lines)
            )
        large, wanted = self.full(box), _wanted(box, self)
        height = COMPACT if not large else BRIEF if self.brief else CARD
        if large and not self.brief and labels.shares(box, self.coloring)[0]:
            height += LINE  # the share of each repetition, how many, and that of all
        usual = self.width if large else self.small
        if box.error:
            usual, height = WIDEST, height + 26.0
        return max(usual, min(wanted, self.band if self.brief else WIDEST)), height

    def full(self, box: Box) -> bool:
        """Whether a box has costs enough for a card that says them."""
        if not self.brief and (box.kind == "module" or labels.costs(box)):
            return True
        return (self.brief or box.id in self.coloring.values) and self.share(box) >= 0.005


def look(
    drawing: Drawing,
    coloring: Coloring,
    *,
    numbered: bool = False,
    band: float = TITLED,
    brief: bool = False,
) -> Look:
    """Cards are as wide as most of their kind need, since equal boxes read best; the others are wider. The
    title of an open box asks for at most the width `band`. Those that are `brief` say their share, and no
    other figure."""
    boxes = [b for b in drawing.leaves if b.kind not in ("seam", "parameters")]

    def typical(wanted: list[float], part: float) -> float:
        width = sorted(wanted)[int(part * (len(wanted) - 1))] if wanted else NARROWEST
        return float(round(min(max(width, NARROWEST), WIDEST)))

    free = Look(drawing, coloring, 0.0, 0.0, numbered, band, brief)
    wanted = [(free.full(b), _wanted(b, free)) for b in boxes]
    small = typical([width for large, width in wanted if not large], 0.75)
    width = typical([width for large, width in wanted if large], 0.75)
    return replace(free, width=max(width, small), small=small)


def leaf(box: Box, area: Area, look: Look) -> list[Shape]:
    """The shapes of a box that is not open."""
    if box.kind == "seam":
        return _seam(box, area)
    if box.kind == "parameters":
        return _parameters(box, area)
    if box.kind == "stub":
        return _stub(box, area)
    if box.kind in ("input", "output"):
        return _terminal(box, area)
    return _card(box, area, look)


def _card(box: Box, area: Area, look: Look) -> list[Shape]:
    x, y, width, height = area.x, area.y, area.width, area.height
    mark = look.mark(box)
    failed = box.error is not None
    shapes: list[Shape] = []
    if box.kind == "module":
        shapes.append(Rect(x + 3, y + 3, width, height, "card", "border", 6))
    tone = mark.tone if mark else "groove"
    shapes.append(Rect(x, y, width, height, "error-card" if failed else "card",
                       "error" if failed else "border", 6, 2.0 if failed else 1.0))  # fmt: skip
    shapes += _spine(x, y, height, tone, mark.sign if mark else "")
    left, right = x + SPINE + 8, x + width - 8
    each, share = labels.shares(box, look.coloring)
    number = labels.numbers(box) if look.numbered else ""
    beside = Text(right, y + 16, number, SMALL, "muted", anchor="end")
    if look.brief:
        beside = Text(
            right, y + 17, share if look.full(box) else "", BODY, "ink", bold=True, anchor="end"
        )
    shapes.append(beside)
    taken = _width((beside.text, beside.size, beside.bold)) + 6 if beside.text else 0.0
    shapes += _named(box, left, y + 17, right - left - taken)
    output = labels.shape(box.shape)
    room = right - left - _width((output, BODY, False)) - 8
    shapes.append(Text(right, y + 31, output, BODY, "soft", anchor="end"))
    shapes.append(_fitted(left, y + 31, labels.kind(box), TITLE, room, "ink"))
    if look.full(box) and look.brief:
        shapes += _bar(left, y + 36, right - left, look.share(box), tone)
    elif look.full(box):
        row = y + 46 + (LINE if each else 0.0)
        taken = 0.0 if each else _width((share, BODY, True)) + 6
        room = right - left - taken
        figures = _whole(labels.figures(box, look.coloring), room)
        shapes.append(_fitted(left, y + 46, figures, BODY, room, "soft"))
        if each:
            shapes.append(Text(left, row, each, BODY, "soft"))
        shapes.append(Text(right, row, share, BODY, "ink", bold=True, anchor="end"))
        shapes += _bar(left, row + 4.5, right - left, look.share(box), tone)
    if box.error:
        for row, line in enumerate(_error_lines(box, right - left)):
            at = y + height - 18 + 12 * row
            shapes.append(Text(left, at, line, SMALL, "error", bold=True))
    if box.breaks:
        text = units.plural(len(box.breaks), "graph break")
        shapes.append(Text(x + width / 2, y + height + 12, text, SMALL, "seam", bold=True,
                           anchor="middle", halo="paper"))  # fmt: skip
    return shapes


def _error_lines(box: Box, room: float) -> list[str]:
    """The error in at most two lines."""
    words = f"✗ {labels.plain(box.error or '', 200)}".split(" ")
    first = ""
    while words and font(bold=True).width(f"{first} {words[0]}", SMALL) <= room:
        first = f"{first} {words.pop(0)}".strip()
    return [first, font(bold=True).elided(" ".join(words), SMALL, room)] if words else [first]


def _named(box: Box, x: float, y: float, room: float) -> list[Shape]:
    """The title, and a pill that says how often the box ran."""
    badge = labels.badge(box)
    taken = _width((badge, SMALL, True)) + 16 if badge else 0.0
    name = font(bold=True).elided(labels.title(box), TITLE, max(room - taken, 30.0))
    shapes: list[Shape] = [Text(x, y, name, TITLE, bold=True)]
    if badge:
        shapes += _pill(x + _width((name, TITLE, True)) + 6, y - 10, badge)
    return shapes


def _pill(x: float, y: float, text: str) -> list[Shape]:
    width = _width((text, SMALL, True)) + 10
    return [
        Rect(x, y, width, 13, "pill", None, 6.5),
        Text(x + width / 2, y + 9.8, text, SMALL, "pill-ink", bold=True, anchor="middle"),
    ]


def _spine(x: float, y: float, height: float, tone: str, sign: str) -> list[Shape]:
    """The coloured side of a box, with its sign."""
    shapes: list[Shape] = [
        Rect(x, y, SPINE, height, tone, None, 6),
        Rect(x + 7, y, SPINE - 7, height, tone, None),
    ]
    if len(sign) == 1:
        shapes.append(Text(x + SPINE / 2, y + height / 2 + 3.2, sign, SMALL, f"{tone}-ink", bold=True,
                           anchor="middle"))  # fmt: skip
    elif sign:
        shapes.append(Text(x + SPINE / 2 + 3.2, y + height / 2, sign, SMALL, f"{tone}-ink", bold=True,
                           anchor="middle", turned=True))  # fmt: skip
    return shapes


def _bar(x: float, y: float, width: float, share: float, tone: str) -> list[Shape]:
    """A bar as long as the share, and never invisible."""
    shapes: list[Shape] = [Rect(x, y, width, 3, "groove", None, 1.5)]
    if share > 0:
        shapes.append(Rect(x, y, max(3.0, width * min(share, 1.0)), 3, tone, None, 1.5))
    return shapes


def _terminal(box: Box, area: Area) -> list[Shape]:
    """An input or output of the model."""
    middle = area.x + area.width / 2
    word = "in" if box.kind == "input" else "out"
    name = font(bold=True).elided(labels.title(box), TITLE, area.width - 60)
    detail = " ".join(p for p in (labels.shape(box.shape), box.dtype) if p)
    return [
        Rect(area.x, area.y, area.width, area.height, "level2", "line", area.height / 2, 1.2),
        Text(middle, area.y + 16, name, TITLE, bold=True, anchor="middle"),
        _fitted(middle, area.y + 30, detail, BODY, area.width - 24, "soft", anchor="middle"),
        Text(area.x + 14, area.y + 23, word, SMALL, "muted"),
    ]


def _stub(box: Box, area: Area) -> list[Shape]:
    middle = area.x + area.width / 2
    detail = " ".join(p for p in (labels.kind(box), labels.shape(box.shape)) if p)
    return [
        Rect(area.x, area.y, area.width, area.height, "stub", "line", 6, 1.0, (4, 3)),
        _fitted(middle, area.y + 16, labels.title(box), TITLE, area.width - 16, "soft",
                bold=True, anchor="middle"),
        _fitted(middle, area.y + 30, detail, BODY, area.width - 16, "muted", anchor="middle"),
    ]  # fmt: skip


def _parameters(box: Box, area: Area) -> list[Shape]:
    fold = 8.0
    right = area.x + area.width
    shapes: list[Shape] = [
        Rect(area.x, area.y, area.width, area.height, "level2", "line", 3, 1.0, (2, 2)),
        Polygon(((right - fold, area.y), (right, area.y + fold), (right - fold, area.y + fold)), "line"),
    ]  # fmt: skip
    for number, line in enumerate(box.lines):
        shapes.append(
            Text(area.x + 10, area.y + 15 + 12 * number, labels.plain(line), SMALL, "soft")
        )
    return shapes


def _seam(box: Box, area: Area) -> list[Shape]:
    lines = [labels.plain(line, 70) for line in box.lines[:2]]
    shapes: list[Shape] = [
        Text(area.x, area.y + 11, "graph break", TITLE, "seam", bold=True, halo="level1")
    ]
    for number, line in enumerate(lines, start=1):
        shapes.append(Text(area.x, area.y + 11 + 12 * number, line, SMALL, "seam", halo="level1"))
    return shapes


def band(box: Box, area: Area, look: Look, *, level: int) -> list[Shape]:
    """The title band of an open box, behind which lines enter."""
    share = look.share(box)
    mark = look.mark(box)
    tone = mark.tone if mark else "groove"
    height = look.title - 8
    shade = f"band{1 + (level + 1) % 2}"
    shapes: list[Shape] = [
        Rect(area.x, area.y, area.width, height, shade, None, 9),
        Rect(area.x, area.y + height - 10, area.width, 10, shade, None),
        *_bar(area.x, area.y + height - 2, area.width, share, tone),
    ]
    left, room = area.x + 12, area.width - 24
    beside = labels.shares(box, look.coloring)[1] if look.brief else ""
    shapes.append(Text(left + room, area.y + 15, beside, BODY, "ink", bold=True, anchor="end"))
    room -= _width((beside, BODY, True)) + 6 if beside else 0.0
    shapes += _named(box, left, area.y + 15, room)
    name = font(bold=True).elided(labels.title(box), TITLE, room)
    pill = labels.badge(box)
    at = left + _width((name, TITLE, True)) + (_width((pill, SMALL, True)) + 16 if pill else 0) + 8
    kind = font().elided(labels.kind(box), TITLE, left + room - at)
    shapes.append(Text(at, area.y + 15, kind if kind != "…" else "", TITLE))
    if look.brief:
        return shapes
    said = next(
        (s for s in labels.headers(box, look.coloring) if _width((s, BODY, False)) <= room), ""
    )
    shapes.append(Text(left, area.y + 28, said, BODY, "soft"))
    return shapes


def _band_width(box: Box, look: Look) -> float:
    pill = labels.badge(box)
    first = _width((labels.title(box), TITLE, True), (labels.kind(box), TITLE, False)) + 32
    first += _width((pill, SMALL, True)) + 16 if pill else 0.0
    if look.brief:
        return first + _width((labels.shares(box, look.coloring)[1], BODY, True)) + 12
    return max(first, _width((labels.headers(box, look.coloring)[0], BODY, False)) + 24)


def _wanted(box: Box, look: Look) -> float:
    """The width that a box's texts ask for."""
    coloring = look.coloring
    if box.kind in ("input", "output", "stub"):
        return max(_width((labels.title(box), TITLE, True)),
                   _width((labels.shape(box.shape) + box.dtype, BODY, False))) + 64  # fmt: skip
    number = _width((labels.numbers(box), SMALL, False)) + 6 if look.numbered else 0.0
    badge = labels.badge(box)
    first = _width((labels.title(box), TITLE, True)) + number + (
        _width((badge, SMALL, True)) + 16 if badge else 0)  # fmt: skip
    second = _width((labels.kind(box), TITLE, False), (labels.shape(box.shape), BODY, False)) + 8
    third = _width((labels.figures(box, coloring), BODY, False))
    each, share = labels.shares(box, coloring)
    if look.brief:
        first += _width((share, BODY, True)) + 12 if look.full(box) else 0.0
        return max(first, second) + SPINE + 18
    fourth = _width((each, BODY, False), (share, BODY, True)) + 12
    third += 0.0 if each or not share else _width((share, BODY, True)) + 6
    return max(first, second, *((third, fourth) if look.full(box) else ())) + SPINE + 18


def _fitted(
    x: float, y: float, text: str, size: float, room: float, fill: str, *, bold: bool = False,
    anchor: str = "start",
) -> Text:  # fmt: skip
    fitted = font(bold=bold).elided(text, size, max(room, 8.0)) if text else ""
    return Text(x, y, fitted, size, fill, bold=bold, anchor=anchor)  # type: ignore[arg-type]


def _whole(figures: str, room: float) -> str:
    """As many figures as there is room for, the last of them first: half of one says nothing."""
    each = "each " if figures.startswith("each ") else ""
    kept = figures.removeprefix(each).split(" · ")
    while len(kept) > 1 and _width((each + " · ".join(kept), BODY, False)) > room:
        del kept[0]
    return each + " · ".join(kept)


def _width(*texts: tuple[str, float, bool]) -> float:
    return sum(font(bold=bold).width(text, size) for text, size, bold in texts)
