"""Pictures as text: DOT and Mermaid.

The DOT view: the drawing as a Graphviz graph, for `dot` and all that read its language. Modules are
clusters, boxes are HTML-like labels in which all text is escaped; large graphs carry limits that keep
`dot` from searching for minutes (https://graphviz.org/docs/attrs/nslimit/)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from opgraph.views.picture import labels
from opgraph.views.picture.model import Box, Edge
from opgraph.views.picture.picture import Picture
from opgraph.views.picture.scene import LIGHT, THEMES, Theme

LARGE = 250
"""Boxes from which on `dot` is told to take it easy."""
LIMITS = {"nslimit": "0.5", "nslimit1": "0.5", "mclimit": "0.05", "splines": "line"}
"""Without these, `dot` takes minutes for GPT-2 or DenseNet at full depth; with them, a second."""


def to_dot(picture: Picture) -> str:
    """The drawing in the DOT language; the theme "auto" is light here."""
    return "\n".join(_Dot(picture).lines()) + "\n"


class _Dot:
    def __init__(self, picture: Picture) -> None:
        options = picture.options
        self.picture, self.drawing = picture, picture.drawing
        self.theme: Theme = THEMES["light" if options.theme == "auto" else options.theme]
        self.heaviest = max((e.bytes for e in self.drawing.edges), default=0)

    def lines(self) -> Iterator[str]:
        theme, options = self.theme, self.picture.options
        font = "Inter,Helvetica,Arial,sans-serif"
        large = len(self.drawing.leaves) > LARGE or len(self.drawing.edges) > 2 * LARGE
        graph = {
            "rankdir": "LR" if options.direction == "right" else "TB",
            "bgcolor": theme["paper"],
            "fontname": font,
            "fontcolor": theme["ink"],
            "fontsize": "14",
            "labelloc": "t",
            "labeljust": "l",
            "label": self._heading(),
            "nodesep": "0.3",
            "ranksep": "0.35",
            "outputorder": "edgesfirst",
            "compound": "true",
            **(LIMITS if large else {}),
        }  # fmt: skip
        yield "digraph opgraph {"
        yield f"  graph [{_attributes(graph)}]"
        yield f'  node [shape=plain fontname="{font}" fontsize=10 fontcolor="{theme["ink"]}"]'
        yield (
            f'  edge [fontname="{font}" fontsize=8 color="{theme["line"]}" '
            f'fontcolor="{theme["muted"]}" arrowsize=0.6]'
        )
        for child in self.drawing.root.children:
            yield from self._box(child, 1)
        for edge in self.drawing.edges:
            yield self._edge(edge)
        yield "}"

    def _heading(self) -> str:
        from opgraph.views.picture.paint import facts

        profile = self.picture.profile
        name = labels.plain(profile.model.name, 120)
        part = f" · {labels.plain(self.picture.part, 120)}" if self.picture.part else ""
        keys = "   ".join(f"{m.sign} {m.meaning}" for m in self.picture.coloring.legend)
        lines = [
            f"{name}{part}",
            facts(self.picture.costed),
            f"{self.picture.coloring.title}:   {keys}",
        ]
        return _Html("<BR ALIGN='LEFT'/>".join([*map(_html, lines), ""]))

    def _box(self, box: Box, level: int) -> Iterator[str]:
        indent = "  " * level
        if not box.open:
            yield f"{indent}{box.id} [{_attributes(self._leaf(box))}]"
            return
        title = f"<B>{_html(labels.title(box))}</B>  {_html(labels.kind(box))}"
        if labels.badge(box):
            title += f"  <B>{_html(labels.badge(box))}</B>"
        below = _html(labels.headers(box, self.picture.coloring)[0])
        yield f"{indent}subgraph cluster_{box.id} {{"
        attributes = {
            "label": _Html(f"{title}<BR ALIGN='LEFT'/>{below}<BR ALIGN='LEFT'/>"),
            "style": "rounded,filled",
            "fillcolor": self.theme["level1" if level % 2 else "level2"],
            "color": self.theme["border"],
            "fontsize": "11",
            "margin": "12",
            "tooltip": self._tooltip(box),
        }
        yield f"{indent}  graph [{_attributes(attributes)}]"
        for child in box.children:
            yield from self._box(child, level + 1)
        yield f"{indent}}}"

    def _leaf(self, box: Box) -> dict[str, str]:
        found = {"label": _Html(self._table(box)), "tooltip": self._tooltip(box)}
        link = labels.source_link(box, self.picture.options.source_url)
        return {**found, "URL": link} if link else found

    def _table(self, box: Box) -> str:
        """A box as a table: mark, name, class, shape, costs."""
        theme, coloring = self.theme, self.picture.coloring
        mark = coloring.marks.get(box.id)
        tone = theme[mark.tone if mark else "groove"]
        ink = theme[f"{mark.tone}-ink"] if mark else theme["muted"]
        name = _html(labels.title(box))
        badge = labels.badge(box)
        first = f"<B>{name}</B>" + (f"  {_html(badge)}" if badge else "")
        details = " · ".join(p for p in (labels.kind(box), labels.shape(box.shape)) if p)
        costs = labels.figures(box, coloring)
        if costs and (share := labels.share_text(box, coloring)):
            costs += f" · {share}"
        texts = [details, costs, *(labels.plain(line) for line in box.lines)]
        if box.error:
            texts.append(f"✗ {labels.plain(box.error, 120)}")
        texts += [f"graph break: {labels.plain(b.reason, 80)}" for b in box.breaks[:3]]
        rows = "".join(
            f"<TR><TD ALIGN='LEFT'><FONT COLOR='{theme['soft']}'>{_html(t)}</FONT></TD></TR>"
            for t in texts
            if t
        )
        edge = theme["error" if box.error else "seam" if box.kind == "seam" else "border"]
        fill = theme["error-card" if box.error else "card"]
        sign = _html(mark.sign) if mark else " "
        style = "ROUNDED,DASHED" if box.kind in ("stub", "seam", "parameters") else "ROUNDED"
        inner = (f"<TABLE BORDER='0' CELLBORDER='0' CELLSPACING='0' CELLPADDING='1'>"
                 f"<TR><TD ALIGN='LEFT'>{first}</TD></TR>{rows}</TABLE>")  # fmt: skip
        return (
            f"<TABLE BORDER='{2 if box.error or box.kind == 'module' else 1}' CELLBORDER='0' "
            f"CELLSPACING='0' CELLPADDING='3' STYLE='{style}' COLOR='{edge}' BGCOLOR='{fill}'>"
            f"<TR><TD BGCOLOR='{tone}' WIDTH='14'><FONT COLOR='{ink}'><B>{sign}</B></FONT></TD>"
            f"<TD>{inner}</TD></TR></TABLE>"
        )

    def _tooltip(self, box: Box) -> str:
        return labels.tooltip(box, self.picture.coloring)

    def _edge(self, edge: Edge) -> str:
        width = 1.0 + 2.6 * (edge.bytes / self.heaviest) ** 0.4 if self.heaviest else 1.0
        attributes = {
            "label": labels.shape(edge.shape) if edge.kind == "data" else "",
            "penwidth": f"{width:.2f}",
            "tooltip": labels.edge_tooltip(edge, self.drawing),
            **({"style": "dashed"} if edge.kind == "parameter" else {}),
        }
        return f"  {edge.source} -> {edge.target} [{_attributes(attributes)}]"


class _Html(str):
    """An attribute that is an HTML-like label, not a text."""

    __slots__ = ()


def _attributes(values: dict[str, str]) -> str:
    return " ".join(f"{key}={_quoted(value)}" for key, value in values.items())


def _quoted(value: str) -> str:
    """An attribute's value: a quoted string or an HTML-like label."""
    if isinstance(value, _Html):
        return f"<{value}>"
    plain = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + plain.replace("\n", "\\n") + '"'


def _html(text: str) -> str:
    """Text in an HTML-like label."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace('"', "&quot;").replace("'", "&#39;") or " "


# The Mermaid view: the drawing as a flowchart that GitHub, GitLab and many editors show in Markdown. All
# text from a model is written in entity codes where Mermaid or HTML would read more than text in it.


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
    from opgraph.views.picture.paint import facts

    drawing, coloring = picture.drawing, picture.coloring
    yield f"flowchart {'LR' if picture.options.direction == 'right' else 'TB'}"
    # What assistive technology reads; entity codes would be read as they are written.
    yield f"  accTitle: {_SPECIAL.sub(' ', labels.plain(picture.profile.model.name, 120))}"
    yield f"  accDescr: {_SPECIAL.sub(' ', facts(picture.costed))}"
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
        below = labels.headers(box, picture.coloring)[0]
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
    """Text in a quoted label, special characters as entity codes."""
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)
