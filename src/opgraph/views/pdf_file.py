"""The PDF file format: numbered objects, streams, pages, and fonts as it wants them."""

from __future__ import annotations

import zlib

from opgraph.views.drawing.fonts import Font


class PdfFile:
    """Objects in the order in which they are added, and the pages among them."""

    def __init__(self, title: str) -> None:
        self._objects: list[bytes] = [
            b"",
            b"",
        ]  # the catalogue and the tree of pages, filled at the end
        self._pages: list[int] = []
        self._outline: list[tuple[str, int]] = []
        self._title = title

    def add(self, body: str) -> int:
        """Add an object; returns its number."""
        self._objects.append(body.encode("latin-1"))
        return len(self._objects)

    def add_stream(self, head: dict[str, str], data: str | bytes) -> int:
        """Add a compressed stream; returns its number."""
        packed = zlib.compress(data.encode("latin-1") if isinstance(data, str) else data, 9)
        entries = {**head, "Length": str(len(packed)), "Filter": "/FlateDecode"}
        start = "<< " + " ".join(f"/{k} {v}" for k, v in entries.items()) + " >>\nstream\n"
        self._objects.append(start.encode("latin-1") + packed + b"\nendstream")
        return len(self._objects)

    def add_link(self, box: str, url: str) -> int:
        """Add a link from a part of a page to a URL; returns its number."""
        return self.add(
            f"<< /Type /Annot /Subtype /Link /Rect [{box}] /Border [0 0 0] "
            f"/A << /S /URI /URI {text(url)} >> >>"
        )

    def add_page(
        self, width: float, height: float, unit: float, content: int, resources: str,
        annotations: list[int], title: str,
    ) -> None:  # fmt: skip
        """Add a page; `unit` is the size of its unit in points."""
        user = f" /UserUnit {unit:.4f}" if unit > 1 else ""
        links = f" /Annots [{' '.join(f'{n} 0 R' for n in annotations)}]" if annotations else ""
        number = self.add(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width:.2f} {height:.2f}]{user} "
            f"/Resources {resources} /Contents {content} 0 R{links} >>"
        )
        self._pages.append(number)
        if title:
            self._outline.append((title, number))

    def bytes(self) -> bytes:
        """The whole file."""
        outline = self._outlines()
        info = self.add(f"<< /Title {text(self._title)} /Producer (opgraph) >>")
        kids = " ".join(f"{n} 0 R" for n in self._pages)
        self._objects[0] = f"<< /Type /Catalog /Pages 2 0 R{outline} >>".encode("latin-1")
        self._objects[1] = f"<< /Type /Pages /Kids [{kids}] /Count {len(self._pages)} >>".encode()
        out = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
        offsets = []
        for number, body in enumerate(self._objects, start=1):
            offsets.append(len(out))
            out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
        start = len(out)
        out += f"xref\n0 {len(offsets) + 1}\n0000000000 65535 f \n".encode()
        for offset in offsets:
            out += f"{offset:010d} 00000 n \n".encode()
        out += f"trailer\n<< /Size {len(offsets) + 1} /Root 1 0 R /Info {info} 0 R >>\n".encode()
        return bytes(out + f"startxref\n{start}\n%%EOF\n".encode())

    def _outlines(self) -> str:
        """The bookmarks of pages that have titles."""
        if not self._outline:
            return ""
        root = len(self._objects) + 1
        last = root + len(self._outline)
        self.add(
            f"<< /Type /Outlines /First {root + 1} 0 R /Last {last} 0 R /Count {len(self._outline)} >>"
        )
        for number, (title, page) in enumerate(self._outline, start=root + 1):
            before = f" /Prev {number - 1} 0 R" if number > root + 1 else ""
            after = f" /Next {number + 1} 0 R" if number < last else ""
            self.add(
                f"<< /Title {text(title)} /Parent {root} 0 R{before}{after} /Dest [{page} 0 R /Fit] >>"
            )
        return f" /Outlines {root} 0 R /PageMode /UseOutlines"


def text(value: str) -> str:
    """A text outside of pages, as UTF-16 in hexadecimal."""
    return f"<feff{value.encode('utf-16-be', 'replace').hex()}>"


def embed(file: PdfFile, used: Font, name: str) -> int:
    """Embed a font, so that its text can be shown anywhere, searched and copied; returns its number."""
    scale = 1000 / used.em
    label = {"R": "Inter-Regular", "B": "Inter-SemiBold"}[name]
    data = file.add_stream({"Length1": str(len(used.data))}, used.data)
    box = " ".join(str(round(v * scale)) for v in used.box)
    descriptor = file.add(
        f"<< /Type /FontDescriptor /FontName /{label} /Flags 4 /FontBBox [{box}] /ItalicAngle 0 "
        f"/Ascent {round(used.ascent * scale)} /Descent {round(used.descent * scale)} "
        f"/CapHeight {round(0.727 * 1000)} /StemV 80 /FontFile2 {data} 0 R >>"
    )
    widths = " ".join(str(round(a * scale)) for a in used.advances)
    glyphs = file.add(
        f"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /{label} /CIDToGIDMap /Identity "
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> "
        f"/FontDescriptor {descriptor} 0 R /W [0 [{widths}]] >>"
    )
    unicode = file.add_stream({}, _to_unicode(used))
    return file.add(
        f"<< /Type /Font /Subtype /Type0 /BaseFont /{label} /Encoding /Identity-H "
        f"/DescendantFonts [{glyphs} 0 R] /ToUnicode {unicode} 0 R >>"
    )


def _to_unicode(used: Font) -> str:
    """The map from glyphs back to characters (Adobe technical note 5411)."""
    pairs = sorted(
        {glyph: code for code, glyph in sorted(used.glyphs.items(), reverse=True)}.items()
    )
    lines = [
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap",
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def",
        "/CMapName /Adobe-Identity-UCS def /CMapType 2 def",
        "1 begincodespacerange <0000> <ffff> endcodespacerange",
    ]
    for start in range(0, len(pairs), 100):
        part = pairs[start : start + 100]
        lines.append(f"{len(part)} beginbfchar")
        lines += [f"<{glyph:04x}> <{code:04x}>" for glyph, code in part]
        lines.append("endbfchar")
    lines.append("endcmap CMapName currentdict /CMap defineresource pop end end")
    return "\n".join(lines)
