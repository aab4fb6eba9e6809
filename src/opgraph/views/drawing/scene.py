"""A picture as shapes: what the SVG and PDF writers write, and nothing of what it means. Colours are roles
of a theme. All lengths are in pixels, y downwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

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


def corners(points: tuple[Point, ...], radius: float) -> list[tuple[Point, Point, Point]]:
    """For each inner corner of a line: where its rounding begins, the corner, where it ends."""
    found = []
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        found.append((_toward(corner, before, radius), corner, _toward(corner, after, radius)))
    return found


def _toward(start: Point, end: Point, distance: float) -> Point:
    """The point at a distance from `start`, at most half way to `end`."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = (dx * dx + dy * dy) ** 0.5
    part = min(distance / length, 0.5) if length else 0.0
    return start[0] + dx * part, start[1] + dy * part
