"""The interactive page: one HTML file with the profile, the program and its letters inside, that asks
nothing of any network. The program is built from `viewer/`; what it shows is in the data alone."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from opgraph.analysis.costed import CostedRecord
from opgraph.record.files import dumps
from opgraph.views.page.data import page_data

_SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="opgraph">Reading the profile of {title} … If this line stays, the file is not whole, or its script
may not run, or the browser is older than 2023; nothing is loaded from anywhere.</div>
<script type="application/octet-stream" id="opgraph-data">{data}</script>
<script>{script}</script>
</body>
</html>
"""
_STYLE = "html,body{height:100%;margin:0;font-family:sans-serif}#opgraph{height:100%}"
_ESCAPES: dict[str, str | int | None] = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def html(costed: CostedRecord, *, against: CostedRecord | None = None) -> str:
    """The page for a model, as text. With `against`, what differs from that one is shown; the device
    that it is costed on is chosen at first."""
    data = packed(page_data(costed, against=against))
    return closed(costed.profile.model.name, data, bundle() + "opgraph.page();", _STYLE)


def closed(title: str, data: str, script: str, style: str) -> str:
    """A page with its data (from `packed`), its program and its style inside, which may load nothing
    else."""
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "img-src blob: data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return _SHELL.format(
        policy=policy,
        title=markup(title),
        style=style,
        data=data,
        script=script,
    )


def packed(data: Any) -> str:
    """JSON, deflated and in base 64: a fifth of its size, in characters that are no markup."""
    text = dumps(data, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8"), 6)).decode()


def embed(data: Any) -> str:
    """JSON that can stand inside a script element: nothing in it can end the element or begin markup."""
    text = dumps(data, separators=(",", ":"))
    return text.translate(str.maketrans(_ESCAPES))


@cache
def bundle() -> str:
    """The page's program, as `viewer/` builds it: a script that defines `opgraph`."""
    return files("opgraph.views.page").joinpath("assets/viewer.js").read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """The hash by which a Content-Security-Policy knows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def markup(text: str) -> str:
    """Text as HTML shows it, a line of it, without control characters."""
    import html as standard

    return standard.escape("".join(c if c.isprintable() else "\ufffd" for c in text)[:200])


# The page of an atlas: a table to search and sort, and a plot of any two figures with its Pareto front.


COLUMNS = ("name", "source", "family", "task", "parameters", "flops", "bytes", "peak_memory",
           "intensity", "inputs", "licence", "spec")  # fmt: skip
"""The columns of an atlas that its page has, beside the latency on each device."""


def atlas_html(rows: Sequence[Mapping[str, Any]], latencies: Mapping[str, str]) -> str:
    """The page for models (rows with `COLUMNS`); `latencies` has the column of seconds of each device."""
    names = [*COLUMNS, *latencies.values()]
    data = {
        "columns": names,
        "devices": list(latencies),
        "rows": [[_short(row.get(name)) for name in names] for row in rows],
    }
    assets = files("opgraph.views.page").joinpath("assets")
    script = assets.joinpath("atlas.js").read_text(encoding="utf-8")
    style = assets.joinpath("atlas.css").read_text(encoding="utf-8")
    return closed("opgraph atlas", packed(data), script, style)


def _short(value: Any) -> Any:
    """A figure with the digits that a page shows."""
    return float(f"{value:.4g}") if isinstance(value, float) else value
