"""Pictures for a place: a paper, a slide, a README, a poster. As many modules are opened, the
costliest first, as leave letters that can be read there, and the caption says what that left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from opgraph.record import units
from opgraph.views.picture.model import Drawing
from opgraph.views.picture.scene import Scene, placed

INCH = 96.0
PRINT, SCREEN = 8.0, 9.0
"""The smallest letters in pixels: 6 points on paper, and what a screen shows."""
SMALLEST = 8.5
"""The smallest letters of a picture as it is laid out (`paint.LABEL`)."""


@dataclass(frozen=True, slots=True)
class Medium:
    """The room for a picture in pixels (96 an inch), its smallest letters, and how far it is enlarged."""

    width: float
    height: float
    letters: float
    largest: float = 1.0


MEDIA = {
    "paper": Medium(7 * INCH, 9 * INCH, PRINT),
    "column": Medium(3.3 * INCH, 9 * INCH, PRINT),
    "slide": Medium(1280, 720, SCREEN, 1.6),
    "readme": Medium(830, 1800, SCREEN, 1.1),
    "poster": Medium(33.1 * INCH, 46.8 * INCH, PRINT, 6.0),
}
_BOXES = (4, 6, 9, 13, 18, 25, 35, 50, 70, 100, 140, 200)
"""How many boxes are tried."""


def fitted(
    medium: Medium, draw: Callable[[int], Drawing], paint: Callable[[Drawing, float, float], Scene]
) -> tuple[Drawing, Scene]:  # fmt: skip
    """The drawing of as many boxes as can be read in the room, and its scene as large as that. `paint` is
    given the width and the height of the room in its own units.

    Where not even the fewest can, these are drawn in letters that can be read, larger than the room.
    """
    least = medium.letters / SMALLEST

    def tried(most: int) -> tuple[float, Drawing, Scene]:
        drawing = draw(most)
        scene = paint(drawing, medium.width / least, medium.height / least)
        scale = min(medium.width / scene.width, medium.height / scene.height, medium.largest)
        return scale, drawing, scene

    low, high = 0, len(_BOXES)  # boxes that fit, and that do not
    best = tried(_BOXES[0])
    while high - low > 1:
        middle = (low + high) // 2
        found = tried(_BOXES[middle])
        if found[0] >= least:
            low, best = middle, found
        else:
            high = middle
    scale, drawing, scene = best
    by = max(scale, least)
    shapes = tuple(placed(scene.shapes, by))
    return drawing, replace(scene, width=scene.width * by, height=scene.height * by, shapes=shapes)


def folded(drawing: Drawing) -> str:
    """What a drawing leaves out, in a sentence or two; empty where it shows all."""
    closed = [b for b in drawing.leaves if b.kind == "module"]
    repeated = [b for b in drawing.boxes if b.count > 1]
    said = []
    if closed:
        inside = sum(b.operators for b in closed)
        said.append(
            f"{units.plural(len(closed), 'module')} {'are' if len(closed) > 1 else 'is'} drawn closed, "
            f"without the {units.plural(inside, 'operator')} inside."
        )
    if repeated:
        names = ", ".join(f"{b.name} × {b.count}" for b in repeated[:3])
        more = f" and {len(repeated) - 3} more" if len(repeated) > 3 else ""
        said.append(f"Equal repetitions are drawn once: {names}{more}.")
    return " ".join(said)
