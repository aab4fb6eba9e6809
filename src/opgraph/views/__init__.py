"""The registry of views. A view is one file in a room below this one, with a function from a result's
record and its own options to text or bytes, and one entry in `_BUILT_IN`; other packages add theirs through
the entry point group `opgraph.views`. Every command and every `save` takes its suffix from here."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from opgraph.options import ON_PAPER, OPTIONS, PRECISION, Stage, names
from opgraph.options.fields import COLORINGS, QUANTIZED
from opgraph.record.errors import RenderError, one_of

__all__ = [
    "Kind",
    "Result",
    "View",
    "choices",
    "heeded",
    "render",
    "view_for",
    "view_named",
    "views",
    "views_of",
]

GROUP = "opgraph.views"

Result = Literal["costed", "comparison", "sweep", "serving", "plan"]
"""What a view shows: a model on a machine, a comparison, a sweep, a model served, or layouts of one."""

Kind = Literal["text", "picture", "page", "file"]

Spelled = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class View:
    """A way of showing a result: its name, the ends of file names that mean it, and where it is
    ("module:function", imported when it is used).

    `heeds` are its own options; `costs` are those of what it is given that change what it shows
    ("hardware", "autocast", "count", "partition", "tensor_parallel", "symbolic" …), and `needs` those that
    it cannot do without. An option that is in neither is refused. `values` are those that an option has
    here, where they are fewer than there are.
    """

    name: str
    suffixes: tuple[str, ...]
    target: str
    heeds: tuple[str, ...] = ()
    costs: tuple[str, ...] = ("hardware", "count", "run", *PRECISION)
    needs: tuple[str, ...] = ()
    result: Result = "costed"
    kind: Kind = "file"
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    says: str = ""

    def load(self) -> Callable[..., str | bytes]:
        """The function that draws it."""
        found: Callable[..., str | bytes] = _named(self.target)
        return found

    def remarks(self, record: Any) -> list[str]:
        """What it leaves out of a result, a line each."""
        return list(_named(self.says)(record)) if self.says else []

    def check(self, options: Mapping[str, Any], asked: Collection[str] = ()) -> dict[str, Any]:
        """Its own options with their values in their one form. `asked` is what the result was costed with.

        Raises `RenderError` for an option of either that the view would not heed, and for one that it
        cannot do without; `InputError` for a value that an option cannot have.
        """
        for name in options:
            if name not in self.heeds:
                known = ", ".join(self.heeds)
                raise RenderError(f"{self.name} heeds no option {name!r}",
                                  hint=f"one of {known}" if known else "it takes none")  # fmt: skip
        for name in asked:
            if name not in self.costs:
                raise RenderError(f"{name} changes nothing of {self.name}",
                                  hint="save what was costed without it")  # fmt: skip
        plain = OPTIONS.keys() - {"against"}  # in Python a result, not its name
        found = {n: OPTIONS[n].check(v) if n in plain else v for n, v in options.items()}
        self.check_values(found, asked)
        return found

    def check_values(
        self, options: Mapping[str, Any], asked: Collection[str], spell: Spelled = str
    ) -> None:
        """Raise `RenderError` for a value of an option that this view does not have, or that is of a time
        that no device was `asked` for, and where what it needs is not there."""
        for name, value in options.items():
            known = self.values.get(name, (value,))
            if value is not None and value not in known:
                raise RenderError(f"{self.name} has no {spell(name)} {value}",
                                  hint=f"one of {', '.join(known)}")  # fmt: skip
        timed = [f"{spell(n)} {options[n]}" for n in ("sort", "color_by")
                 if options.get(n) in ("time", "host")]  # fmt: skip
        for what in (*timed, *([self.name] if "hardware" in self.needs else ())):
            if "hardware" not in asked:
                raise RenderError(f"{what} is of the time on a device",
                                  hint="--hardware h100-sxm (opgraph hardware lists them)")  # fmt: skip


def _named(target: str) -> Callable[..., Any]:
    """The function that "module:function" names."""
    module, _, function = target.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


_PICTURE = ("depth", "fold", "module", "start", "end", "around", "context", "parameters", "color_by",
            "direction")  # fmt: skip
_DRAWN = ("medium", "caption", "header", "numbers", "theme")
_PLAIN = ("hardware", "count", "partition", *PRECISION)
_EVERY = (*_PLAIN, "run")
_TIMED = (*_EVERY, "network", "devices_per_node")
_LAID = (*_TIMED, "price_per_hour", *ON_PAPER)
_COLORS = tuple(c for c in COLORINGS if c != "intensity")


def _picture(name: str, *suffixes: str, more: tuple[str, ...] = ()) -> View:
    target = f"opgraph.views.picture.formats:{name}"
    return View(name, suffixes, target, (*_PICTURE, *more), _TIMED, kind="picture",
                values={"color_by": _COLORS})  # fmt: skip


def _roofline(form: str) -> View:
    name = "roofline" if form == "svg" else f"roofline-{form}"
    target = f"opgraph.views.picture.formats:roofline_{form}"
    return View(
        name, (f"roofline.{form}",), target, ("theme",), _PLAIN, ("hardware",), kind="picture"
    )


def _workload(name: str, suffix: str) -> View:
    """A format of a simulator of accelerators."""
    room = "opgraph.views.files.workloads"
    return View(name, (suffix,), f"{room}:to_{name.replace('-', '_')}", (), PRECISION,
                says=f"{room}:remarks")  # fmt: skip


def _sweep(name: str, suffix: str, target: str, kind: Kind = "file", *more: str) -> View:
    costs = ("hardware", "run", *QUANTIZED, *more)
    return View(name, (suffix,), f"opgraph.views.{target}", (), costs, result="sweep", kind=kind)


def _serving(name: str, suffix: str, target: str, kind: Kind = "file") -> View:
    costs = ("hardware", *QUANTIZED)
    heeds = ("theme",) if kind == "picture" else ()
    return View(name, (suffix,), f"opgraph.views.{target}", heeds, costs, ("hardware",),
                result="serving", kind=kind)  # fmt: skip


def _plan(name: str, suffix: str, target: str, kind: Kind = "file") -> View:
    costs = ("network", "top", *QUANTIZED)
    return View(name, (suffix,), f"opgraph.views.{target}", (), costs, result="plan", kind=kind)


_BUILT_IN = (
    View("table", (".txt",), "opgraph.views.text.table:table",
         ("depth", "sort", "top", "show_shapes", "fold", "verbose", "memory", "by"), _LAID, kind="text"),
    View("markdown", (".md", ".markdown"), "opgraph.views.text.markdown:to_markdown", ("verbose",),
         kind="text"),
    View("json", (".json",), "opgraph.views.files.json:to_json", ("memory",), _LAID),
    View("html", (".html", ".htm"), "opgraph.views.page.html:html", ("against",),
         (*_TIMED, "price_per_hour"), kind="page"),
    View("csv", (".csv",), "opgraph.views.files.records:to_csv", (), _TIMED),
    View("parquet", (".parquet",), "opgraph.views.files.records:to_parquet", (), _TIMED),
    View("graphml", (".graphml",), "opgraph.views.files.graphs:to_graphml"),
    View("model-explorer", (".model-explorer.json",),
         "opgraph.views.files.graphs:to_model_explorer"),
    View("model-explorer-overlay", (".overlay.json",),
         "opgraph.views.files.graphs:to_overlay", ("color_by",), ("count", "run", *PRECISION),
         values={"color_by": ("flops", "bytes", "intensity")}),
    View("trace", (".trace.json",), "opgraph.views.files.trace:to_trace",
         costs=("hardware", "run", *PRECISION)),
    _workload("scalesim", ".scalesim.csv"),
    _workload("timeloop", ".timeloop.zip"),
    _workload("zigzag", ".zigzag.yaml"),
    _workload("maestro", ".maestro.m"),
    _workload("onnx-shapes", ".shapes.onnx"),
    View("chakra", (".chakra.et", ".et"), "opgraph.views.files.chakra:to_chakra",
         costs=("hardware", "run", *PRECISION)),
    _roofline("svg"),
    _roofline("png"),
    _picture("svg", ".svg", more=(*_DRAWN, "source_url")),
    _picture("pdf", ".pdf", more=(*_DRAWN, "source_url", "paginate")),
    _picture("png", ".png", more=(*_DRAWN, "dpi")),
    _picture("dot", ".dot", ".gv", more=("theme", "source_url")),
    _picture("mermaid", ".mmd", ".mermaid"),
    View("comparison", (".txt",), "opgraph.views.text.compare:comparison_text", ("by", "depth"),
         result="comparison", kind="text", values={"by": ("module", "op", "node")}),
    View("comparison-markdown", (".md",), "opgraph.views.text.compare:comparison_markdown", ("depth",),
         result="comparison", kind="text"),
    View("comparison-json", (".json",), "opgraph.views.files.json:plain", result="comparison"),
    View("comparison-csv", (".csv",), "opgraph.views.tables:rows_csv", result="comparison"),
    _sweep("sweep-markdown", ".md", "tables:rows_markdown", "text"),
    _sweep("sweep", ".txt", "text.sweep:sweep_text", "text", "symbolic"),
    _sweep("sweep-csv", ".csv", "tables:rows_csv"),
    _sweep("sweep-json", ".json", "files.json:sweep_json", "file", "symbolic"),
    _sweep("sweep-parquet", ".parquet", "tables:rows_parquet"),
    _sweep("sweep-html", ".html", "page.sweep:html", "page"),
    _sweep("sweep-svg", ".svg", "page.sweep:svg", "picture"),
    _sweep("sweep-png", ".png", "page.sweep:png", "picture"),
    _serving("serving", ".txt", "text.serving:serving_text", "text"),
    _serving("serving-markdown", ".md", "tables:rows_markdown", "text"),
    _serving("serving-csv", ".csv", "tables:rows_csv"),
    _serving("serving-json", ".json", "files.json:plain"),
    _serving("serving-svg", ".svg", "picture.formats:curve_svg", "picture"),
    _serving("serving-png", ".png", "picture.formats:curve_png", "picture"),
    _plan("plan", ".txt", "text.plan:plan_text", "text"),
    _plan("plan-markdown", ".md", "tables:rows_markdown", "text"),
    _plan("plan-csv", ".csv", "tables:rows_csv"),
    _plan("plan-json", ".json", "files.json:plain"),
    _plan("plan-html", ".html", "page.sweep:of_text", "page"),
)  # fmt: skip

_NAMED = {v.name: v for v in _BUILT_IN}


@cache
def views() -> dict[str, View]:
    """All views by name, those of other packages as well."""
    from opgraph.record.versions import plug_ins

    found = dict(_NAMED)
    for point in plug_ins(GROUP):
        view = point.load()
        found.setdefault(view.name, view)
    return found


def views_of(result: Result) -> list[View]:
    """The views of one kind of result."""
    return [v for v in views().values() if v.result == result]


def heeded(result: Result, *stages: Stage, kind: Kind | None = None) -> tuple[str, ...]:
    """The options of some stages that built-in views of a result heed (of one `kind`, or of all): what a
    command that writes them takes."""
    which = [v for v in _BUILT_IN if v.result == result and kind in (None, v.kind)]
    found = {n for v in which for n in (*v.heeds, *v.costs)}
    return tuple(n for n in names(*stages) if n in found - {"against"})


def choices(result: Result, kind: Kind | None = None) -> dict[str, tuple[str, ...]]:
    """The values that an option has for built-in views of a result, of those that not all views know."""
    which = [v for v in _BUILT_IN if v.result == result and kind in (None, v.kind)]
    limited = {n for v in which for n in v.values}
    found = {n: [v.values.get(n) for v in which if n in v.heeds] for n in limited}
    return {n: tuple(dict.fromkeys(chain(*filter(None, f)))) for n, f in found.items() if all(f)}


def render(name: str, record: Any, **options: Any) -> str | bytes:
    """Draw a result with the view of that name.

    Raises `RenderError` when there is no such view.
    """
    return view_named(name).load()(record, **options)


def view_named(name: str) -> View:
    """The view of that name.

    Raises `RenderError` when there is none.
    """
    # Asking what is installed takes a tenth of the time that showing a saved profile does.
    view = _NAMED.get(name) or views().get(name)
    if view is None:
        raise RenderError(f"there is no view {name!r}", hint=f"one of {', '.join(views())}")
    return view


def view_for(
    path: str | os.PathLike[str], kind: Kind | None = None, *, result: Result = "costed"
) -> View:
    """The view that a file's suffix means, the longest suffix first (".trace.json" before ".json"), of
    one `kind` or of all.

    Raises `RenderError` when no such view writes such files.
    """
    if Path(path).is_dir():
        raise RenderError(f"{path} is a folder", hint="name a file in it")
    name, suffix = Path(path).name.lower(), Path(path).suffix.lower()
    known = [(s, v) for v in views_of(result) if kind in (None, v.kind) for s in v.suffixes]
    found = [pair for pair in known if name.endswith(pair[0])]
    if found:
        return max(found, key=lambda pair: len(pair[0]))[1]
    what = {"picture": "picture", "page": "page"}.get(kind or "", "view")
    raise RenderError(f"no {what} is written to {suffix or 'files without a suffix'}",
                      hint=one_of(suffix, (s for s, _ in known)))  # fmt: skip
