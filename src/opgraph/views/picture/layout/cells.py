"""The parts of one level of a layout: cells in ranks, and nets between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# The distances of a layout, in pixels at the reading size.


@dataclass(frozen=True, slots=True)
class Spacing:
    """Distances across the flow (`beside`, `lane`, `port`) and along it (`gap`, `leave`, `arrive`,
    `track`).

    `title` is the room that an open box keeps for its title, at its beginning, or at its side where
    `title_across`. A box longer than `longest` and more than `slimmest` times as long as wide is broken
    into columns, so that it becomes about `wanted` times as long as wide, or with `room`, a width and a
    length, as large as can be there. In `single` file each box stands below the one before.
    """

    beside: float = 22.0
    lane: float = 11.0
    port: float = 16.0
    padding: float = 16.0
    title: float = 30.0
    title_across: bool = False
    gap: float = 24.0
    leave: float = 9.0
    arrive: float = 14.0
    track: float = 8.0
    gutter: float = 26.0
    longest: float = 1500.0
    slimmest: float = 1.3
    wanted: float = 0.9
    room: tuple[float, float] | None = None
    single: bool = False


CellKind = Literal["box", "in", "out", "bend"]


@dataclass(slots=True, eq=False)
class Cell:
    """Something with a place in a rank: a box, a port of the box around it (`in` at its beginning, `out`
    at its end), or a bend, where a line passes a rank.

    `width` is across the flow, `height` along it. `u` is the centre. A box at the `side` is never what
    lines are straightened for. `entries` and `exits` say where
    lines of a net touch the cell, from its centre; those of an open box are given, others are chosen.
    """

    kind: CellKind
    number: int
    width: float = 0.0
    height: float = 0.0
    box: str = ""
    rank: int = 0
    order: int = 0
    u: float = 0.0
    fixed: bool = False
    side: bool = False
    entries: dict[int, float] = field(default_factory=dict)
    exits: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Net:
    """A tensor on its way from the cell that makes it to all that read it."""

    id: int
    source: Cell
    targets: list[Cell] = field(default_factory=list)
    chain: dict[int, Cell] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Hop:
    """A net's way from one rank to the next."""

    net: Net
    upper: Cell
    lower: Cell

    @property
    def start(self) -> float:
        return self.upper.u + self.upper.exits.get(self.net.id, 0.0)

    @property
    def end(self) -> float:
        return self.lower.u + self.lower.entries.get(self.net.id, 0.0)


@dataclass(slots=True)
class Level:
    """The inside of one open box: cells by rank, and the hops across each gap below a rank."""

    cells: list[Cell]
    nets: list[Net]
    constraints: list[tuple[Cell, Cell]]
    ranks: list[list[Cell]] = field(default_factory=list)
    gaps: list[list[Hop]] = field(default_factory=list)
