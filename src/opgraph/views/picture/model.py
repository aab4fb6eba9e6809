"""What a picture shows, before any layout: boxes in boxes, and the edges between them. The SVG, PDF, DOT
and Mermaid views are drawn from this."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from opgraph.analysis.cost.totals import Cost
from opgraph.analysis.tree import Item, Metric, Tree
from opgraph.record.graph import GraphBreak, Node, Shape

NO_COST = Cost()

BoxKind = Literal["operator", "module", "run", "input", "output", "parameters", "stub", "seam"]


@dataclass(frozen=True, slots=True)
class Box:
    """An operator, a module (drawn open, with boxes inside, or closed), a run of neighbours that cost
    little, inputs or an output of the model, the parameters of an operator, a neighbour of the part that is
    drawn, or the seam of a graph break.

    `nodes` are the ids of the nodes that are inside this box and no smaller one; where repeats are
    folded, those of all of them. `cost` and `parameters` are those of one repetition, `total` and
    `all_parameters` those of all `times` repetitions together. `count` is the number of repetitions
    that this very box stands for. `turn` says which of `turns` calls of its module this is. `items` are
    where it stands in the tree: of a run several. `decided` is what Python got to know there.
    """

    id: str
    kind: BoxKind
    name: str
    path: str = ""
    cls: str = ""
    op: str = ""
    nodes: tuple[int, ...] = ()
    first: int = 0
    last: int = 0
    shape: Shape | None = None
    dtype: str = ""
    parameters: int = 0
    all_parameters: int = 0
    tied: tuple[str, ...] = ()
    cost: Cost = NO_COST
    total: Cost = NO_COST
    count: int = 1
    times: int = 1
    turn: int = 1
    turns: int = 1
    operators: int = 0
    arguments: str = ""
    decided: str = ""
    file: str | None = None
    line: int | None = None
    doc: str = ""
    error: str | None = None
    breaks: tuple[GraphBreak, ...] = ()
    lines: tuple[str, ...] = ()
    children: tuple[Box, ...] = ()
    looped: bool = False
    items: tuple[Item, ...] = ()

    @property
    def open(self) -> bool:
        """Whether boxes are drawn inside this one."""
        return bool(self.children)

    def walk(self) -> Iterator[Box]:
        """This box and all inside it, from the outside in, in order."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Edge:
    """Tensors that one box makes and another reads. `net` is the first of them: edges of one net have
    the same source and are drawn as one line that branches."""

    source: str
    target: str
    net: int
    values: tuple[int, ...]
    shape: Shape
    dtype: str
    bytes: int
    kind: Literal["data", "parameter"] = "data"


@dataclass(frozen=True)
class Drawing:
    """The boxes below a root, and edges between closed ones.

    `depth` is the level below which modules are closed, `deepest` the level at which all are open,
    `unseen` how many operators are not drawn since they only look at data differently, and how many since
    they only decide which way the model goes.
    """

    tree: Tree
    root: Box
    edges: tuple[Edge, ...]
    depth: int
    deepest: int
    unseen: tuple[int, int] = (0, 0)

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """All boxes but the root, from the outside in."""
        return tuple(self.root.walk())[1:]

    @cached_property
    def leaves(self) -> tuple[Box, ...]:
        """The boxes with nothing inside."""
        return tuple(b for b in self.boxes if not b.open)

    @cached_property
    def box(self) -> dict[str, Box]:
        """All boxes by id, the root among them."""
        return {b.id: b for b in self.root.walk()}

    def total(self, metric: Metric, box: Box) -> float:
        """What all repetitions of a box take together."""
        return sum(self.tree.total(metric, item) for item in box.items)

    def nodes_of(self, box: Box) -> list[Node]:
        """The nodes of a box in all its repetitions, in order."""
        return [node for item in box.items for node in self.tree.nodes_of(item)]
