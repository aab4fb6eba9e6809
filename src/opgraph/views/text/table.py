"""The table view: the hierarchy with its costs, the summary, and the bottleneck analysis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from opgraph.analysis.cost.totals import Cost
from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.nodes import operator
from opgraph.analysis.tree import Item, ItemKind, Metric, Tree
from opgraph.record import units
from opgraph.record.errors import RenderError
from opgraph.record.graph import Shape
from opgraph.record.kinds import Bound
from opgraph.views.headline import headline
from opgraph.views.terminal import Cut, bar, bound, draw, fit, fit_class, fit_tail, safe
from opgraph.views.text.summary import bottleneck_analysis, remarks, summary

# The rows of the hierarchical table: the tree with repeats folded, and below the modules in a module the
# operators that stand directly in it, so that the rows below a module always add up to it.

FITTING_ROWS = 42


@dataclass(frozen=True, slots=True)
class Row:
    """One line: a module with all that is below it, or operators of one kind that stand in a module.

    `cost`, `parameters` and `seconds` are of all `times` repetitions together; `count` says how many
    members the fold has that this is, or how many operators the line stands for in each repetition.
    `share` is that of the whole, by the metric that the rows were asked for.
    """

    path: str
    label: str
    cls: str
    depth: int
    count: int
    times: int
    parameters: int
    cost: Cost
    share: float
    seconds: float | None = None
    measured: float | None = None
    host: float | None = None
    output: Shape | None = None
    bottleneck: Bound | None = None
    is_module: bool = True

    @property
    def flops_each(self) -> float:
        """The FLOPs of one repetition."""
        return self.cost.flops / self.times


SORT_KEYS: dict[str, Callable[[Row], float | str]] = {
    "flops": lambda r: r.cost.flops,
    "macs": lambda r: r.cost.macs,
    "bytes": lambda r: r.cost.bytes,
    "parameters": lambda r: r.parameters,
    "time": lambda r: r.seconds or 0.0,
    "host": lambda r: r.host or 0.0,
    "measured": lambda r: r.measured or 0.0,
    "intensity": lambda r: r.cost.arithmetic_intensity or 0.0,
    "name": lambda r: r.path,
    "class": lambda r: r.cls,
    "params": lambda r: r.parameters,
    "each": lambda r: r.flops_each,
    "times": lambda r: r.times,
    "share": lambda r: r.share,
    "flops/byte": lambda r: r.cost.arithmetic_intensity or 0.0,
    "bound": lambda r: r.bottleneck or "",
}
"""By what rows are sorted: the costliest first, texts by the alphabet."""
_TEXTS = ("name", "class", "bound")


METRICS = {
    "flops": Metric.FLOPS, "macs": Metric.FLOPS, "bytes": Metric.BYTES, "time": Metric.SECONDS,
    "host": Metric.HOST, "parameters": Metric.PARAMETERS, "measured": Metric.MEASURED,
}  # fmt: skip
"""What rows have their share of when they are sorted so."""


def rows(
    costed: CostedRecord,
    depth: int | None = None,
    *,
    fold: bool = True,
    metric: Metric | None = None,
) -> list[Row]:
    """The rows down to a depth below the root, in order of execution; without one, down to the deepest
    level at which the table still fits a page. Shares are of `metric`, or of the usual one."""
    tree = costed.tree if fold else costed.tree_of(fold=False)
    by = costed.metric if metric is None else metric
    lines = list(_lines(tree, tree.root, by))
    deepest = _fitting(lines) if depth is None else depth
    return [_row(tree, line, by) for line in lines if line.depth <= deepest]


Grouping = Literal["module", "op", "class", "node"]
_HEADS: dict[Grouping, str] = {
    "module": "Module",
    "op": "Operator",
    "class": "Class",
    "node": "Node",
}


def grouped(
    costed: CostedRecord, by: Grouping, *, fold: bool = True, metric: Metric | None = None
) -> list[Row]:
    """A row for each operator, each class of modules (by the innermost around a node), or each node, with
    equal repetitions as one; the largest share first. Of a class its modules are counted, once a call."""
    tree = costed.tree if fold else costed.tree_of(fold=False)
    groups: dict[str, list[Item]] = {}
    counted: dict[str, dict[int, Item]] = {}
    for leaf, module in _leaves(tree, tree.root, tree.root):
        node = tree.nodes[leaf.member.node - 1]
        names = {"op": operator(node), "class": module.member.cls, "node": tree.title(leaf)}
        if node.kind not in ("input", "output", "control"):
            groups.setdefault(names[by], []).append(leaf)
            one = module if by == "class" else leaf
            counted.setdefault(names[by], {})[one.id] = one
    metric = metric or costed.metric
    found = []
    for name, items in groups.items():
        row = _row(tree, _Line(name, 0, tuple(items), by == "node"), metric)
        count = sum(tree.repetitions(item) for item in counted[name].values())
        op = operator(tree.nodes[items[0].member.node - 1])
        several = {"count": count, "times": 1, "cls": ""}
        found.append(replace(row, path=name, **({"cls": op} if by == "node" else several)))
    found = [row for row in found if row.share or row.cost.bytes or row.parameters]
    return sorted(found, key=lambda r: (-r.share, -r.cost.bytes))


def _leaves(tree: Tree, item: Item, module: Item) -> Iterator[tuple[Item, Item]]:
    """The nodes below an item, those of a fold once, each with the module around it."""
    for child in item.member.children:
        around = child if child.member.cls else module
        if child.member.node:
            yield child, around
        else:
            yield from _leaves(tree, child, around)


class _Line(NamedTuple):
    """What a row stands for: items of one module or operator that stand in one parent, or a module that
    never runs but has parameters."""

    label: str
    depth: int
    items: tuple[Item, ...]
    is_module: bool = True
    idle: tuple[str, str, int] = ("", "", 0)


def _fitting(lines: list[_Line]) -> int:
    """The deepest level whose rows fit a page, at least one."""
    levels = Counter(line.depth for line in lines)
    total = accumulate(levels[depth] for depth in range(len(levels)))
    return max(1, sum(count <= FITTING_ROWS for count in total) - 1)


def _lines(tree: Tree, item: Item, metric: Metric) -> Iterator[_Line]:
    """An item and what is below it; what has no parameters, moves no data and has no share is left out."""
    yield _Line(item.label or item.cls, item.level, (item,))
    modules: dict[object, list[Item]] = {}
    operators: dict[str, list[Item]] = {}
    for child in item.member.children:
        one = child.member
        if not (
            tree.cost(child).bytes or any(tree.total(m, child) for m in (Metric.PARAMETERS, metric))
        ):
            continue
        if one.node and not one.path:
            operators.setdefault(operator(tree.nodes[one.node - 1]), []).append(child)
        else:
            several = one.node and child.kind is not ItemKind.FOLD
            modules.setdefault(one.path if several else child.id, []).append(child)
    for calls in modules.values():
        if len(calls) == 1:
            yield from _lines(tree, calls[0], metric)
        else:
            yield _Line(calls[0].label, item.level + 1, tuple(calls))
    for name, found in operators.items():
        yield _Line(name, item.level + 1, tuple(found), is_module=False)
    for idle in _idle(tree, item.member):
        yield _Line(idle[0], item.level + 1, (), idle=idle)


def _idle(tree: Tree, item: Item) -> Iterator[tuple[str, str, int]]:
    """The modules in an item that never run but have parameters: name, class, and how many parameters
    they have in all repetitions."""
    if not tree.idle:
        return
    owners = {each.id: each.path for each in tree.alike(item)}
    found: dict[tuple[str, str], int] = {}
    for idle in tree.idle:
        if idle.owner in owners:
            path = owners[idle.owner]
            own = idle.path == path
            name = "its own" if own else idle.path.removeprefix(f"{path}." if path else "")
            found[name, idle.cls] = found.get((name, idle.cls), 0) + idle.parameters
    yield from ((name, cls, count) for (name, cls), count in found.items())


def _row(tree: Tree, line: _Line, metric: Metric) -> Row:
    if not line.items:
        name, cls, parameters = line.idle
        whole = tree.total(metric, tree.root) if metric is Metric.PARAMETERS else 0.0
        share = parameters / whole if whole else 0.0
        return Row(name, name, cls, line.depth, 1, 1, parameters, Cost(), share)
    items, first = line.items, line.items[0]
    cost = sum((tree.cost(item) for item in items), Cost())
    single = len(items) == 1 and line.is_module
    output = tree.output(first) if line.is_module else None
    return Row(
        path=tree.title(first) if line.is_module else _below(tree, first, line.label),
        label=line.label,
        cls=first.cls if first is not tree.root else "",
        depth=line.depth,
        count=first.count if single else sum(item.count for item in items),
        times=tree.repetitions(first) if single else first.times,
        parameters=int(sum(tree.total(Metric.PARAMETERS, item) for item in items)),
        cost=cost,
        share=sum(tree.share(metric, item).share for item in items),
        seconds=sum(tree.total(Metric.SECONDS, i) for i in items) if tree.seconds else None,
        measured=sum(tree.total(Metric.MEASURED, i) for i in items) if tree.measured else None,
        host=sum(tree.total(Metric.HOST, i) for i in items) if tree.host else None,
        output=None if output is None else output.shape,
        bottleneck=tree.bound(*items),
        is_module=line.is_module,
    )


def _below(tree: Tree, item: Item, label: str) -> str:
    above = tree.parent(item)
    path = tree.title(above) if above else ""
    return f"{path}.{label}" if path else label


def table(
    costed: CostedRecord,
    *,
    color: bool = False,
    width: int = 120,
    depth: int | None = None,
    sort: str | None = None,
    top: int | None = None,
    show_shapes: bool = False,
    fold: bool = True,
    verbose: bool = False,
    memory: bool = False,
    by: Grouping = "module",
) -> str:
    """The profile as text in three sections, and more where they are asked for.

    A row is a module in the tree of all, or `by` "op", "class" or "node" all that are alike together.
    `depth` is how many levels below the root are shown (chosen to fit about forty rows by default);
    `sort` orders rows by "flops", "macs", "bytes", "parameters", "time", "host", "measured", "intensity" or
    "name" instead of by execution, and `top` keeps that many. Shares are of what rows are sorted by, else
    of the measured time, of the predicted time on a device, and of FLOPs without either. `fold` draws equal
    neighbours once. `width` is in characters. `memory` draws the live memory over the run. On a device, or
    over several, what it takes there stands below, and where a partition was asked for, what that saves.
    """
    metric = METRICS.get(sort or "", costed.metric)
    if metric is Metric.MEASURED:
        costed.named_measurement()
    found = costed.prediction
    if metric is Metric.HOST and found is not None and found.seconds > found.host_seconds == 0:
        why = "all is launched at once" if found.run.recorded else "on a CPU it is the device, too"
        raise RenderError(f"the host takes no time of its own: {why}", hint="--sort time")
    if by != "module" and depth is not None:
        raise RenderError(f"--by {by} has no levels", hint="leave out --depth")
    listed = (
        rows(costed, depth, fold=fold, metric=metric)
        if by == "module"
        else grouped(costed, by, fold=fold, metric=metric)
    )
    hidden = 0
    if sort is not None:
        listed = sorted(listed, key=SORT_KEYS[sort], reverse=sort not in _TEXTS)
    if top is not None:
        hidden = max(0, len(listed) - top)
        listed = listed[:top]
    flat = sort is not None or by != "module"
    hierarchy, *left_out = _hierarchy(
        costed, listed, metric, show_shapes=show_shapes, flat=flat, width=width, by=by
    )
    parts: list[RenderableType] = [
        hierarchy,
        *([f"  … and {units.plural(hidden, 'more row')}"] if hidden else []),
        *left_out,
        "",
        summary(costed, verbose=verbose),
        "",
        bottleneck_analysis(costed),
    ]
    if costed.asked or memory or costed.ran is not None:
        from opgraph.views.text.device import sections

        parts += sections(costed, memory=memory, width=width)
    parts += [*remarks(costed), "", *filter(None, headline(costed))]
    return draw(parts, width, color)


def _hierarchy(
    costed: CostedRecord,
    listed: list[Row],
    metric: Metric,
    *,
    show_shapes: bool,
    flat: bool,
    width: int,
    by: Grouping,
) -> Iterator[RenderableType]:
    """The rows with the columns for which there is room, and which others there are."""
    lengths = [_name(row, flat).cell_len for row in listed]
    cut = Cut(row.path for row in listed if row.path) if flat else None
    told = cut.least + max(len(_counted(row)) for row in listed) if cut and listed else 0
    least = max(_NARROWEST, min(told, width // 2))  # in which names are told apart
    repeats = any(row.times > 1 for row in listed)
    missing = {"output": not show_shapes, "each": not repeats, "times": not repeats,
               "class": by in ("op", "class")}  # fmt: skip
    shown = [_cells(row, costed.totals.bytes) for row in listed]
    known = [c for c in columns_of(costed, metric) if not missing.get(c.key)]
    if by == "node":  # whose names end in the operator
        known = [c._replace(title="Operator", spared=2) if c.key == "class" else c for c in known]
    every = columns = [_fitted(c, shown) for c in known]

    def left() -> int:
        return width - sum(c.width + 1 for c in columns)

    def longest(most: int) -> int:
        """Of the names, which have the room of a class, of so many characters, where there is none."""
        more = sum(1 + min(most, c.width) for c in columns if c.key == "class")
        rows = zip(listed, lengths, strict=True)
        return max((n - (0 if row.cls else more) for row, n in rows), default=0)

    def given(column: _Column) -> int:
        classes = [c.width for c in columns if c.key == "class"] if column.spared < 3 else []
        return sum(max(0, width - _SHORTEST) for width in classes)

    for column in sorted(columns, key=lambda c: -c.spared):
        # A path is cut at dots; of a class enough is left for the bar, and it is the last to go.
        most = 2 * width // 5 if flat and column.spared == 3 else width // 2
        room = min(
            longest(_SHORTEST if column.spared < 3 else width),
            least if column.spared < 3 else max(least, most),
        )
        if column.spared and left() + given(column) < room:
            columns = [c for c in columns if c is not column]
    # A class gives way to names, which tell rows apart.
    columns = [
        c._replace(width=max(min(c.width, _SHORTEST), c.width - max(0, longest(width) - left())))
        if c.key == "class"
        else c
        for c in columns
    ]
    classes = [c for c in columns if c.key == "class"]
    figures = [c for c in columns if c not in classes]
    room = max(len(_HEADS[by]), min(max(_NARROWEST, left()), longest(width)))
    wide = room + sum(1 + c.width for c in classes)
    result = Table(
        box=box.SIMPLE_HEAD, show_edge=False, padding=0, header_style="bold",
        title=safe(costed.profile.model.name), title_justify="left", title_style="bold",
    )  # fmt: skip
    heads = " ".join([_HEADS[by].ljust(room), *(c.title for c in classes)])
    result.add_column(heads, no_wrap=True, min_width=wide, max_width=wide)
    for column in figures:
        result.add_column(column.title, justify=column.justify, no_wrap=True,
                          min_width=column.width, max_width=column.width)  # fmt: skip
    for row, cells in zip(listed, shown, strict=True):
        called = _name(row, flat, room if row.cls else wide, cut)
        for column in classes if row.cls else ():
            called.pad_right(room + 1 - called.cell_len)
            called.append(fit_class(row.cls, column.width), style="dim")
        result.add_row(called, *(cells[c.key] for c in figures))
    yield result
    kept = {c.key for c in columns}
    if gone := ", ".join(c.title for c in every if c.title and c.key not in kept):
        columns = every
        needed = longest(width) + sum(c.width + 1 for c in every)
        yield Text(f"Left out: {gone} (COLUMNS={needed} has all)", style="dim")


def _fitted(column: _Column, cells: list[dict[str, Text | str]]) -> _Column:
    """The column as wide as its title and what stands in it; of words up to its own width."""
    longest = max((len(row[column.key]) for row in cells), default=0)
    most = column.width if column.justify == "left" else longest
    return column._replace(width=max(len(column.title), min(most, longest)))


class _Column(NamedTuple):
    """A column behind the name. In narrow terminals those with the highest `spared` go first, those with
    none stay."""

    key: str
    title: str
    width: int
    justify: Literal["left", "right"] = "right"
    spared: int = 0


_NARROWEST, _SHORTEST = 20, 12
"""Characters of names that all columns give way to which may be spared (most do to any name, up to half of
the width), and those that are left of a class."""


_COLUMNS = (
    _Column("class", "Class", 28, "left", spared=1),
    _Column("parameters", "Params", 7),
    _Column("output", "Output", 15, "left"),
    _Column("each", "Each", 7, spared=6),
    _Column("times", "× n", 5, spared=4),
    _Column("flops", "FLOPs", 7),
    _Column("macs", "MACs", 7, spared=9),
    _Column("bytes", "Bytes", 10, spared=5),
    _Column("bytes_bar", "", 5, "left", spared=8),
    _Column("intensity", "FLOPs/byte", 10, spared=7),
    _Column("seconds", "Time", 8),
    _Column("host", "Host", 8),
    _Column("measured", "Measured", 8),
    _Column("bound", "Bound", 10, "left", spared=3),
)
"""Figures are of all repetitions, but for `each`: the FLOPs of one."""

_SHARES = {Metric.FLOPS: "% FLOPs", Metric.BYTES: "% bytes", Metric.PARAMETERS: "% params",
           Metric.SECONDS: "% time", Metric.HOST: "% host", Metric.MEASURED: "% measured"}  # fmt: skip


def columns_of(costed: CostedRecord, metric: Metric | None = None) -> list[_Column]:
    """The columns behind the name, the share of a metric (the usual one) behind the figure that it is of;
    those of time as far as it is predicted, or was measured. A time that adds up to less than the run,
    since the host is the limit, is called the device's; the host's is there where rows are sorted by it."""
    metric = metric or costed.metric
    title, known = _SHARES[metric], list(_COLUMNS)
    if costed.hosted:
        title = title.replace("time", "device")
        known = [c._replace(title="Device") if c.key == "seconds" else c for c in known]
    without = {None if costed.device else "seconds", None if costed.measurement else "measured"}
    share = [_Column("share", title, len(title)), _Column("share_bar", "", 5, "left", spared=2)]
    without.add("bytes_bar" if metric is Metric.BYTES else None)
    without.add(None if metric is Metric.HOST else "host")
    known = [c for c in known if c.key not in without]
    at = 1 + next(i for i, c in enumerate(known) if c.key == metric.value)
    return [*known[:at], *share, *known[at:]]


def _counted(row: Row) -> str:
    return f" × {row.count}" if row.count > 1 else ""


def _name(row: Row, flat: bool, room: int | None = None, cut: Cut | None = None) -> Text:
    """The name and how often it is there. Of one that is too long the count is kept, and of a path, which
    is told from its neighbours there, the end."""
    count = _counted(row)
    label = safe(row.path or row.label) if flat else "  " * row.depth + safe(row.label)
    if room is not None and cell_len(label) > (room := max(_NARROWEST, room) - len(count)):
        label = fit_tail(label, room, cut) if flat else fit(label, room)
    name = Text(label, style="" if row.is_module else "italic", no_wrap=True, overflow="ellipsis")
    return name.append(count, style="magenta")


def cells_of(row: Row) -> dict[str, str]:
    """What a row shows in each column, "" where there is nothing."""
    cost, repeated = row.cost, row.times > 1
    return {
        "class": row.cls,
        "parameters": units.count(row.parameters) if row.parameters else "",
        "output": "" if row.output is None else units.shape(row.output),
        "each": units.count(row.flops_each) if repeated and cost.flops else "",
        "times": f"× {row.times}" if repeated else "",
        "flops": units.count(cost.flops) if cost.flops else "",
        "share": units.percent(row.share) if row.share else "",
        "macs": units.count(cost.macs) if cost.macs else "",
        "bytes": units.size(cost.bytes) if cost.bytes else "",
        "intensity": "" if cost.arithmetic_intensity is None
        else units.intensity(cost.arithmetic_intensity),
        "seconds": units.seconds(row.seconds) if row.seconds else "",
        "measured": units.seconds(row.measured) if row.measured else "",
        "host": units.seconds(row.host) if row.host else "",
        "bound": row.bottleneck or "",
    }  # fmt: skip


_DASHED = ("parameters", "flops", "macs", "bytes", "intensity", "seconds", "host", "measured")
"""Columns in which nothing is a dash."""


def _cells(row: Row, all_bytes: int) -> dict[str, Text | str]:
    plain = cells_of(row)
    return {
        **plain,
        **{key: Text("—", style="dim") for key in _DASHED if not plain[key]},
        "class": Text(safe(row.cls), style="dim", no_wrap=True, overflow="ellipsis"),
        "output": safe(plain["output"]),
        "times": Text(plain["times"], style="magenta"),
        "share_bar": bar(row.share, 5),
        "bytes_bar": bar(row.cost.bytes / all_bytes if all_bytes else 0.0, 5),
        "bound": bound(row.bottleneck),
    }
