"""The typeface of pictures: Inter (SIL Open Font License). Subsets are shipped in `fonts/`, so that text is
as wide on every machine, and the same profile gives the same bytes. See fonts/README.md."""

from __future__ import annotations

import json
import unicodedata
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "fonts"
FAMILY = "Inter"


@dataclass(frozen=True)
class Font:
    """A font: the advance of each of its characters in units of `em`."""

    em: int
    advances: dict[str, float]

    def width(self, text: str, size: float) -> float:
        """The width of a text in pixels; characters that the font lacks are as wide as an average
        fallback makes them."""
        return sum(self.advances.get(c) or self._fallback(c) for c in text) * size / self.em

    def _fallback(self, character: str) -> float:
        wide = unicodedata.east_asian_width(character) in "WF"
        return self.em * (1.25 if wide else 0.65)

    def elided(self, text: str, size: float, room: float) -> str:
        """The text, or as much of its beginning and end as fits."""
        if self.width(text, size) <= room:
            return text
        kept = len(text)
        while kept > 2:
            kept = min(kept - 1, int(kept * 0.9) if kept > 40 else kept)
            head = (kept + 1) // 2 + kept // 6
            short = f"{text[:head]}…{text[len(text) - (kept - head) :]}" if kept > head else ""
            if short and self.width(short, size) <= room:
                return short
        return "…"


@cache
def font(*, bold: bool = False) -> Font:
    """The regular or the semi-bold font."""
    found = json.loads((FOLDER / "advances.json").read_text("utf-8"))
    advances = found["SemiBold" if bold else "Regular"]
    return Font(found["em"], dict(zip(found["characters"], advances, strict=True)))


@cache
def embedded() -> str:
    """CSS that brings both fonts, with the characters that pictures use."""
    return "".join(
        f"@font-face{{font-family:{FAMILY};font-weight:{weight};"
        f"src:url(data:font/woff2;base64,{_base64(name)})}}"
        for weight, name in ((400, "Regular"), (600, "SemiBold"))
    )


def files() -> list[str]:
    """The paths of the font files."""
    return [str(FOLDER / f"Inter-{name}.ttf") for name in ("Regular", "SemiBold")]


def _base64(name: str) -> str:
    return b64encode((FOLDER / f"Inter-{name}.woff2").read_bytes()).decode("ascii")
