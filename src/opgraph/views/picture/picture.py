"""What a picture shows and how, the same in every format (see `formats`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.selection import Range, check_module, matches, stem
from opgraph.record.errors import RenderError
from opgraph.record.graph import Node
from opgraph.views.picture.build import build
from opgraph.views.picture.coloring import Coloring, coloring
from opgraph.views.picture.model import Drawing
from opgraph.views.picture.paint import paint
from opgraph.views.picture.scene import Scene


@dataclass(frozen=True, slots=True)
class Options:
    """What to draw, and how.

    `depth` is the level below the root (or below `module`) at which modules are closed; by default the
    deepest that leaves at most about 150 boxes. `start`, `end`, `around` and `context` choose nodes by
    number (1-based, inclusive); `module` one module; the neighbours of what is chosen are stubs.
    `color_by` is one of `COLORINGS`, `theme` "auto" (follows the reader; SVG only), "light" or "dark",
    `direction` "down" or "right". `source_url` makes links of source lines: `{path}` and `{line}` in it
    are replaced. `dpi` is the resolution of a PNG: 96 is one dot a pixel. `paginate` breaks a PDF into
    pages.
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
    theme: str = "auto"
    source_url: str | None = None
    dpi: float = 144.0
    paginate: bool = False

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth < 1:
            raise RenderError("--depth takes a number of at least 1")


class Picture:
    """What is drawn of a profile, made when it is first asked for."""

    def __init__(self, costed: CostedRecord, options: Options) -> None:
        self.costed, self.options = costed, options
        self.profile = costed.profile
        graph = costed.graph
        if options.module:
            check_module(graph, options.module)
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
        options = self.options
        tree = self.costed.tree
        if self._nodes is not None or not options.fold:
            tree = self.costed.tree_of(self._nodes, root=stem(options.module), fold=options.fold)
        return build(
            tree, depth=options.depth, module=stem(options.module), parameters=options.parameters
        )

    @cached_property
    def coloring(self) -> Coloring:
        """What colours mean in it."""
        return coloring(self.costed, self.drawing, self.options.color_by)

    @cached_property
    def scene(self) -> Scene:
        """The picture as shapes."""
        across = self.options.direction == "right"
        return paint(self.costed, self.drawing, self.coloring, across=across, part=self.part,
                     source_url=self.options.source_url)  # fmt: skip

    def summary(self) -> str:
        """What was drawn, in a line."""
        drawing = self.drawing
        depth = "" if drawing.deepest < 2 else f" at depth {drawing.depth} of {drawing.deepest}"
        return f"{len(drawing.leaves)} boxes and {len(drawing.edges)} edges{depth}"


def picture(costed: CostedRecord, **options: Any) -> Picture:
    """A picture of a profile, by the fields of `Options`. Raises `RenderError` for what does not fit."""
    return Picture(costed, Options(**options))
