"""Pictures for a place: a paper, a slide, a README, a poster. As many modules are opened, the
costliest first, as leave letters that can be read there, and the caption says what that left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

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
_BOXES = (*range(4, 16), *range(16, 30, 2), *range(30, 60, 5), *range(60, 220, 20))
"""How many boxes are tried."""


def fitted(
    medium: Medium,
    draw: Callable[[int], Drawing],
    paint: Callable[[Drawing, float, float, bool, bool], Scene],
) -> tuple[Drawing, Scene]:
    """The drawing of as many boxes as can be read in the room, and its scene as large as that. `paint` is
    given the width and the height of the room in its own units, whether boxes are brief, and whether each
    stands below the one before: so it is drawn where it would not fit otherwise.

    Where not even the fewest can, these are drawn in letters that can be read, larger than the room.
    """
    least = medium.letters / SMALLEST

    def tried(most: int) -> tuple[float, Drawing, Scene]:
        drawing = draw(most)
        found = []
        for brief, single in product((False, True), repeat=2):
            scene = paint(drawing, medium.width / least, medium.height / least, brief, single)
            scale = min(medium.width / scene.width, medium.height / scene.height, medium.largest)
            found.append((scale, drawing, scene))
            if scale >= least:
                break
        return max(found, key=lambda f: f[0])

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
    runs = [b for b in drawing.leaves if b.kind == "run"]
    said = []
    if closed:
        inside = sum(b.operators for b in closed)
        said.append(
            f"{units.plural(len(closed), 'closed module')} with {units.plural(inside, 'operator')} inside."
        )
    if runs:
        said.append("Neighbours that cost little are one box.")
    if drawing.unseen:
        said.append(
            f"Reshapes and the like are not drawn ({units.plural(drawing.unseen, 'node')})."
        )
    if repeated:
        names = ", ".join(f"{b.name} × {b.count}" for b in repeated[:3])
        more = f" and {len(repeated) - 3} more" if len(repeated) > 3 else ""
        said.append(f"Drawn once: {names}{more}.")
    return " ".join(said)
