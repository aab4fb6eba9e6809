"""What a picture shows and how, in every format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.selection import Range, matches, module_meant, stem
from opgraph.record import units
from opgraph.record.errors import RenderError
from opgraph.record.graph import Node
from opgraph.views.picture.build import build
from opgraph.views.picture.coloring import Coloring, coloring
from opgraph.views.picture.model import Drawing
from opgraph.views.picture.paint import Paper, paint
from opgraph.views.picture.scene import Scene, placed


@dataclass(frozen=True, slots=True)
class Options:
    """What to draw, and how.

    `depth` is the level below the root (or below `module`) at which modules are closed; by default the
    deepest that leaves at most about 150 boxes. `start`, `end`, `around` and `context` choose nodes by
    number (1-based, inclusive); `module` one module; the neighbours of what is chosen are stubs.
    `color_by` is one of `COLORINGS`, `theme` "auto" (follows the reader; SVG only), "light" or "dark",
    `direction` "down" or "right". `source_url` makes links of source lines: `{path}` and `{line}` in it
    are replaced. `dpi` is the resolution of a PNG: 96 is one dot a pixel. `paginate` breaks a PDF into
    pages. `medium` is one of `MEDIA`, whose size and letters decide how deep it is drawn (at most to
    `depth`); then, and with a `caption`, what is left out is said beneath it. `header` is the name and the
    totals, `numbers` are those of the nodes.
    """

    depth: int | None = None
    fold: bool = True
    module: str = ""
    start: int | None = None
    end: int | None = None
    around: int | None = None
    context: int | None = None
    parameters: bool = False
    color_by: str = "bottleneck"
    direction: str = "down"
    medium: str | None = None
    caption: str | None = None
    header: bool = True
    numbers: bool = False
    theme: str = "auto"
    source_url: str | None = None
    dpi: float = 144.0
    paginate: bool = False

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth < 1:
            raise RenderError("--depth takes a number of at least 1")


class Picture:
    """What is drawn of a profile, made when first asked for."""

    def __init__(self, costed: CostedRecord, options: Options) -> None:
        self.costed, self.options = costed, options
        self.profile = costed.profile
        graph = costed.graph
        if options.module:
            options = self.options = replace(options, module=module_meant(graph, options.module))
        where = Range(options.start, options.end, options.around, options.context)
        self.notes: tuple[str, ...] = ()
        self._nodes: tuple[Node, ...] | None = None
        parts = [options.module] if options.module else []
        if where != Range():
            first, last, note = where.bounds(len(graph.nodes))
            self._nodes = graph.nodes[first - 1 : last]
            self.notes = (note,) if note else ()
            parts.append(f"nodes {first} to {last} of {len(graph.nodes)}")
        if options.module:
            self._nodes = tuple(
                n for n in self._nodes or graph.nodes if matches(options.module, n.scope)
            )
            if not self._nodes:
                raise RenderError(f"no node of the part that is asked for is in {options.module}")
        self.part = ", ".join(parts)

    @cached_property
    def drawing(self) -> Drawing:
        """Boxes and edges, before any layout."""
        return self._drawn[0] if self.options.medium else self._drawing()

    def _drawing(self, most: int | None = None) -> Drawing:
        options = self.options
        tree = self.costed.tree
        if self._nodes is not None or not options.fold:
            tree = self.costed.tree_of(self._nodes, root=stem(options.module), fold=options.fold)
        return build(
            tree,
            depth=options.depth,
            module=stem(options.module),
            parameters=options.parameters,
            most=most,
        )

    @cached_property
    def coloring(self) -> Coloring:
        """What colours mean in it."""
        return coloring(self.costed, self.drawing, self.options.color_by)

    @cached_property
    def scene(self) -> Scene:
        """The picture as shapes."""
        return self._drawn[1] if self.options.medium else self._scene(self.drawing)

    @cached_property
    def _drawn(self) -> tuple[Drawing, Scene]:
        """What fits the medium."""
        medium = MEDIA[str(self.options.medium)]
        found = fitted(medium, self._drawing, self._scene)
        over = max(found[1].width / medium.width, found[1].height / medium.height)
        if over > 1.001:
            what = f"{over:.1f} times as large as --for {self.options.medium}"
            self.notes += (f"with letters that can be read it is {what}",)
            said = f"In letters that can be read it is {what}."
            drawing = found[0]
            found = fitted(medium, lambda _: drawing, partial(self._scene, said=said))
        return found

    def _scene(
        self,
        drawing: Drawing,
        width: float | None = None,
        long: float | None = None,
        brief: bool = False,
        single: bool = False,
        said: str = "",
    ) -> Scene:
        options = self.options
        below = (
            [options.caption, folded(drawing), said] if options.caption or options.medium else []
        )
        paper = Paper(
            options.header,
            options.numbers,
            " ".join(filter(None, below)),
            width,
            long,
            brief,
            single,
        )
        colours = coloring(self.costed, drawing, options.color_by)
        return paint(self.costed, drawing, colours, across=options.direction == "right", part=self.part,
                     source_url=options.source_url, paper=paper)  # fmt: skip

    def summary(self) -> str:
        """What was drawn, in a line."""
        drawing = self.drawing
        depth = "" if drawing.deepest < 2 else f" at depth {drawing.depth} of {drawing.deepest}"
        boxes = units.plural(len(drawing.leaves), "box")
        return f"{boxes} and {units.plural(len(drawing.edges), 'edge')}{depth}"


def picture(costed: CostedRecord, **options: Any) -> Picture:
    """A picture of a profile, by the fields of `Options`. Raises `RenderError` for what does not fit."""
    return Picture(costed, Options(**options))


# Pictures for a place: a paper, a slide, a README, a poster. As many modules are opened, the costliest
# first, as leave letters that can be read there, and the caption says what that left out.


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
_ENLARGED = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0)
"""In how much larger letters what can be read is tried."""
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

    def painted(
        drawing: Drawing, by: float, how: tuple[bool, ...] = (False, False)
    ) -> tuple[float, Drawing, Scene]:
        scene = paint(drawing, medium.width / by, medium.height / by, *how)
        scale = min(medium.width / scene.width, medium.height / scene.height, medium.largest)
        return scale, drawing, scene

    def tried(most: int) -> tuple[float, Drawing, Scene]:
        drawing, found = draw(most), []
        for how in product((False, True), repeat=2):
            found.append(painted(drawing, least, how))
            if found[-1][0] >= least:
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
    # Broken into more columns, a long one may be as large as the room.
    larger = (by for by in _ENLARGED if least < by <= medium.largest)
    best = max([best, *(painted(best[1], by) for by in larger)], key=lambda f: f[0])
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
    if any(drawing.unseen):
        kinds = ("reshapes and the like", "what only decides on a branch")
        left = [
            f"{kind} ({units.plural(n, 'node')})"
            for kind, n in zip(kinds, drawing.unseen, strict=True)
            if n
        ]
        said.append(f"Not drawn: {' and '.join(left)}.")
    if repeated:
        alike = Counter(b.name for b in repeated)
        # By its path where others have its name: a decoder's, or the backward of it.
        called = (b.path if alike[b.name] > 1 else b.name for b in repeated[:3])
        names = ", ".join(f"{n} × {b.count}" for n, b in zip(called, repeated, strict=False))
        more = f" and {len(repeated) - 3} more" if len(repeated) > 3 else ""
        said.append(f"Drawn once: {names}{more}.")
    return " ".join(said)
