"""The typeface of pictures: Inter (SIL Open Font License). Subsets are shipped in `fonts/`, so that text is
as wide on every machine, and the same profile gives the same bytes. See fonts/README.md."""

from __future__ import annotations

import struct
import unicodedata
from base64 import b64encode
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

FOLDER = Path(__file__).parent / "fonts"
FAMILY = "Inter"


@dataclass(frozen=True)
class Font:
    """A TrueType font: the glyph of each character, and the advance of each glyph in units of `em`."""

    em: int
    glyphs: dict[int, int]
    advances: tuple[int, ...]

    def width(self, text: str, size: float) -> float:
        """The width of a text in pixels; characters that the font lacks are as wide as an average
        fallback makes them."""
        return sum(map(self._advance, text)) * size / self.em

    def _advance(self, character: str) -> float:
        found = self._known.get(character)
        if found is None:
            glyph = self.glyphs.get(ord(character))
            wide = unicodedata.east_asian_width(character) in "WF"
            found = (
                self.advances[glyph] if glyph is not None else self.em * (1.25 if wide else 0.65)
            )
            self._known[character] = found
        return found

    @cached_property
    def _known(self) -> dict[str, float]:
        return {}

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
    return _read((FOLDER / f"Inter-{'SemiBold' if bold else 'Regular'}.ttf").read_bytes())


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


def _read(data: bytes) -> Font:
    """Read the tables that measuring needs
    (https://learn.microsoft.com/typography/opentype/spec/otff)."""
    count = struct.unpack_from(">H", data, 4)[0]
    tables = {}
    for number in range(count):
        tag, _, offset, _ = struct.unpack_from(">4sIII", data, 12 + 16 * number)
        tables[tag.decode("ascii")] = offset
    head, hhea = tables["head"], tables["hhea"]
    em = struct.unpack_from(">H", data, head + 18)[0]
    metrics = struct.unpack_from(">H", data, hhea + 34)[0]
    glyphs = struct.unpack_from(">H", data, tables["maxp"] + 4)[0]
    advances = [struct.unpack_from(">H", data, tables["hmtx"] + 4 * i)[0] for i in range(metrics)]
    advances += [advances[-1]] * (glyphs - metrics)
    return Font(em, _characters(data, tables["cmap"]), tuple(advances))


def _characters(data: bytes, cmap: int) -> dict[int, int]:
    """The glyphs of characters, from a cmap subtable of format 4."""
    count = struct.unpack_from(">H", data, cmap + 2)[0]
    for number in range(count):
        offset = cmap + struct.unpack_from(">I", data, cmap + 8 + 8 * number)[0]
        if struct.unpack_from(">H", data, offset)[0] == 4:
            break
    else:
        raise ValueError("the font has no cmap of format 4")
    segments = struct.unpack_from(">H", data, offset + 6)[0] // 2
    row = f">{segments}H"
    ends = struct.unpack_from(row, data, offset + 14)
    starts = struct.unpack_from(row, data, offset + 16 + 2 * segments)
    deltas = struct.unpack_from(row, data, offset + 16 + 4 * segments)
    base = offset + 16 + 6 * segments
    ranges = struct.unpack_from(row, data, base)
    found: dict[int, int] = {}
    for i, (start, end, delta, far) in enumerate(zip(starts, ends, deltas, ranges, strict=True)):
        for code in range(start, min(end, 0xFFFE) + 1):
            glyph = code
            if far:
                glyph = struct.unpack_from(">H", data, base + 2 * i + far + 2 * (code - start))[0]
            if glyph or not far:
                found[code] = (glyph + delta) & 0xFFFF
    return found
