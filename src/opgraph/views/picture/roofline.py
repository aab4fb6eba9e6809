"""The roofline as a picture: every fused subgraph at its arithmetic intensity and the FLOP/s predicted for
it, under the roofs of a device. Both axes are logarithmic; marks are as large as their share of the time.

Williams, Waterman and Patterson: "Roofline: an insightful visual performance model for multicore
architectures", CACM 52(4), 2009.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10, sqrt

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.timing.roofline import RooflinePoint
from opgraph.hardware import Device
from opgraph.record import units
from opgraph.record.errors import RenderError
from opgraph.record.kinds import KERNEL_BOUNDS, Bound
from opgraph.views.marks import BOUNDS
from opgraph.views.picture.fonts import font
from opgraph.views.picture.labels import plain
from opgraph.views.picture.scene import Group, Line, Point, Polygon, Rect, Scene, Shape, Text

# A plane with two logarithmic axes, and names beside its marks: what pictures of figures share.

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels."""

SIZE = 11.5


@dataclass(frozen=True, slots=True)
class LogPlane:
    """The plane within `box`, its ends as powers of ten."""

    box: Box
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> Point:
        """The pixel of a point, on the rim if outside."""
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
    """Texts beside marks, outside of the boxes `taken`."""

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
    """Where a text may begin, nearest first, and whether far."""
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


WIDTH, HEIGHT = 960.0, 736.0
BOX = (78.0, 84.0, 800.0, 510.0)
NAMED = 10
"""How many marks are listed by number: the rest say what they are when they are pointed at."""
LARGEST, SMALLEST = 26.0, 3.5
"""Radii in pixels of all the time, and of next to none."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Equal subgraphs as one mark: their name, one of them, how many they are, and their share of the
    time together."""

    name: str
    point: RooflinePoint
    count: int
    share: float

    @property
    def radius(self) -> float:
        """The area goes with the share."""
        return max(SMALLEST, LARGEST * sqrt(self.share))


def scene(costed: CostedRecord) -> Scene:
    """The roofline as shapes. Raises `RenderError` without a device, or where nothing computes."""
    profile, target = costed.profile, costed.named_device("a roofline")
    points = costed.roofline
    total = sum(p.predicted for p in points)
    found = marks([p for p in points if p.flops], total)
    if not found:
        raise RenderError("nothing here computes, so there is no roofline")
    plane = _plane(target, found)
    title = f"Roofline of {plain(profile.model.name)} on {target.name}"
    names = Names(BOX)
    shapes = (
        Rect(0.0, 0.0, WIDTH, HEIGHT, "paper"),
        Text(BOX[0], 34, title, 19, bold=True),
        Text(BOX[0], 56, _said(costed), 12, "soft"),
        *plane.frame("arithmetic intensity, FLOPs/byte", "FLOP/s", "{:,g}".format, _rate),
        *_roofs(plane, target, found, names),
        *_marks(plane, found, names),
        *_list(found),
        *_legend(points, total),
    )
    return Scene(WIDTH, HEIGHT, shapes, title, "; ".join(f"{m.name}: {_facts(m)}" for m in found))


def marks(points: Sequence[RooflinePoint], total: float) -> list[Mark]:
    """Subgraphs that differ in nothing but numbers in their names as one mark, the costliest first."""
    groups: dict[tuple[object, ...], list[RooflinePoint]] = {}
    for p in points:
        key = (re.sub(r"\d+", "#", p.label), p.flops, p.bytes, p.rule, p.dtype)
        groups.setdefault(key, []).append(p)
    found = [
        Mark(_name([p.label for p in g]), g[0], len(g), sum(p.predicted for p in g) / total)
        for g in groups.values()
    ]
    return sorted(found, key=lambda m: (-m.share, m.name))


def _name(labels: Sequence[str]) -> str:
    """The names of equal subgraphs as one, differences as stars."""
    split = [re.split(r"(\d+)", label) for label in labels]
    parts = (row[0] if len(set(row)) == 1 else "*" for row in zip(*split, strict=True))
    return plain("".join(parts), 44)


def _plane(target: Device, found: Sequence[Mark]) -> LogPlane:
    points = [m.point for m in found]
    highest = max(peak for peak, _, _ in _peaks(target, points))
    across = [p.intensity for p in points] + [p.peak / target.bandwidth for p in points]
    up = [p.achieved for p in points]
    return LogPlane(
        BOX,
        (floor(log10(min(across) * 0.8)), ceil(log10(max(across) * 2.0))),
        (floor(log10(min(up) * 0.7)), log10(highest * 2.2)),
    )


def _peaks(target: Device, points: Sequence[RooflinePoint]) -> list[tuple[float, str, bool]]:
    """The roofs, the highest first, with their dtypes and whether a mark is under them: all of the matrix
    units, and of the other units those in use."""
    names: dict[float, list[str]] = {}
    for key, figure in target.figures.items():
        if key.startswith("matrix."):
            names.setdefault(figure.value, []).append(key.removeprefix("matrix."))
    for p in points:
        own = target.figure(f"{p.unit}.{p.dtype}") == p.peak
        label = p.dtype if own else "float32"
        label = label if p.unit == "matrix" and own else f"{label} vector"
        if label not in names.setdefault(p.peak, []):
            names[p.peak].insert(0, label)
    used = {p.peak for p in points}
    return sorted(((peak, ", ".join(n), peak in used) for peak, n in names.items()), reverse=True)


def _roofs(plane: LogPlane, target: Device, found: Sequence[Mark], names: Names) -> Iterator[Shape]:
    """The memory roof, a roof for each peak, and the ridge points of those that are in use."""
    under = [_room(plane, mark) for mark in found]
    bandwidth, end = target.bandwidth, 10.0 ** plane.x[1]
    start = max(10.0 ** plane.x[0], 10.0 ** plane.y[0] / bandwidth)
    rows = _peaks(target, [m.point for m in found])
    foot = plane.at(start, start * bandwidth)
    strongest = max(peak for peak, _, used in rows if used)
    names.keep_free(foot, plane.at(strongest / bandwidth, strongest))
    lowest, reached = BOX[1] - 24.0, 1e9
    for peak, label, used in rows:
        knee, ink = plane.at(peak / bandwidth, peak), "ink" if used else "line"
        thickness, dash = (2.0, ()) if used else (1.0, (5.0, 4.0))
        if used or peak == rows[0][0]:
            yield Line((foot, knee), ink, thickness, dash=dash)
        yield Line((knee, plane.at(end, peak)), ink, thickness, dash=dash)
        names.keep_free(knee, plane.at(end, peak))
        lowest = max(knee[1], lowest + 28)
        soft = "soft" if used else "muted"
        said = font(bold=used).elided(label, 11, WIDTH - BOX[2] - 24)
        # Roofs may be nearer to each other than their names can be: a line leads from each to its own.
        yield Line(((BOX[2], knee[1]), (BOX[2] + 12, lowest - 4)), "muted", 0.8)
        yield Text(BOX[2] + 14, lowest, said, 11, "ink" if used else "muted", used)
        yield Text(BOX[2] + 14, lowest + 13, units.count(peak, "FLOP/s"), 11, soft)
        if used:
            text = f"ridge {peak / bandwidth:.3g}"
            width = font().width(text, 11)
            # On the left where it would lie on the next one's line.
            left = knee[0] + 5 if knee[0] + 9 + width < reached else knee[0] - 5 - width
            base, reached = BOX[3] - 7, knee[0]
            yield Line((knee, (knee[0], BOX[3])), "muted", 1.0, dash=(2, 4))
            yield Text(left, base, text, 11, "soft", halo="level1")
            names.taken.append(
                (min(left, knee[0]) - 2, base - 13, max(left + width, knee[0]) + 4, base)
            )
    text = f"memory, {units.count(bandwidth, 'B/s')}"
    width, knee = font(bold=True).width(text, 11), plane.at(strongest / bandwidth, strongest)
    places = [
        (foot[0] + (knee[0] - foot[0]) * part, foot[1] + (knee[1] - foot[1]) * part)
        for part in (0.12, 0.24, 0.36, 0.48, 0.6, 0.04)
    ]
    # Beneath the roof where no mark is: marks are drawn over it.
    boxes = [(x + 6, y + 4, x + 12 + width, y + 18) for x, y in places]
    free = [box for box in boxes if not any(_overlap(box, mark) for mark in under)]
    x, _, right, base = (free or boxes)[0]
    yield Text(x + 2, base - 4, text, 11, bold=True, halo="level1")
    names.taken.append((x, base - 18, right, base))


def _marks(plane: LogPlane, found: Sequence[Mark], names: Names) -> Iterator[Shape]:
    """The subgraphs, large ones below, and the numbers of the costliest."""
    places = [plane.at(m.point.intensity, m.point.achieved) for m in found]
    names.taken += [_room(plane, mark) for mark in found]
    for mark, (x, y) in zip(found, places, strict=True):
        r = mark.radius
        sign = tuple(_sign(mark.point.bound, x, y, r))
        yield Group(sign, "box", tooltip=f"{mark.name}\n{_facts(mark)}")
    for number, (mark, (x, y)) in enumerate(zip(found, places, strict=True), start=1):
        if number <= NAMED:
            yield from names.beside(str(number), x, y, mark.radius)


def _room(plane: LogPlane, mark: Mark) -> Box:
    """What a mark takes."""
    x, y = plane.at(mark.point.intensity, mark.point.achieved)
    return x - mark.radius, y - mark.radius, x + mark.radius, y + mark.radius


def _list(found: Sequence[Mark]) -> Iterator[Shape]:
    """What the numbers stand for, in two columns."""
    rows = (min(NAMED, len(found)) + 1) // 2
    for i, mark in enumerate(found[:NAMED]):
        x = BOX[0] + (i // rows) * (WIDTH - BOX[0]) / 2
        y = BOX[3] + 72 + (i % rows) * 18
        times = f" × {mark.count}" if mark.count > 1 else ""
        name = font().elided(mark.name, SIZE, 262 - font().width(times, SIZE))
        rate = f"{units.count(mark.point.achieved, 'FLOP/s')}"
        yield Text(x + 12, y, str(i + 1), SIZE, bold=True, anchor="end")
        yield from _sign(mark.point.bound, x + 24, y - 4, 4.5)
        yield Text(x + 34, y, name + times, SIZE)
        yield Text(x + 332, y, units.percent(mark.share), SIZE, anchor="end")
        yield Text(x + 424, y, rate, 10.5, "soft", anchor="end")


def _sign(bound: Bound, x: float, y: float, r: float) -> Iterator[Shape]:
    """A mark as a shape of the same area, with a rim that sets it off from what lies below."""
    mark = BOUNDS[bound]
    tone = mark.tone
    if mark.sign == "▲":
        for size, fill in ((r * 1.35 + 2.4, "paper"), (r * 1.35, tone)):
            yield Polygon(
                ((x, y - size), (x + size, y + size * 0.73), (x - size, y + size * 0.73)), fill
            )
        return
    side, radius = (r, r) if mark.sign == "●" else (r * 0.89, 1.5)
    yield Rect(x - side, y - side, 2 * side, 2 * side, tone, "paper", radius, 1.2)


def _facts(mark: Mark) -> str:
    p = mark.point
    each = f"{units.plural(mark.count, 'subgraph')}, each " if mark.count > 1 else ""
    return (
        f"{units.percent(mark.share)} of the subgraphs' time; {each}{units.flops(p.flops)}, "
        f"{units.size(p.bytes)}, {units.intensity(p.intensity)} FLOPs/byte, "
        f"{units.seconds(p.predicted)} predicted "
        f"({units.count(p.achieved, 'FLOP/s')} of {units.count(p.attainable, 'FLOP/s')} attainable); "
        f"bound by {p.bound.label}, {p.rule}, {p.dtype}"
    )


def _legend(points: Sequence[RooflinePoint], total: float) -> Iterator[Shape]:
    """What marks mean, how many, and what is not shown."""
    x, y = BOX[0], HEIGHT - 44
    for bound in KERNEL_BOUNDS:
        mine = [p for p in points if p.bound is bound and p.flops]
        share = units.percent(sum(p.predicted for p in mine) / total)
        yield from _sign(bound, x + 6, y - 4, 5.5)
        text = f"bound by {bound.label}: {len(mine)}, {share}"
        yield Text(x + 18, y, text, 12)
        x += 44 + font().width(text, 12)
    moving = [p for p in points if not p.flops]
    text = (
        f"{units.seconds(total)} predicted for {units.plural(len(points), 'subgraph')}, "
        "each as one kernel; shares and areas of marks are of that"
    )
    if moving:
        share = units.percent(sum(p.predicted for p in moving) / total)
        text += f"; not shown: {len(moving)} without arithmetic, {share}"
    yield Text(BOX[0], y + 22, text, 12, "soft")


def _said(costed: CostedRecord) -> str:
    value = costed.graph.value
    inputs = (value[i] for i in costed.graph.inputs)
    said = ", ".join(f"{v.name} {units.shape(v.shape)} {v.dtype}" for v in inputs)
    return plain(
        f"{units.flops(costed.totals.flops)} in matrix products and convolutions · {said}", 130
    )


def _rate(value: float) -> str:
    return units.count(value, "\N{NO-BREAK SPACE}").strip()
