"""What all text views share: safe text, bars, colours that never carry meaning alone, and drawing with
rich into a string."""

from __future__ import annotations

import io
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from opgraph.record.kinds import Bound
from opgraph.views.marks import BOUNDS

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def safe(text: str, limit: int = 200) -> str:
    """Text from a model, without control and formatting characters, so that nothing reaches the
    terminal but what can be read."""
    plain = readable(text[: limit + 1])
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def readable(text: str) -> str:
    """Text in which what a terminal would act on, or would hide or reorder, is replaced by a sign."""
    if text.isprintable():
        return text
    return "".join("\N{REPLACEMENT CHARACTER}" if _acts(c) else c for c in text)


def _acts(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "C" or category in ("Zl", "Zp")


def bar(share: float, width: int = 8) -> Text:
    """A bar of so many cells, exact to an eighth of a cell."""
    from rich.text import Text

    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if share > 0 and eighths == 0:
        eighths = 1
    full, rest = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return Text(text.ljust(width), style="cyan")


def bound(bottleneck: Bound | None) -> Text:
    """The word for a bottleneck, coloured."""
    from rich.text import Text

    if bottleneck is None:
        return Text("—", style="dim")
    mark = BOUNDS[bottleneck]
    return Text(f"{mark.sign} {bottleneck.value}", style=mark.style)


def fit(value: str, width: int) -> str:
    """Exactly so many characters: padded, or cut with an ellipsis."""
    from rich.cells import cell_len, set_cell_size

    plain = safe(value)
    if cell_len(plain) <= width:
        return set_cell_size(plain, width)
    return set_cell_size(plain, max(0, width - 1)) + "…" if width > 0 else ""


def fit_tail(value: str, width: int, cut: Cut | None = None) -> str:
    """The same of a path, cut at dots as far as that is possible, and keeping the end, which tells it from
    its neighbours. Where those are known, `cut` is theirs."""
    from rich.cells import cell_len, set_cell_size

    plain = safe(value)
    if cell_len(plain) > width:
        plain = (cut and cut(value, width)) or Cut((value,))(value, width) or plain
    while (rest := plain.removeprefix("…")) and cell_len(plain) > width:
        plain = "…" + rest[1:]
    return set_cell_size(plain, max(0, width))


def fit_class(value: str, width: int) -> str:
    """The same of a class, whose last words say what it is (`…MoeBlock` of a MixtralSparseMoeBlock)."""
    plain = safe(value)
    words = re.split(r"(?<=[a-z0-9])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])", plain)
    ends = ("…" + "".join(words[at:]) for at in range(1, len(words)))
    return (
        plain
        if len(plain) <= width
        else next((e for e in ends if len(e) <= width), fit(plain, width))
    )


class Cut:
    """How to write each of some paths in so many characters, and as no other of them could be: cut at dots,
    its end kept (`….attn.c_attn`) and, where others end alike, its beginning too (`model.4.….conv`), or the
    part that tells (`….encoder.….conv`). "" where there is no such way."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = {safe(path) for path in paths}
        self._forms = Counter(form for path in self._paths for form in _forms(path))

    def _told(self, path: str) -> Iterator[str]:
        return (form for form in _forms(path) if self._forms[form] < 2)

    def __call__(self, path: str, width: int) -> str:
        from rich.cells import cell_len

        return next((form for form in self._told(safe(path)) if cell_len(form) <= width), "")

    @cached_property
    def least(self) -> int:
        """The fewest characters in which each of the paths can be written so."""
        from rich.cells import cell_len

        return max((min(map(cell_len, self._told(path))) for path in self._paths), default=0)


def _forms(path: str) -> Iterator[str]:
    """A path, and what is left of it where parts are left out: the fewest, and the first ones, first."""
    parts = path.split(".")
    yield path
    for head in range(len(parts)):
        for tail in range(head + 1, len(parts)):
            yield ".".join((*parts[:head], "…", *parts[tail:]))
    for middle in range(1, len(parts) - 2):
        for tail in range(middle + 2, len(parts)):
            yield ".".join(("…", parts[middle], "…", *parts[tail:]))


def console(width: int, color: bool) -> Console:
    """A console that draws into memory, and only what can be read: whichever text of a model a view forgets
    to make safe is made so here."""
    from rich.console import Console
    from rich.segment import Segment

    class Readable(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                text = segment.text
                known = segment.control or text.isprintable() or text == "\n"
                yield segment if known else Segment(readable_lines(text), segment.style)

    return Readable(
        force_jupyter=False,
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="256" if color else None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )


def readable_lines(text: str) -> str:
    """The same for text of several lines."""
    return "\n".join(map(readable, text.split("\n")))


def draw(parts: list[RenderableType], width: int, color: bool) -> str:
    """Renderables, one below the other, as text without trailing spaces."""
    target = console(width, color)
    for part in parts:
        target.print(part)
    text: str = target.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.removesuffix("\n").split("\n")) + "\n"


def fitting(tables: Sequence[Table], width: int) -> Table:
    """The first of some tables whose cells are whole at a width, else the last of them."""
    room = console(10 * width, color=False)
    return next((t for t in tables if room.measure(t).maximum <= width), tables[-1])


def hanging(lines: Iterable[str], indent: int = 13) -> Table:
    """Facts a line each, behind their labels: what does not fit goes on below the fact."""
    from rich.table import Table

    result = Table.grid()
    result.add_column(no_wrap=True, min_width=indent)
    result.add_column(overflow="fold")
    for line in lines:
        result.add_row(line[:indent], line[indent:])
    return result


def ruled(heads: Iterable[str], words: Collection[str] = (), apart: int = 1, **more: Any) -> Table:
    """An empty table with a line under its heads: those of `words` to the left, figures to the right."""
    from rich import box
    from rich.table import Table

    style = {
        "show_edge": False,
        "pad_edge": False,
        "padding": (0, apart, 0, 0),
        "header_style": "bold",
    }
    result = Table(box=box.SIMPLE_HEAD, **{**style, **more})
    for head in heads:
        result.add_column(head, justify="left" if head in words else "right", no_wrap=True)
    return result


def labelled(rows: Iterable[tuple[str, str]], longest: int) -> Table:
    """Facts with their labels before them, of at most so many characters."""
    from rich.table import Table

    result = Table.grid(padding=(0, 2))
    result.add_column(style="bold", no_wrap=True)
    result.add_column(overflow="fold")
    for label, text in rows:
        result.add_row(label, safe(text, longest))
    return result


def columns(*headers: str, words: Collection[str] | None = None) -> Table:
    """An empty table without lines: words (the first column, and those without a head, if nothing else is
    said) to the left, figures to the right."""
    from rich.table import Table

    result = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for position, header in enumerate(headers):
        left = header in (("", "operator", headers[0]) if words is None else words)
        result.add_column(header, justify="left" if left else "right",
                          no_wrap=bool(position) or words is not None)  # fmt: skip
    return result
