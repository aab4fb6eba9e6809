"""A plane with two logarithmic axes, and names beside its marks: what pictures of figures share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import floor, log10

from opgraph.views.drawing.fonts import font
from opgraph.views.drawing.scene import Line, Point, Rect, Shape, Text

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels."""

SIZE = 11.5


@dataclass(frozen=True, slots=True)
class LogPlane:
    """The plane within `box`; `x` and `y` are its ends as powers of ten."""

    box: Box
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> Point:
        """The pixel of a point; what lies outside is put on the rim."""
        left, top, right, bottom = self.box
        across = (log10(x) - self.x[0]) / (self.x[1] - self.x[0])
        up = (log10(y) - self.y[0]) / (self.y[1] - self.y[0])
        return (
            left + min(1.0, max(0.0, across)) * (right - left),
            bottom - min(1.0, max(0.0, up)) * (bottom - top),
        )

    def frame(
        self,
        x_title: str,
        y_title: str,
        x_format: Callable[[float], str],
        y_format: Callable[[float], str],
    ) -> Iterator[Shape]:
        """The ground with a line a decade, and what the axes mean."""
        left, top, right, bottom = self.box
        yield Rect(left, top, right - left, bottom - top, "level1")
        for value in _decades(self.x):
            x, _ = self.at(value, 1.0)
            yield Line(((x, top), (x, bottom)), "band2")
            yield Text(x, bottom + 18, x_format(value), 12, "soft", anchor="middle")
        for value in _decades(self.y):
            _, y = self.at(1.0, value)
            yield Line(((left, y), (right, y)), "band2")
            yield Text(left - 8, y + 4, y_format(value), 12, "soft", anchor="end")
        yield Text((left + right) / 2, bottom + 38, x_title, 12, "soft", anchor="middle")
        yield Text(22, (top + bottom) / 2, y_title, 12, "soft", anchor="middle", turned=True)


def _decades(ends: tuple[float, float]) -> list[float]:
    return [10.0**i for i in range(-30, 31) if ends[0] - 1e-9 <= i <= floor(ends[1] + 1e-9)]


@dataclass
class Names:
    """Texts beside marks where there is room: `taken` are the boxes that are not free."""

    within: Box
    taken: list[Box] = field(default_factory=list)

    def keep_free(self, start: Point, end: Point) -> None:
        """Nothing is to be written over this straight line."""
        steps = max(1, round(max(abs(end[0] - start[0]), abs(end[1] - start[1])) / 6))
        for i in range(steps + 1):
            x = start[0] + (end[0] - start[0]) * i / steps
            y = start[1] + (end[1] - start[1]) * i / steps
            self.taken.append((x - 3, y - 3, x + 3, y + 3))

    def beside(self, text: str, x: float, y: float, radius: float) -> Iterator[Shape]:
        """The text near a mark, with a line to it from where it is not close; nothing where names are
        everywhere."""
        width = font(bold=True).width(text, SIZE)
        for left, base, far in _places(x, y, radius, width):
            box = (left - 3, base - SIZE, left + width + 3, base + 4)
            if _inside(box, self.within) and not any(_overlap(box, other) for other in self.taken):
                self.taken.append(box)
                if far:
                    end = left - 1 if left > x else left + width + 1
                    yield Line(((x, y), (end, base - 4)), "ink", 0.8)
                yield Text(left, base, text, SIZE, bold=True, halo="level1")
                return


def _places(x: float, y: float, r: float, width: float) -> Iterator[tuple[float, float, bool]]:
    """Where a text may begin, the nearest places first, and whether that is far from the mark."""
    yield x + r + 5, y + 4, False
    yield x - r - 5 - width, y + 4, False
    yield x - width / 2, y - r - 6, False
    yield x - width / 2, y + r + 14, False
    for step in range(1, 14):
        for side in (1, -1):
            across = r + 14 + 3 * step
            for left in (x + across, x - across - width):
                yield left, y + 4 + side * (r / 2 + 13 * step), True


def _inside(box: Box, within: Box) -> bool:
    return box[0] > within[0] and box[2] < within[2] and box[1] > within[1] and box[3] < within[3]


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
