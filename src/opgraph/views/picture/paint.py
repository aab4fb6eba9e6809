"""From a drawing to a scene: sizes, layout, and every box and line as shapes, from the back to the
front."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, product

from opgraph.analysis.costed import CostedRecord
from opgraph.record import units
from opgraph.views.headline import total_of
from opgraph.views.picture import cards, labels
from opgraph.views.picture.coloring import Coloring
from opgraph.views.picture.fonts import font
from opgraph.views.picture.layout import Geometry, Spacing, arrange
from opgraph.views.picture.layout import Rect as Area
from opgraph.views.picture.model import Box, Drawing, Edge
from opgraph.views.picture.scene import (
    Group,
    Line,
    Point,
    Polygon,
    Rect,
    Scene,
    Shape,
    Text,
    placed,
)

# What stands above a picture: the model, its totals, and what the marks mean.

TITLE, BODY, KEY = 20.0, 11.5, 10.0
LEADING = 15.0


def heading(
    costed: CostedRecord, part: str, x: float, y: float, width: float, *, brief: bool = False
) -> tuple[list[Shape], float]:
    """Name, totals and part of the model; and their height. Where it is `brief`, what boxes say is not
    said twice."""
    name = font(bold=True).elided(labels.plain(costed.profile.model.name, 120), TITLE, width)
    cls = labels.plain(costed.profile.model.cls.rpartition(".")[2], 60)
    part = labels.plain(part, 120)
    at = x + font(bold=True).width(name, TITLE) + 10
    beside = " · ".join(p for p in (cls, part) if p)
    lines = wrapped(facts(costed, whole=not brief), BODY, width)
    return [
        Text(x, y + 18, name, TITLE, bold=True),
        Text(
            at, y + 18, font().elided(beside, BODY + 1, max(x + width - at, 8.0)), BODY + 1, "muted"
        ),
        *(Text(x, y + 38 + i * LEADING, line, BODY, "soft") for i, line in enumerate(lines)),
    ], 37.0 + LEADING * len(lines)


def wrapped(text: str, size: float, width: float, *, bold: bool = False) -> list[str]:
    """A text in lines at most so wide, words cut."""
    letters, lines = font(bold=bold), [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if letters.width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines += [letters.elided(word, size, width)]
    return [line for line in lines if line]


def facts(costed: CostedRecord, *, whole: bool = True) -> str:
    """The totals in one line; the `whole` of them with nodes and inputs."""
    totals, graph = costed.totals, costed.graph
    inputs = ", ".join(
        f"{labels.plain(graph.value[v].name or '', 40)} {labels.shape(graph.value[v].shape)}".strip()
        for v in graph.inputs[:3]
    )
    inputs += f" and {len(graph.inputs) - 3} more" if len(graph.inputs) > 3 else ""
    parts = [
        f"{units.count(totals.parameters)} parameters",
        units.flops(totals.flops),
        f"{units.size(totals.weight_bytes)} of weights",
        *([units.plural(totals.nodes, "node")] if whole else []),
        *([inputs] if inputs and whole else []),
    ]
    if costed.profile.mode != "infer":
        parts.insert(0, f"mode {costed.profile.mode}")
    if costed.device is not None:
        parts.append(f"{total_of(costed)} on {labels.plain(costed.device.name, 60)}")
        if costed.hosted and costed.prediction is not None:
            parts.append(costed.prediction.limiting)
    if totals.coverage < 1:
        parts.append(f"{units.percent(totals.coverage)} of kernels have a known cost")
    return "  ·  ".join(parts)


def legend(
    coloring: Coloring, drawing: Drawing, heaviest: int, x: float, y: float, width: float,
    *, brief: bool = False,
) -> tuple[list[Shape], float]:  # fmt: skip
    """The keys of a picture in rows, and their height. Where it is `brief` those of shapes are left out
    that the caption names."""
    shapes: list[Shape] = []
    at, row = x, y

    def put(key: list[Shape], text: str, room: float) -> None:
        nonlocal at, row
        needed = room + 6 + font().width(text, KEY) + 18
        if at + needed > x + width and at > x:
            at, row = x, row + 19
        shapes.extend(placed(key, x=at, y=row))
        shapes.append(Text(at + room + 6, row + 11, text, KEY, "soft"))
        at += needed

    lead = f"{coloring.title[:1].upper()}{coloring.title[1:]}:"
    for i, line in enumerate(wrapped(lead, KEY, width, bold=True)):
        row = y + 19 * i
        shapes.append(Text(x, row + 11, line, KEY, "ink", bold=True))
        at = x + font(bold=True).width(line, KEY) + 10
    for mark in coloring.legend:
        sign = Text(7, 10.6, mark.sign, 8.5, f"{mark.tone}-ink", bold=True, anchor="middle")
        wide = max(15.0, font(bold=True).width(mark.sign, 8.5) + 6)
        put([Rect(0, 0, wide, 14, mark.tone, None, 3), _centred(sign, wide)], mark.meaning, wide)
    put([Rect(0, 6, 26, 3, "groove", None, 1.5), Rect(0, 6, 10, 3, "line", None, 1.5)],
        f"share of {coloring.measure}", 26)  # fmt: skip
    if heaviest and not brief:
        thick = Polygon(((0, 5.5), (26, 9.4), (26, 5.5)), "line")
        put([thick], f"line width: bytes, up to {units.size(heaviest)}", 26)
    kinds = {b.kind for b in drawing.boxes}
    if any(b.kind == "module" and not b.open for b in drawing.boxes) and not brief:
        put([Rect(3, 3, 18, 10, "card", "border", 3), Rect(0, 0, 18, 10, "card", "border", 3)],
            "module, closed", 22)  # fmt: skip
    if any(b.count > 1 for b in drawing.boxes) and not brief:
        put([Rect(0, 0, 24, 13, "pill", None, 6.5),
             Text(12, 9.8, "× n", 9, "pill-ink", bold=True, anchor="middle")],
            "equal repetitions, drawn once", 24)  # fmt: skip
    if "stub" in kinds:
        put([Rect(0, 1, 20, 11, "stub", "line", 3, 1, (4, 3))], "outside of this part", 20)
    if "seam" in kinds:
        put([Line(((0, 7), (24, 7)), "seam", 1.5, dash=(5, 3))], "graph break", 24)
    return shapes, row + 19 - y


def _centred(text: Text, width: float) -> Text:
    return Text(width / 2, text.y, text.text, text.size, text.fill, text.bold, text.anchor)


MARGIN = 28.0
LEAST_WIDTH = 560.0
LABEL = 8.5


@dataclass(frozen=True, slots=True)
class Paper:
    """What is around a picture, and its proportions: whether the model's name and totals stand over it and
    the numbers of nodes in its boxes, the `caption` beneath it, and where it must fit, the `width` and how
    `long` a column may be. Boxes that are `brief` say less and are closer together; in `single` file each
    stands below the one before."""

    header: bool = True
    numbers: bool = False
    caption: str = ""
    width: float | None = None
    long: float | None = None
    brief: bool = False
    single: bool = False


def paint(
    costed: CostedRecord, drawing: Drawing, coloring: Coloring, *, across: bool = False, part: str = "",
    source_url: str | None = None, paper: Paper | None = None,
) -> Scene:  # fmt: skip
    """The picture of a drawing, from top to bottom or, `across`, from left to right. `part` says which
    part of the model this is, if not all of it; `source_url` makes links to source lines."""
    paper = paper or Paper()
    room = cards.TITLED if paper.width is None else min(cards.TITLED, paper.width - 60.0)
    look = cards.look(drawing, coloring, numbered=paper.numbers, band=room, brief=paper.brief)
    sizes = {b.id: look.size(b) for b in drawing.boxes}
    spacing = Spacing(title=look.title, title_across=across, single=paper.single)
    if across:
        spacing = replace(spacing, gap=34.0, longest=2400.0)
    margin, least = MARGIN, LEAST_WIDTH
    if paper.width and paper.long:
        margin = 10.0
        least = min(LEAST_WIDTH, paper.width - 2 * margin)
        # The name, the keys and the caption take their part of it.
        long = paper.long - 2 * margin - 4 * LEADING - (4 * LEADING if paper.header else 0.0)
        long = max(long - 3 * LEADING if paper.caption else long, paper.long / 3)
        wide = paper.width - 2 * margin
        if paper.brief:
            spacing = replace(spacing, beside=10.0, padding=6.0, gap=13.0, leave=5.0, arrive=9.0)
        spacing = replace(spacing, longest=wide if across else long, slimmest=0.0,
                          room=(long, wide) if across else (wide, long))  # fmt: skip
    geometry = arrange(drawing.root, drawing.edges, sizes, spacing, across=across)
    width = max(geometry.width, least)
    heaviest = max((e.bytes for e in drawing.edges), default=0)
    head, high = (
        heading(costed, part, margin, margin, width, brief=paper.brief)
        if paper.header
        else ([], 0.0)
    )
    keys, rows = legend(
        coloring, drawing, heaviest, margin, margin + high, width, brief=paper.brief
    )
    dx = margin + (width - geometry.width) / 2
    dy = margin + high + rows + 4
    painter = _Painter(drawing, look, geometry, (dx, dy), heaviest, source_url, across=across)
    bottom = dy + geometry.height + margin
    under = [
        Text(margin, bottom + (i + 0.8) * LEADING, line, BODY, "soft")
        for i, line in enumerate(wrapped(labels.plain(paper.caption, 2000), BODY, width))
    ]
    shapes = (*head, *keys, *painter.shapes(), *under)
    total_width = width + 2 * margin
    total_height = bottom + (len(under) * LEADING + margin if under else 0.0)
    ground = Rect(0, 0, total_width, total_height, "paper")
    name = labels.plain(costed.profile.model.name, 120)
    return Scene(
        total_width, total_height, (ground, *shapes), f"Operator graph of {name}", facts(costed)
    )


class _Painter:
    def __init__(
        self, drawing: Drawing, look: cards.Look, geometry: Geometry, at: Point, heaviest: int,
        source_url: str | None, *, across: bool,
    ) -> None:  # fmt: skip
        self.drawing, self.look, self.heaviest = drawing, look, heaviest
        self.source_url, self.across = source_url, across
        dx, dy = at
        self.rects = {box: replace(r, x=r.x + dx, y=r.y + dy) for box, r in geometry.rects.items()}
        self.lines = [tuple((x + dx, y + dy) for x, y in line) for line in geometry.lines]
        self.bands = [self.rects[b.id] for b in drawing.boxes if b.open]
        self.labelled: set[int] = set()
        self.taken: list[Area] = []
        self.strokes: dict[int, list[Area]] = {}
        """What lines cover, by strips of the height."""
        for edge, line in zip(drawing.edges, self.lines, strict=True):
            half = self._thickness(edge) / 2
            for (x, y), (to_x, to_y) in pairwise(line):
                low, high = min(y, to_y) - half, max(y, to_y) + half
                stroke = Area(min(x, to_x) - half, low, abs(to_x - x) + 2 * half, high - low)
                for strip in _strips(stroke):
                    self.strokes.setdefault(strip, []).append(stroke)

    def shapes(self) -> list[Shape]:
        """Modules from the outside in, then lines, then title bands and boxes."""
        backs: list[Shape] = []
        fronts: list[Shape] = []
        self._boxes(self.drawing.root, 0, backs, fronts)
        lines = sorted(zip(self.drawing.edges, self.lines, strict=True), key=lambda p: -p[0].bytes)
        edges = [self._edge(edge, line) for edge, line in lines]
        labels = [t for edge, line in lines if (t := self._label(edge, line)) is not None]
        return [*backs, *edges, *labels, *fronts]

    def _boxes(self, box: Box, level: int, backs: list[Shape], fronts: list[Shape]) -> None:
        for child in box.children:
            area = self.rects[child.id]
            facts = self._facts(child)
            if child.open:
                back = Rect(
                    area.x, area.y, area.width, area.height, f"level{1 + level % 2}", "border", 9
                )
                backs.append(Group((back,), "module", child.id, facts))
                front = cards.band(child, area, self.look, level=level)
                fronts.append(self._group(child, "band", front))
                self._boxes(child, level + 1, backs, fronts)
            else:
                if child.kind == "seam":
                    backs.append(_seam_line(area, self.rects[box.id]))
                fronts.append(self._group(child, "box", cards.leaf(child, area, self.look)))

    def _group(self, box: Box, role: str, shapes: list[Shape]) -> Group:
        tooltip = self.look.tooltip(box)
        if role == "band":
            return Group(tuple(shapes), role, "", (), tooltip)
        link = labels.source_link(box, self.source_url)
        return Group(tuple(shapes), role, box.id, self._facts(box), tooltip, link)

    def _facts(self, box: Box) -> tuple[tuple[str, str], ...]:
        """What a program needs to know of a box."""
        return (
            ("kind", box.kind),
            ("path", labels.plain(box.path, labels.LONG)),
            ("nodes", " ".join(map(str, box.nodes))),
            ("times", str(box.times)),
            ("share", f"{self.look.share(box):.6g}"),
        )

    def _thickness(self, edge: Edge) -> float:
        return 1.0 + 2.6 * (edge.bytes / self.heaviest) ** 0.4 if self.heaviest else 1.0

    def _edge(self, edge: Edge, line: tuple[Point, ...]) -> Shape:
        thickness = self._thickness(edge)
        head = 4.0 + thickness
        end, before = line[-1], line[-2]
        dx = (end[0] > before[0] + 0.01) - (end[0] < before[0] - 0.01)
        dy = (end[1] > before[1] + 0.01) - (end[1] < before[1] - 0.01)
        base = (end[0] - dx * head, end[1] - dy * head)
        half = head * 0.62
        arrow = (
            (base[0] - dy * half, base[1] - dx * half),
            (base[0] + dy * half, base[1] + dx * half),
            end,
        )
        dash = (3.0, 2.0) if edge.kind == "parameter" else ()
        shapes = (
            Line((*line[:-1], base), "edge", thickness, 6.0, dash),
            Polygon(arrow, "line"),
        )
        data = (("source", edge.source), ("target", edge.target))
        return Group(shapes, "edge", "", data, labels.edge_tooltip(edge, self.drawing))

    def _label(self, edge: Edge, line: tuple[Point, ...]) -> Shape | None:
        """The shape on a long line, at its longest part."""
        if edge.net in self.labelled or edge.kind == "parameter":
            return None
        text = labels.shape(edge.shape)
        half = font().width(text, LABEL) / 2 + 8
        upright = not self.across
        along = [p for p in pairwise(line) if (abs(p[0][0] - p[1][0]) < 1) is upright]
        for start, end in sorted(along, key=_length, reverse=True)[:3]:
            if _length((start, end)) < max(2 * half + 40, 120):
                break
            off = 2.5 + self._thickness(edge) / 2
            for side, part in product((-off, off + _ASCENT), (0.5, 0.38, 0.62, 0.26, 0.74)):
                x, y = (a + (b - a) * part for a, b in zip(start, end, strict=True))
                at = (x + side, y) if upright else (x, y + side)
                left, above = (_ASCENT, half) if upright else (half, _ASCENT)
                wide, high = (_ASCENT, 2 * half) if upright else (2 * half, _ASCENT)
                room = Area(at[0] - left, at[1] - above, wide, high)
                if self._free(room):
                    self.labelled.add(edge.net)
                    self.taken.append(room)
                    return Text(*at, text, LABEL, "muted", anchor="middle", turned=upright)
        return None

    def _free(self, room: Area) -> bool:
        """Whether neither a title band, nor another label, nor a line is there."""
        bands = (Area(r.x, r.y, r.width, self.look.title) for r in self.bands)
        strokes = (s for strip in _strips(room) for s in self.strokes.get(strip, ()))
        return not any(_meet(room, other) for other in (*bands, *self.taken, *strokes))


_ASCENT = 0.75 * LABEL
"""How high the letters of a label are."""


def _strips(area: Area) -> range:
    """The numbers of the strips of the height that an area is in."""
    return range(int(area.y // _STRIP), int((area.y + area.height) // _STRIP) + 1)


_STRIP = 200.0


def _meet(a: Area, b: Area) -> bool:
    return (
        a.x < b.x + b.width and b.x < a.x + a.width
        and a.y < b.y + b.height and b.y < a.y + a.height
    )  # fmt: skip


def _seam_line(seam: Area, around: Area) -> Shape:
    """A graph break runs across the whole box that it is in."""
    y = seam.y - 4
    return Line(((around.x + 6, y), (around.x + around.width - 6, y)), "seam", 1.5, dash=(6, 4))


def _length(piece: tuple[Point, Point]) -> float:
    (x, y), (end_x, end_y) = piece
    return abs(end_x - x) + abs(end_y - y)
