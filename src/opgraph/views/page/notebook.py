"""A profile as the output of a notebook's cell: the interactive page as a widget, and for readers without
a kernel the same page in a frame, below a table that needs no script at all."""

from __future__ import annotations

import html as standard
from functools import cache
from importlib.util import find_spec
from typing import Any

from opgraph.analysis.costed import CostedRecord
from opgraph.record import units
from opgraph.record.errors import MissingDependency
from opgraph.views import view_named
from opgraph.views.page.data import page_data
from opgraph.views.page.html import bundle, embed, html
from opgraph.views.text.table import Row, cells_of, columns_of, rows, table

LARGEST_FRAME = 900_000
"""Bytes of the page in a frame, at most: a notebook with a larger output is a burden to everybody."""

_MODULE = "\nexport default { render: opgraph.render };\n"


def widget(costed: CostedRecord, *, height: int = 576, **options: Any) -> Any:
    """The page as a widget of `height` pixels; `selected` is what is chosen in it, or None.

    Options are those of the page. Raises `MissingDependency` without anywidget.
    """
    if find_spec("anywidget") is None:
        raise MissingDependency("anywidget", "notebook")
    given = view_named("html").check(options, costed.asked)
    return _widget_class()(data=embed(page_data(costed, **given)), height=height)


def mimebundle(costed: CostedRecord, **_: Any) -> Any:
    """What a notebook shows: the widget where there is one, HTML, and text."""
    plain = {"text/plain": table(costed), "text/html": static(costed)}
    if find_spec("anywidget") is None:
        return plain
    shown = widget(costed)._repr_mimebundle_()
    if shown is None:
        return plain
    if isinstance(shown, tuple):
        return ({**shown[0], **plain}, shown[1])
    return {**shown, **plain}


def static(costed: CostedRecord, height: int = 640) -> str:
    """HTML without a kernel: the page in a frame if it is small enough, and a table without any script."""
    page = html(costed)
    frame = ""
    if len(page.encode()) <= LARGEST_FRAME:
        frame = (
            f'<iframe title="{_text(costed.profile.model.name)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{height}px;border:1px solid #d9dbd6;border-radius:8px" '
            f'srcdoc="{standard.escape(page)}"></iframe>'
        )
    return f"<div>{frame}<details{'' if frame else ' open'}>{_table(costed)}</details></div>"


def _table(costed: CostedRecord) -> str:
    t = costed.totals
    title = (
        f"<b>{_text(costed.profile.model.name)}</b>: {units.count(t.parameters)} parameters, "
        f"{units.flops(t.flops)}, {units.size(t.cost.bytes)} moved, {units.plural(t.nodes, 'node')}"
    )
    left_out = {"output", "share_bar", "bytes_bar", "macs"}
    columns = [c for c in columns_of(costed) if c.key not in left_out]
    body = "".join(_row(row, [c.key for c in columns]) for row in rows(costed, 2)[:200])
    head = "".join(f"<th>{name}</th>" for name in ("Module", *(c.title for c in columns)))
    return f"<summary>{title}</summary><table><tr>{head}</tr>{body}</table>"


def _row(row: Row, columns: list[str]) -> str:
    times = f" × {row.count}" if row.count > 1 else ""
    shown = cells_of(row)
    cells = (
        "&nbsp;" * 2 * row.depth + _text(row.label) + times,
        *(_text(shown[c]) for c in columns),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _text(text: str) -> str:
    return standard.escape("".join(c if c.isprintable() else "\ufffd" for c in text)[:200])


@cache
def _widget_class() -> Any:
    """The widget's class, made when it is first needed, so that importing opgraph asks for no notebook."""
    import anywidget
    import traitlets

    class ProfileWidget(anywidget.AnyWidget):
        """The interactive page in a notebook."""

        _esm = bundle() + _MODULE
        data = traitlets.Unicode("{}").tag(sync=True)
        height = traitlets.Int(576).tag(sync=True)
        selected = traitlets.Dict(default_value=None, allow_none=True).tag(sync=True)

    return ProfileWidget
