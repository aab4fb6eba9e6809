"""What a row is worth: the right figures of a model, and whether a tool has found them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from adapters import OURS, PEERS
from models import Entry

TOLERANCE = 0.02
"""Of the right FLOPs: tools that count the additions of a bias or a normalization are not wrong."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Board:
    """All rows of the comparison by tool and model, with the right figures."""

    entries: list[Entry]
    cells: dict[tuple[str, str], Row]

    @classmethod
    def of(cls, rows: Iterable[Row], entries: list[Entry]) -> Board:
        cells = {(r["tool"], r["model"]): r for r in rows if r["kind"] == "peer"}
        return cls([e for e in entries if (OURS, e.name) in cells], cells)

    def cell(self, tool: str, entry: Entry) -> Row:
        return self.cells.get((tool, entry.name), {"error": "not run"})

    def flops(self, entry: Entry) -> int | None:
        """The right FLOPs: those of torch's counter on a real forward, with what it is blind for."""
        if entry.flops is not None:
            return entry.flops
        counted = self.cell("FlopCounterMode", entry).get("value")
        return None if counted is None else counted + entry.beside

    def parameters(self, entry: Entry) -> int | None:
        """The right parameters: each tensor once."""
        if entry.parameters is not None:
            return entry.parameters
        found: int | None = self.cell(OURS, entry).get("true_parameters")
        return found

    def deviation(self, tool: str, entry: Entry) -> float | None:
        """How far the tool's FLOPs are from the right ones, as a share; None where there is no figure."""
        value, right = self.cell(tool, entry).get("value"), self.flops(entry)
        if value is None or not right:
            return None
        return flops_of(tool, value) / right - 1

    def flops_right(self, tool: str, entry: Entry) -> bool:
        off = self.deviation(tool, entry)
        return off is not None and abs(off) <= TOLERANCE

    def parameters_right(self, tool: str, entry: Entry) -> bool:
        said = self.cell(tool, entry).get("parameters")
        return said is not None and said == self.parameters(entry)

    def tried(self, tool: str, entry: Entry) -> bool:
        return (tool, entry.name) in self.cells

    def whole(self, entry: Entry) -> bool:
        """Whether every tool was tried on the model."""
        return all(self.tried(tool, entry) for tool in (OURS, *PEERS))

    def ran(self, tool: str, entry: Entry) -> bool:
        return "first" in self.cell(tool, entry)

    def seconds(self, tool: str, entry: Entry) -> float | None:
        """CPU seconds of a call when the process is warm, or of its only one."""
        cell = self.cell(tool, entry)
        found: float | None = cell.get("seconds", cell.get("first"))
        return found

    def fastest(self, entry: Entry) -> str:
        times = {t: self.seconds(t, entry) for t in (OURS, *PEERS)}
        return min((s, t) for t, s in times.items() if s is not None)[1]


def flops_of(tool: str, value: int) -> int:
    """A tool's figure as FLOPs: 1 MAC is 2."""
    return 2 * value if tool != OURS and PEERS[tool].unit == "MACs" else value
