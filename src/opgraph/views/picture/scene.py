"""A picture as shapes: what the SVG and PDF writers write, and nothing of what it means. Colours are roles
of a theme. All lengths are in pixels, y downwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from opgraph.views.marks import TONES, ink_on

# Colours by role, light and dark. The categorical ones are the tones of `views.marks`; the scales go from
# pale to strong in one hue. No meaning is in a colour alone: each has a sign, a number or a word.

Theme = dict[str, str]


def _tones(ground: Literal["light", "dark"]) -> Theme:
    """The tones of marks, and what is written on them in."""
    colours = {name: getattr(tone, ground) for name, tone in TONES.items()}
    return colours | {f"{name}-ink": ink_on(colour) for name, colour in colours.items()}


LIGHT: Theme = {
    "paper": "#ffffff",
    "ink": "#1a1f27",
    "soft": "#4a5361",
    "muted": "#69727f",
    "line": "#8b95a3",
    "level1": "#f5f7fa",
    "level2": "#edf1f6",
    "band1": "#e9edf3",
    "band2": "#e0e6ee",
    "border": "#c9d1dc",
    "card": "#ffffff",
    "edge": "#b7c0cc",
    "groove": "#e7ebf0",
    "pill": "#5b4b9a",
    "pill-ink": "#ffffff",
    "stub": "#f3f4f6",
    "error": "#b3261e",
    "error-card": "#fdecea",
    "seam": "#9a5b00",
    **_tones("light"),
    "s1": "#d6e6f4", "s1-ink": "#12324f",
    "s2": "#a3c9e4", "s2-ink": "#12324f",
    "s3": "#66a3d0", "s3-ink": "#08233b",
    "s4": "#2f75b1", "s4-ink": "#ffffff",
    "s5": "#0f4680", "s5-ink": "#ffffff",
}  # fmt: skip

DARK: Theme = {
    "paper": "#0f1319",
    "ink": "#e8ecf1",
    "soft": "#b9c2ce",
    "muted": "#98a3b1",
    "line": "#76818f",
    "level1": "#161b23",
    "level2": "#1c232d",
    "band1": "#222a35",
    "band2": "#28323f",
    "border": "#3a4554",
    "card": "#242c37",
    "edge": "#485464",
    "groove": "#343e4b",
    "pill": "#8f7fd6",
    "pill-ink": "#120d29",
    "stub": "#1b2129",
    "error": "#ff8a80",
    "error-card": "#3d1f1f",
    "seam": "#f0b35a",
    **_tones("dark"),
    "s1": "#1e3a56", "s1-ink": "#e8ecf1",
    "s2": "#2b5a88", "s2-ink": "#f2f6fa",
    "s3": "#4585bd", "s3-ink": "#ffffff",
    "s4": "#7fb5e3", "s4-ink": "#08233b",
    "s5": "#cbe4f8", "s5-ink": "#08233b",
}  # fmt: skip

THEMES = {"light": LIGHT, "dark": DARK}


Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle, with round corners of `radius`."""

    x: float
    y: float
    width: float
    height: float
    fill: str | None = None
    stroke: str | None = None
    radius: float = 0.0
    thickness: float = 1.0
    dash: tuple[float, ...] = ()

    def meets(self, x: float, y: float, width: float, height: float) -> bool:
        """Whether it has a part of another rectangle."""
        return (
            x < self.x + self.width and self.x < x + width
            and y < self.y + self.height and self.y < y + height
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text on a baseline at `y`; `turned` texts run upwards. With `halo`, what lies below is
    held off by a rim of that colour."""

    x: float
    y: float
    text: str
    size: float
    fill: str = "ink"
    bold: bool = False
    anchor: Literal["start", "middle", "end"] = "start"
    halo: str | None = None
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line through corners, which are rounded by `radius`."""

    points: tuple[Point, ...]
    stroke: str
    thickness: float = 1.0
    radius: float = 0.0
    dash: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Polygon:
    """A filled polygon."""

    points: tuple[Point, ...]
    fill: str


@dataclass(frozen=True, slots=True)
class Group:
    """Shapes that are one thing: `role` says what ("box", "module", "edge"), `data` are facts about it,
    `tooltip` and `link` are for whoever points at it."""

    shapes: tuple[Shape, ...]
    role: str
    id: str = ""
    data: tuple[tuple[str, str], ...] = ()
    tooltip: str = ""
    link: str | None = None


Shape = Rect | Text | Line | Polygon | Group


@dataclass(frozen=True, slots=True)
class Scene:
    """A whole picture, with a title for those who cannot see it."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    title: str
    description: str = ""

    def flat(self) -> Iterator[Rect | Text | Line | Polygon]:
        """All shapes without their groups, in drawing order."""
        return _flat(self.shapes)


def _flat(shapes: tuple[Shape, ...]) -> Iterator[Rect | Text | Line | Polygon]:
    for shape in shapes:
        if isinstance(shape, Group):
            yield from _flat(shape.shapes)
        else:
            yield shape


def placed(
    shapes: Iterable[Shape], by: float = 1.0, x: float = 0.0, y: float = 0.0
) -> Iterator[Shape]:
    """Shapes in another size, and then moved."""
    for s in shapes:
        match s:
            case Group():
                yield replace(s, shapes=tuple(placed(s.shapes, by, x, y)))
            case Text():
                yield replace(s, x=s.x * by + x, y=s.y * by + y, size=s.size * by)
            case Rect():
                yield Rect(s.x * by + x, s.y * by + y, s.width * by, s.height * by, s.fill, s.stroke,
                           s.radius * by, s.thickness * by, tuple(d * by for d in s.dash))  # fmt: skip
            case Line():
                points = tuple((a * by + x, b * by + y) for a, b in s.points)
                dash = tuple(d * by for d in s.dash)
                yield Line(points, s.stroke, s.thickness * by, s.radius * by, dash)
            case Polygon():
                yield replace(s, points=tuple((a * by + x, b * by + y) for a, b in s.points))


def corners(points: tuple[Point, ...], radius: float) -> list[tuple[Point, Point, Point]]:
    """For each inner corner: begin of rounding, corner, end."""
    found = []
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        found.append((_toward(corner, before, radius), corner, _toward(corner, after, radius)))
    return found


def _toward(start: Point, end: Point, distance: float) -> Point:
    """A point at a distance from `start`, at most half way."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = (dx * dx + dy * dy) ** 0.5
    part = min(distance / length, 0.5) if length else 0.0
    return start[0] + dx * part, start[1] + dy * part
