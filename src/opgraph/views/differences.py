"""How the differences between profiles are written: which profile, by how much, how many times as much."""

from __future__ import annotations

from collections.abc import Sequence

from opgraph.analysis.alignment import Status
from opgraph.analysis.quantities import Quantity

MARKS: dict[Status, tuple[str, str]] = {
    "same": (" ", "dim"),
    "changed": ("~", "yellow"),
    "renamed": ("→", "cyan"),
    "added": ("+", "green"),
    "removed": ("-", "red"),
}


def letter(position: int) -> str:
    """The letter that stands for a profile: A for the first; P27 for the 27th."""
    return chr(ord("A") + position) if position < 26 else f"P{position + 1}"


def difference(q: Quantity, before: float | None, after: float | None) -> str:
    """The change of a quantity with its sign; "=" where there is none."""
    if before is None or after is None:
        return "—"
    if after == before:
        return "="
    if q.kind == "share":
        return _by(after - before)
    return ("+" if after > before else "−") + q.format(abs(after - before))


def _by(share: float) -> str:
    """A change in percent, with its sign however small it is: +1.2 %, −<0.1 %."""
    percent = f"{abs(share) * 100:.1f}"
    return ("+" if share > 0 else "−") + ("<0.1" if percent == "0.0" else percent) + " %"


def ratio(before: float | None, after: float | None) -> str:
    """How many times as much: 4.02×; percent where it is close to one; "=" where it is equal."""
    if before is None or after is None:
        return "—"
    if after == before:
        return "="
    if not before or not after:
        return "gone" if before else "new"
    share = after / before
    if 0.8 < share < 1.25:
        return _by(share - 1)
    return f"{share:.2f}×" if share >= 0.01 else f"{share:.1e}×"


def ratio_of(values: Sequence[int | None]) -> str:
    before, after = values
    return ("" if before is None or after is None else ratio(before, after)).rjust(9)
