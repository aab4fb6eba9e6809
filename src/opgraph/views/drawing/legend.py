"""What stands above a picture: the model, its totals, and what the marks mean."""

from __future__ import annotations

from opgraph import units
from opgraph.document import Profile
from opgraph.views.drawing import wording
from opgraph.views.drawing.coloring import Coloring
from opgraph.views.drawing.fonts import font
from opgraph.views.drawing.model import Drawing
from opgraph.views.drawing.scene import Line, Polygon, Rect, Shape, Text

TITLE, BODY, KEY = 20.0, 11.5, 10.0
HEIGHT = 66.0


def heading(profile: Profile, part: str, x: float, y: float, width: float) -> list[Shape]:
    """The model's name and totals, and which part of it is drawn."""
    name = font(bold=True).elided(wording.plain(profile.model.name, 120), TITLE, width)
    cls = wording.plain(profile.model.cls.rpartition(".")[2], 60)
    part = wording.plain(part, 120)
    at = x + font(bold=True).width(name, TITLE) + 10
    return [
        Text(x, y + 18, name, TITLE, bold=True),
        Text(at, y + 18, " · ".join(p for p in (cls, part) if p), BODY + 1, "muted"),
        Text(x, y + 38, font().elided(facts(profile), BODY, width), BODY, "soft"),
    ]


def facts(profile: Profile) -> str:
    """The totals in one line."""
    totals, graph = profile.totals, profile.graph
    inputs = ", ".join(
        f"{wording.plain(graph.value[v].name or '', 40)} {wording.shape(graph.value[v].shape)}".strip()
        for v in graph.inputs[:3]
    )
    parts = [
        f"{units.count(totals.parameters)} parameters",
        units.flops(totals.flops),
        f"{units.size(totals.weight_bytes)} of weights",
        units.plural(totals.nodes, "node"),
        *([inputs] if inputs else []),
    ]
    if totals.coverage < 1:
        parts.append(f"{units.percent(totals.coverage)} of kernels costed")
    return "  ·  ".join(parts)


def legend(
    coloring: Coloring, drawing: Drawing, heaviest: int, x: float, y: float, width: float
) -> tuple[list[Shape], float]:
    """The keys of a picture in as many rows as they need, and the height of these."""
    shapes: list[Shape] = []
    at, row = x, y

    def put(key: list[Shape], text: str, room: float) -> None:
        nonlocal at, row
        needed = room + 6 + font().width(text, KEY) + 18
        if at + needed > x + width and at > x:
            at, row = x, row + 19
        shapes.extend(_moved(key, at, row))
        shapes.append(Text(at + room + 6, row + 11, text, KEY, "soft"))
        at += needed

    lead = f"{coloring.title[:1].upper()}{coloring.title[1:]}:"
    shapes.append(Text(at, row + 11, lead, KEY, "ink", bold=True))
    at += font(bold=True).width(lead, KEY) + 10
    for mark in coloring.legend:
        sign = Text(7, 10.6, mark.sign, 8.5, f"{mark.tone}-ink", bold=True, anchor="middle")
        wide = max(15.0, font(bold=True).width(mark.sign, 8.5) + 6)
        put([Rect(0, 0, wide, 14, mark.tone, None, 3), _centred(sign, wide)], mark.meaning, wide)
    put([Rect(0, 6, 26, 3, "groove", None, 1.5), Rect(0, 6, 10, 3, "line", None, 1.5)],
        f"share of {coloring.measure}", 26)  # fmt: skip
    if heaviest:
        thick = Polygon(((0, 5.5), (26, 9.4), (26, 5.5)), "line")
        put([thick], f"line width: bytes, up to {units.size(heaviest)}", 26)
    kinds = {b.kind for b in drawing.boxes}
    if any(b.kind == "module" and not b.open for b in drawing.boxes):
        put([Rect(3, 3, 18, 10, "card", "border", 3), Rect(0, 0, 18, 10, "card", "border", 3)],
            "module, closed", 22)  # fmt: skip
    if any(b.count > 1 for b in drawing.boxes):
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


def _moved(shapes: list[Shape], x: float, y: float) -> list[Shape]:
    """Shapes of a key, from the origin to their place."""
    moved: list[Shape] = []
    for s in shapes:
        if isinstance(s, Rect):
            moved.append(Rect(s.x + x, s.y + y, s.width, s.height, s.fill, s.stroke, s.radius,
                              s.thickness, s.dash))  # fmt: skip
        elif isinstance(s, Text):
            moved.append(Text(s.x + x, s.y + y, s.text, s.size, s.fill, s.bold, s.anchor))
        elif isinstance(s, Line):
            points = tuple((a + x, b + y) for a, b in s.points)
            moved.append(Line(points, s.stroke, s.thickness, s.radius, s.dash))
        elif isinstance(s, Polygon):
            moved.append(Polygon(tuple((a + x, b + y) for a, b in s.points), s.fill))
    return moved
