"""Throughput against latency as a picture: a rate is a mark, and the marks of a percentile are a line. Both
axes are logarithmic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, inf, log10

from opgraph.analysis.serving.curve import ServingPoint, ServingRecord
from opgraph.record import units
from opgraph.record.errors import RenderError
from opgraph.views.picture.labels import plain
from opgraph.views.picture.roofline import LogPlane, Names
from opgraph.views.picture.scene import Line, Rect, Scene, Shape, Text

WIDTH, HEIGHT = 900.0, 560.0
BOX = (90.0, 80.0, 720.0, 490.0)
_LINES = (
    ("first_token", "p50", "first token, p50", "s4"),
    ("first_token", "p99", "first token, p99", "s4"),
    ("per_token", "p50", "a token, p50", "seam"),
    ("per_token", "p99", "a token, p99", "seam"),
)
"""What is drawn: a field, a percentile, its name and its tone."""
_SIGNS = ("●", "■", "▲", "◆")


def scene(serving: ServingRecord) -> Scene:
    """The curve as shapes. Raises `RenderError` where there is nothing to draw."""
    points = [p for p in serving.points if p.output_tokens_per_second > 0 and p.first_token]
    if not points:
        raise RenderError("no request was served, so there is no curve")
    points.sort(key=lambda p: p.output_tokens_per_second)
    plane = LogPlane(BOX, *_ends(points))
    many = f"{serving.devices} x " if serving.devices > 1 else ""
    title = f"{plain(serving.model)} served on {many}{plain(serving.device)}"
    names = Names(BOX)
    shapes = (
        Rect(0.0, 0.0, WIDTH, HEIGHT, "paper"),
        Text(BOX[0], 34, title, 19, bold=True),
        Text(BOX[0], 56, "a mark is a rate of requests, written beside it", 12, "soft"),
        *plane.frame("output tokens a second", "latency", "{:,g}".format, units.seconds),
        *_curves(plane, points, names),
        *_legend(),
    )
    said = "; ".join(
        f"{_rate(p)}: {p.output_tokens_per_second:,.0f} tokens/s, first token "
        f"{units.seconds(p.first_token.p50)}" for p in points if p.first_token
    )  # fmt: skip
    return Scene(WIDTH, HEIGHT, shapes, title, said)


def _ends(points: Sequence[ServingPoint]) -> tuple[tuple[float, float], tuple[float, float]]:
    across = [log10(p.output_tokens_per_second) for p in points]
    up = [log10(v) for line in _LINES for _, v in _values(points, line) if v > 0]
    return _whole(across), _whole(up)


def _whole(values: Sequence[float]) -> tuple[float, float]:
    low, high = floor(min(values)), ceil(max(values))
    return float(low), float(max(high, low + 1))


def _values(
    points: Sequence[ServingPoint], line: tuple[str, str, str, str]
) -> Iterator[tuple[ServingPoint, float]]:
    for p in points:
        found = getattr(p, line[0])
        if found is not None:
            yield p, getattr(found, line[1])


def _curves(plane: LogPlane, points: Sequence[ServingPoint], names: Names) -> Iterator[Shape]:
    marked = []
    for line, sign in zip(_LINES, _SIGNS, strict=True):
        at = [
            (p, plane.at(p.output_tokens_per_second, v)) for p, v in _values(points, line) if v > 0
        ]
        if len(at) > 1:
            dash = () if line[1] == "p50" else (5.0, 4.0)
            yield Line(tuple(xy for _, xy in at), line[3], 1.5, dash=dash)
        for p, (x, y) in at:
            yield Text(x, y + 5, sign, 14, line[3], anchor="middle")
            names.keep_free((x - 6, y - 6), (x + 6, y + 6))
            if line is _LINES[1]:
                marked.append((p, x, y))
    for p, x, y in marked:
        yield from names.beside(_rate(p), x, y, 7)


def _rate(p: ServingPoint) -> str:
    return "all at once" if p.rate == inf else f"{p.rate:.3g}/s"


def _legend() -> Iterator[Shape]:
    for i, (line, sign) in enumerate(zip(_LINES, _SIGNS, strict=True)):
        y = BOX[1] + 20 + 24 * i
        yield Text(BOX[2] + 24, y + 1, sign, 14, line[3], anchor="middle")
        yield Text(BOX[2] + 38, y, line[2], 12, "soft")
