"""A sweep as a picture, a page or a table file: what needs more than text."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import pairwise
from math import floor, log2
from typing import TYPE_CHECKING, Any

from opgraph.analysis.quantities import quantities
from opgraph.analysis.scaling.sweep import Size, SweepPoint, SweepRecord
from opgraph.record.errors import MissingDependency, RenderError
from opgraph.views.picture import fonts
from opgraph.views.picture.scene import DARK, LIGHT
from opgraph.views.text.sweep import spelled, sweep_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOTTED = ("flops", "bytes", "peak_memory", "intensity")

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>{title}</title>
<style>
 body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
        color: #1b1f24; background: #fff }}
 pre {{ overflow-x: auto; font: 13px/1.35 ui-monospace, monospace }}
 svg {{ max-width: 100%; height: auto }}
 @media (prefers-color-scheme: dark) {{ body {{ color: #e9ebef; background: #15181d }} }}
</style>
<h1>{title}</h1>
{picture}
<pre>{text}</pre>
</html>
"""


_HUES = ("blue", "vermilion", "green", "purple", "amber", "pink", "teal", "brown")
_USED = ("paper", "level1", "ink", "soft", "muted", "border", "groove", "line", *_HUES)
"""What of the theme of pictures a plot is drawn in."""


def _dark() -> bytes:
    """The same in the dark theme, for readers who have it: matplotlib writes colours beside each shape."""
    rules = (
        f'[style*="{what}: {LIGHT[name]}"]{{{what}:{DARK[name]}!important}}'
        for name in _USED for what in ("fill", "stroke")
    )  # fmt: skip
    return f"<style>@media (prefers-color-scheme:dark){{{''.join(rules)}}}</style>".encode()


def _hand() -> dict[str, Any]:
    """The typeface and colours of all other pictures, as matplotlib takes them."""
    from cycler import cycler
    from matplotlib import font_manager

    for file in fonts.files():
        font_manager.fontManager.addfont(file)
    return {
        "font.family": [fonts.FAMILY, "DejaVu Sans"], "text.color": LIGHT["ink"],
        "figure.facecolor": LIGHT["paper"], "axes.facecolor": LIGHT["level1"],
        "axes.edgecolor": LIGHT["border"], "axes.labelcolor": LIGHT["soft"], "axes.axisbelow": True,
        "xtick.color": LIGHT["border"], "ytick.color": LIGHT["border"],
        "xtick.labelcolor": LIGHT["muted"], "ytick.labelcolor": LIGHT["muted"],
        "grid.color": LIGHT["groove"], "axes.grid": True, "axes.titlelocation": "left",
        "axes.titlesize": 13, "axes.titlepad": 18, "figure.titlesize": 16,
        "axes.spines.top": False, "axes.spines.right": False, "legend.edgecolor": LIGHT["border"],
        "axes.prop_cycle": cycler(color=[LIGHT[hue] for hue in _HUES]), "lines.linewidth": 2,
    }  # fmt: skip


def svg(sweep: SweepRecord) -> bytes:
    """The plot as SVG, light or dark as its reader is. Raises `MissingDependency` without matplotlib."""
    head, root, rest = _image(sweep, "svg").partition(b"<defs>")
    return head + _dark() + root + rest


def png(sweep: SweepRecord) -> bytes:
    """The plot as PNG. Raises `MissingDependency` without matplotlib."""
    return _image(sweep, "png")


def _image(sweep: SweepRecord, kind: str) -> bytes:
    """The plot as "svg" or "png". Raises `MissingDependency` without matplotlib."""
    try:
        from matplotlib import rc_context
    except ImportError:
        raise MissingDependency("matplotlib", "plot") from None
    out = io.BytesIO()
    # Without the date the same sweep gives the same file.
    with rc_context(_hand()):
        _figure(sweep).savefig(
            out, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {}
        )
    return out.getvalue()


def html(sweep: SweepRecord) -> str:
    """One page with the plot and the text; it needs no network."""
    picture = ""
    if _drawable(sweep):
        picture = svg(sweep).decode("utf-8")
        picture = picture[picture.index("<svg") :]
    return _PAGE.format(title=escape(sweep.title), picture=picture, text=escape(sweep_text(sweep)))


def of_text(result: Any) -> str:
    """One page with what a result says as text."""
    return _PAGE.format(title=escape(result.model), picture="", text=escape(str(result)))


def _drawable(sweep: SweepRecord) -> bool:
    return any(p.error is None for p in sweep.points)


def _figure(sweep: SweepRecord) -> Figure:
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import LogLocator, MaxNLocator, MultipleLocator, NullLocator
    except ImportError:
        raise MissingDependency("matplotlib", "plot") from None
    if not _drawable(sweep):
        raise RenderError("there is no point to plot", hint="--batch-size 1,4,16")
    along = max(sweep.axes, key=lambda option: (option != "dtype", len(sweep.axes[option])))
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    numbers = all(isinstance(p.sizes[along], int) for p in sweep.points)
    figure.suptitle(sweep.title, x=0.01, ha="left")
    shown = ("flops", "latency", "peak_memory", "intensity") if sweep.device else PLOTTED
    drawn = [q for q in quantities(sweep.device) if q.name in shown]
    panels = figure.subplots(2, 2).flat
    for q, panel in zip(drawn, panels, strict=True):
        for label, points in _lines(sweep, along):
            at = [_value(p.sizes[along], i) for i, p in enumerate(points)]
            panel.plot(at, [p.values.get(q.name) for p in points], marker="o", label=label)
            panel.set_xticks(at, [spelled(p.sizes[along]) for p in points])
            for x, bound in _turns(points, at) if numbers else ():
                panel.axvline(x, color=LIGHT["line"], linestyle=":")
                panel.annotate(bound, (x, 1.01), xycoords=("data", "axes fraction"), va="bottom",
                               fontsize="small", color=LIGHT["muted"])  # fmt: skip
            if numbers and max(at) > 8 * min(at) > 0:
                panel.set_xscale("log", base=2)
                panel.set_xticks(at, [spelled(p.sizes[along]) for p in points])
                panel.xaxis.set_minor_locator(NullLocator())
        base, between = (2, (1.0,)) if q.kind == "bytes" else (10, (1.0, 2.0, 5.0))
        panel.set_yscale("log", base=base)
        values = [v for p in sweep.points if (v := p.values.get(q.name))]
        if values and max(values) < 4 * min(values):
            # So near that powers of the base would leave the axis without figures.
            panel.set_yscale("linear")
            step = 2.0 ** floor(log2(max(values) / 4)) if q.kind == "bytes" else 0.0
            panel.yaxis.set_major_locator(MultipleLocator(step) if step else MaxNLocator(6))
        else:
            panel.yaxis.set_major_locator(LogLocator(base, between))
        panel.yaxis.set_minor_locator(NullLocator())
        panel.set_title(q.label)
        panel.set_xlabel(along.replace("_", " "))
        panel.yaxis.set_major_formatter(_formatter(q.format))
        if q.name == "intensity":
            for ridge in sweep.ridges:
                panel.axhline(ridge, color=LIGHT["line"], linestyle="--", label=f"ridge {ridge:g}")
        if panel.get_legend_handles_labels()[1]:
            panel.legend(fontsize="small")
    return figure


def _lines(sweep: SweepRecord, along: str) -> Iterator[tuple[str | None, list[SweepPoint]]]:
    """The points in lines along one option, each with the other sizes as its label."""
    groups: dict[tuple[tuple[str, Size], ...], list[SweepPoint]] = {}
    for point in sweep.points:
        if point.error is None:
            others = tuple((o, s) for o, s in point.sizes.items() if o != along)
            groups.setdefault(others, []).append(point)
    for others, points in groups.items():
        label = ", ".join(f"{o.replace('_', ' ')} {spelled(s)}" for o, s in others)
        yield label or None, points


def _value(size: Size, number: int) -> float:
    """Where a size stands: at its value, or what has none (a dtype, two sides) at its number."""
    return float(size) if isinstance(size, int) else float(number)


def _turns(points: list[SweepPoint], at: Sequence[float]) -> Iterator[tuple[float, str]]:
    """Between which sizes another bound begins (in the middle, as no size between is known), and which."""
    for (before, x), (after, y) in pairwise(zip(points, at, strict=True)):
        if before.bottleneck != after.bottleneck and after.bottleneck is not None:
            yield (x * y) ** 0.5, f"{after.bottleneck} from {y:g} on"


def _formatter(form: Callable[[float], str]) -> Callable[[float, Any], str]:
    return lambda value, _: form(value)
