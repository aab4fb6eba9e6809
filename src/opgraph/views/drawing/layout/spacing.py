"""The distances of a layout, in pixels at the reading size."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spacing:
    """Distances across the flow (`beside`, `lane`, `port`) and along it (`gap`, `leave`, `arrive`,
    `track`).

    `title` is the room that an open box keeps for its title, at its beginning, or at its side where
    `title_across`. A box longer than `longest` and more than `slimmest` times as long as wide is broken
    into columns, so that it becomes about `wanted` times as long as wide.
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
