"""A profile as the output of a notebook's cell: a picture, which needs no script and no trust, and behind
it the interactive page in a frame and a table; and the page as a widget, for who asks for one."""

from __future__ import annotations

import base64
import html as standard
from functools import cache
from importlib.util import find_spec
from typing import Any

from opgraph.analysis.costed import CostedRecord
from opgraph.record import units
from opgraph.record.errors import MissingDependency
from opgraph.views import view_named
from opgraph.views.page.data import page_data
from opgraph.views.page.html import bundle, embed, html, markup
from opgraph.views.picture.picture import picture
from opgraph.views.picture.svg import to_svg
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


def mimebundle(costed: CostedRecord, **_: Any) -> dict[str, str]:
    """What a notebook shows: HTML that begins with a picture, and text. No widget, whose state would be
    saved with the notebook and which only a kernel draws: that is `widget`."""
    return {"text/plain": table(costed), "text/html": static(costed)}


def static(costed: CostedRecord, height: int = 640) -> str:
    """HTML without a kernel: a picture first; behind it the page in a frame if it is small enough, and a
    table without any script."""
    page, image = html(costed), _picture(costed)
    frame = ""
    if len(page.encode()) + len(image) <= LARGEST_FRAME:
        frame = (
            "<details><summary>The interactive page</summary>"
            f'<iframe title="{markup(costed.profile.model.name)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{height}px;border:1px solid #d9dbd6;border-radius:8px" '
            f'srcdoc="{standard.escape(page)}"></iframe></details>'
        )
    return f"<div>{image}{frame}<details>{_table(costed)}</details></div>"


def _picture(costed: CostedRecord) -> str:
    """The graph as an image within the HTML, light: what is around it cannot be known."""
    svg = to_svg(picture(costed, medium="readme").scene, "light")
    name = f"Operator graph of {markup(costed.profile.model.name)}"
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{name}" style="max-width:100%" src="data:image/svg+xml;base64,{data}">'


def _table(costed: CostedRecord) -> str:
    t = costed.totals
    title = (
        f"<b>{markup(costed.profile.model.name)}</b>: {units.count(t.parameters)} parameters, "
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
        "&nbsp;" * 2 * row.depth + markup(row.label) + times,
        *(markup(shown[c]) for c in columns),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


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
