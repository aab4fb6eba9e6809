"""What a picture shows and how, in every format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.selection import Range, check_module, matches, stem
from opgraph.record.errors import RenderError
from opgraph.record.graph import Node
from opgraph.views.picture.build import build
from opgraph.views.picture.coloring import Coloring, coloring
from opgraph.views.picture.media import MEDIA, fitted, folded
from opgraph.views.picture.model import Drawing
from opgraph.views.picture.paint import Paper, paint
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
        return f"{len(drawing.leaves)} boxes and {len(drawing.edges)} edges{depth}"


def picture(costed: CostedRecord, **options: Any) -> Picture:
    """A picture of a profile, by the fields of `Options`. Raises `RenderError` for what does not fit."""
    return Picture(costed, Options(**options))
