"""The Mermaid view: the drawing as a flowchart that GitHub, GitLab and many editors show in Markdown. All
text from a model is written in entity codes where Mermaid or HTML would read more than text in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from opgraph.views.picture import labels
from opgraph.views.picture.model import Box, Edge
from opgraph.views.picture.picture import Picture
from opgraph.views.picture.scene import LIGHT

MOST_EDGES = 500
MOST_CHARACTERS = 50_000
"""What Mermaid draws unless it is configured to draw more (its `maxEdges` and `maxTextSize`)."""

_SPECIAL = re.compile(r"[^\w .,:;+/=×·…–—%()\[\]-]")


def to_mermaid(picture: Picture) -> str:
    """The drawing as a Mermaid flowchart."""
    return "\n".join(_lines(picture)) + "\n"


def too_large(text: str, edges: int) -> str | None:
    """Why Mermaid would refuse a flowchart as it comes, if it would."""
    over = f"{edges} edges are" if edges > MOST_EDGES else ""
    if len(text) > MOST_CHARACTERS:
        over = f"{len(text):,} characters are"
    return f"{over} more than Mermaid draws by default; a smaller --depth helps" if over else None


def _lines(picture: Picture) -> Iterator[str]:
    drawing, coloring = picture.drawing, picture.coloring
    yield f"flowchart {'LR' if picture.options.direction == 'right' else 'TB'}"
    for child in drawing.root.children:
        yield from _box(child, picture, 1)
    for edge in drawing.edges:
        yield _edge(edge)
    marks = {b.id: coloring.marks[b.id] for b in drawing.leaves if b.id in coloring.marks}
    for tone in sorted({m.tone for m in marks.values()}):
        chosen = ",".join(box for box, mark in marks.items() if mark.tone == tone)
        yield f"  classDef {tone} stroke:{LIGHT[tone]},stroke-width:2px"
        yield f"  class {chosen} {tone}"
    failed = ",".join(b.id for b in drawing.leaves if b.error)
    if failed:
        yield f"  classDef failed fill:{LIGHT['error-card']},stroke:{LIGHT['error']},stroke-width:3px"
        yield f"  class {failed} failed"


def _box(box: Box, picture: Picture, level: int) -> Iterator[str]:
    indent = "  " * level
    if box.open:
        title = " ".join(p for p in (labels.title(box), labels.kind(box), labels.badge(box)) if p)
        below = labels.header(box, picture.coloring)
        yield f'{indent}subgraph {box.id}["{_text(title)}{f" · {_text(below)}" if below else ""}"]'
        for child in box.children:
            yield from _box(child, picture, level + 1)
        yield f"{indent}end"
        return
    opening, closing = _SHAPES.get(box.kind, ("[", "]"))
    lines = "<br/>".join(_text(line) for line in _texts(box, picture) if line)
    yield f'{indent}{box.id}{opening}"{lines}"{closing}'


_SHAPES = {
    "input": ("([", "])"),
    "output": ("([", "])"),
    "module": ("[[", "]]"),
    "parameters": ("[/", "/]"),
    "seam": ("{{", "}}"),
}


def _texts(box: Box, picture: Picture) -> Iterator[str]:
    mark = picture.coloring.marks.get(box.id)
    yield " ".join(p for p in (labels.title(box), labels.badge(box)) if p)
    yield " · ".join(p for p in (labels.kind(box), labels.shape(box.shape)) if p)
    costs = [labels.figures(box, picture.coloring)]
    if costs[0]:
        costs.append(labels.share_text(box, picture.coloring))
    if mark is not None:
        costs.append(mark.meaning)
    yield " · ".join(c for c in costs if c)
    yield from (labels.plain(line) for line in box.lines)
    if box.error:
        yield f"failed: {labels.plain(box.error, 120)}"
    yield from (f"graph break: {labels.plain(b.reason, 80)}" for b in box.breaks[:3])


def _edge(edge: Edge) -> str:
    if edge.kind == "parameter":
        return f"  {edge.source} -.-> {edge.target}"
    label = labels.shape(edge.shape)
    return f'  {edge.source} -->|"{_text(label)}"| {edge.target}'


def _text(text: str) -> str:
    """Text in a quoted label, with all that could mean something else as entity codes."""
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)
