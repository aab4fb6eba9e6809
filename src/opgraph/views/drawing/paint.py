"""From a drawing to a scene: sizes, layout, and every box and line as shapes, from the back to the
front."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from opgraph.document import Profile
from opgraph.views.drawing import cards, wording
from opgraph.views.drawing.coloring import Coloring
from opgraph.views.drawing.fonts import font
from opgraph.views.drawing.layout import Geometry, Spacing, arrange
from opgraph.views.drawing.layout import Rect as Area
from opgraph.views.drawing.legend import HEIGHT, facts, heading, legend
from opgraph.views.drawing.model import Box, Drawing, Edge
from opgraph.views.drawing.scene import Group, Line, Point, Polygon, Rect, Scene, Shape, Text

MARGIN = 28.0
LEAST_WIDTH = 560.0
LABEL = 8.5


def paint(
    profile: Profile, drawing: Drawing, coloring: Coloring, *, across: bool = False, part: str = "",
    source_url: str | None = None,
) -> Scene:  # fmt: skip
    """The picture of a drawing, from top to bottom or, `across`, from left to right. `part` says which
    part of the model this is, if not all of it; `source_url` makes links to source lines."""
    look = cards.look(drawing, coloring)
    sizes = {b.id: look.size(b) for b in drawing.boxes}
    spacing = Spacing(title=cards.BAND, title_across=across)
    if across:
        spacing = replace(spacing, gap=34.0, longest=2400.0)
    geometry = arrange(drawing.root, drawing.edges, sizes, spacing, across=across)
    width = max(geometry.width, LEAST_WIDTH)
    heaviest = max((e.bytes for e in drawing.edges), default=0)
    keys, rows = legend(coloring, drawing, heaviest, MARGIN, MARGIN + HEIGHT - 14, width)
    dx = MARGIN + (width - geometry.width) / 2
    dy = MARGIN + HEIGHT + rows - 10
    painter = _Painter(drawing, look, geometry, (dx, dy), heaviest, source_url, across=across)
    shapes = (*heading(profile, part, MARGIN, MARGIN, width), *keys, *painter.shapes())
    total_width = width + 2 * MARGIN
    total_height = dy + geometry.height + MARGIN
    paper = Rect(0, 0, total_width, total_height, "paper")
    name = wording.plain(profile.model.name, 120)
    return Scene(
        total_width, total_height, (paper, *shapes), f"Operator graph of {name}", facts(profile)
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
            if child.open:
                back = Rect(
                    area.x, area.y, area.width, area.height, f"level{1 + level % 2}", "border", 9
                )
                backs.append(Group((back,), "module", child.id, _facts(child)))
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
        link = wording.source_link(box, self.source_url)
        return Group(tuple(shapes), role, box.id, _facts(box), tooltip, link)

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
        return Group(shapes, "edge", "", data, wording.edge_tooltip(edge, self.drawing))

    def _label(self, edge: Edge, line: tuple[Point, ...]) -> Shape | None:
        """The shape on a line that goes a long way, at its longest part along the flow."""
        if edge.net in self.labelled or edge.kind == "parameter":
            return None
        text = wording.shape(edge.shape)
        half = font().width(text, LABEL) / 2 + 8
        upright = not self.across
        along = [p for p in pairwise(line) if (abs(p[0][0] - p[1][0]) < 1) is upright]
        for start, end in sorted(along, key=_length, reverse=True)[:3]:
            if _length((start, end)) < max(2 * half + 40, 120):
                break
            for part in (0.5, 0.38, 0.62, 0.26, 0.74):
                x, y = (a + (b - a) * part for a, b in zip(start, end, strict=True))
                wide, high = (6.0, half) if upright else (half, 6.0)
                room = Area(x - wide - 3, y - high, 2 * wide, 2 * high)
                if self._free(room):
                    self.labelled.add(edge.net)
                    self.taken.append(room)
                    off = 2.5 + self._thickness(edge) / 2
                    at = (x - off, y) if upright else (x, y - off)
                    return Text(*at, text, LABEL, "muted", anchor="middle", turned=upright)
        return None

    def _free(self, room: Area) -> bool:
        """Whether neither a title band nor another label is there."""
        bands = (Area(r.x, r.y, r.width, cards.BAND) for r in self.bands)
        return not any(_meet(room, other) for other in (*bands, *self.taken))


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


def _facts(box: Box) -> tuple[tuple[str, str], ...]:
    """What a program that reads the picture needs to know of a box."""
    nodes = " ".join(map(str, box.nodes))
    return (("kind", box.kind), ("path", wording.plain(box.path, wording.LONG)), ("nodes", nodes))
