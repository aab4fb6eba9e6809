"""What colours mean: for each box a mark (a colour with a letter or a number), and a legend of all marks.
A new way of colouring is one function and one line in `COLORINGS`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.tree import Metric
from opgraph.record import units
from opgraph.record.errors import RenderError
from opgraph.record.graph import Node
from opgraph.record.kinds import Category, FusionRule, Partition
from opgraph.views.headline import timed
from opgraph.views.marks import BOUNDS, CATEGORIES, RULES, SERIES, Mark
from opgraph.views.picture.model import Box, Drawing

STEPS = 5


@dataclass(frozen=True, slots=True)
class Coloring:
    """The marks of boxes by id, the legend, and for each box its share of the whole (in `measure`), with
    all repetitions that it stands for. Some have `values` to show, of one repetition, and `notes` to say of
    boxes."""

    title: str
    marks: dict[str, Mark]
    legend: tuple[Mark, ...]
    measure: str
    shares: dict[str, float]
    whole: str = "of the total"
    values: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


_MEASURES = {
    Metric.FLOPS: ("FLOPs", units.flops),
    Metric.BYTES: ("bytes moved", units.size),
    Metric.MEMORY: ("activation memory made", units.size),
    Metric.SECONDS: ("predicted time", units.seconds),
    Metric.MEASURED: ("measured time", units.seconds),
}


def coloring(costed: CostedRecord, drawing: Drawing, by: str) -> Coloring:
    """The marks and shares of a drawing."""
    found = COLORINGS[by](costed, drawing)
    named = (found.title, found.measure)
    title, measure = (text.replace("predicted time", timed(costed)) for text in named)
    found = replace(found, title=title, measure=measure)
    if any(b.kind == "stub" for b in drawing.leaves):
        found = replace(found, measure=f"{found.measure} of this part", whole="of this part")
    return found


def _by_bottleneck(costed: CostedRecord, drawing: Drawing) -> Coloring:
    def mark(box: Box) -> Mark | None:
        bound = drawing.tree.bound(*box.items) if box.items else None
        return None if bound is None else BOUNDS[bound]

    where = f" on {costed.device.name}, by predicted time" if costed.device else ""
    title = f"bottleneck{where}, at a ridge of {costed.ridge:.4g} FLOPs/byte"
    return _categorical(drawing, title, mark, list(BOUNDS.values()))


def _by_op(costed: CostedRecord, drawing: Drawing) -> Coloring:
    def mark(box: Box) -> Mark | None:
        return _costliest(drawing.nodes_of(box))

    return _categorical(drawing, "kind of work", mark, list(CATEGORIES.values()))


def _costliest(nodes: Iterable[Node]) -> Mark | None:
    """The kind of work that costs most, by FLOPs, then bytes."""
    flops: Counter[Category] = Counter()
    moved: Counter[Category] = Counter()
    for node in nodes:
        for kernel in node.kernels:
            category = Category(kernel.category)
            flops[category] += kernel.flops
            moved[category] += kernel.bytes
    if not moved:
        return None
    by = flops if any(flops.values()) else moved
    return CATEGORIES[max((c for c in Category if c in moved), key=lambda c: by[c])]


def _by_dtype(costed: CostedRecord, drawing: Drawing) -> Coloring:
    dtypes = [k.dtype for n in costed.graph.nodes for k in n.kernels if k.dtype and k.bytes]
    known = [d for d, _ in Counter(dtypes).most_common()]
    marks = {
        d: Mark(SERIES[min(i, len(SERIES) - 1)], _short_dtype(d), d) for i, d in enumerate(known)
    }

    def mark(box: Box) -> Mark | None:
        traffic: Counter[str] = Counter()
        for node in drawing.nodes_of(box):
            for kernel in node.kernels:
                if kernel.dtype in marks:
                    traffic[kernel.dtype] += kernel.bytes
        return marks[traffic.most_common(1)[0][0]] if traffic else None

    return _categorical(drawing, "dtype of most bytes", mark, list(marks.values()))


def _short_dtype(dtype: str) -> str:
    """A dtype in short: fp32, bf16, i64."""
    for long, short in (
        ("bfloat", "bf"),
        ("float", "fp"),
        ("uint", "u"),
        ("int", "i"),
        ("complex", "c"),
    ):
        if dtype.startswith(long):
            return short + dtype.removeprefix(long).partition("_")[0]
    return dtype[:4]


def _by(metric: Metric) -> Callable[[CostedRecord, Drawing], Coloring]:
    return lambda _, drawing: _scaled(drawing, metric)


def _by_time(costed: CostedRecord, drawing: Drawing) -> Coloring:
    device = costed.named_device("a predicted time")
    found = _scaled(drawing, Metric.SECONDS)
    title = f"{found.title} on {device.name}"
    return replace(found, title=title, measure=title)


def _by_measured(costed: CostedRecord, drawing: Drawing) -> Coloring:
    run = costed.named_measurement().run
    found = _scaled(drawing, Metric.MEASURED)
    title = f"{found.title} on {run.device_name or run.device}"
    return replace(found, title=title, measure=title)


def _by_fusion(costed: CostedRecord, drawing: Drawing) -> Coloring:
    """The fused subgraphs: rule by colour and letter, number which."""
    if costed.partition is Partition.NONE:
        raise RenderError(
            "nothing is fused with the partition none", hint="choose fuse or inductor"
        )
    marks: dict[str, Mark] = {}
    notes: dict[str, str] = {}
    part_of = {n: part for part in costed.parts for n in part.nodes}
    for box in drawing.boxes:
        parts = list(dict.fromkeys(part_of[n.id] for n in drawing.nodes_of(box)))
        if not parts:
            continue
        costliest = max(parts, key=lambda p: (p.cost.flops, p.cost.bytes, -p.id))
        rule = RULES[FusionRule(costliest.rule)]
        if box.operators == 1 and box.times == 1:
            marks[box.id] = Mark(rule.tone, f"{rule.sign}{costliest.id}", rule.meaning)
        else:
            marks[box.id] = rule
        notes[box.id] = (
            f"fused subgraph {costliest.id}: {costliest.reason}"
            if len(parts) == 1
            else f"in {len(parts)} fused subgraphs"
        )
    seen = {marks[b.id].meaning for b in drawing.leaves if b.id in marks}
    legend = tuple(m for m in RULES.values() if m.meaning in seen)
    title = "fused subgraphs by rule, with their numbers"
    return replace(_shared(drawing, title, marks, legend), notes=notes)


COLORINGS: dict[str, Callable[[CostedRecord, Drawing], Coloring]] = {
    "bottleneck": _by_bottleneck,
    "op": _by_op,
    "flops": _by(Metric.FLOPS),
    "bytes": _by(Metric.BYTES),
    "memory": _by(Metric.MEMORY),
    "dtype": _by_dtype,
    "time": _by_time,
    "measured": _by_measured,
    "fusion": _by_fusion,
}


def _shared(
    drawing: Drawing, title: str, marks: dict[str, Mark], legend: tuple[Mark, ...],
    by: Metric | None = None,
) -> Coloring:  # fmt: skip
    """Marks with the share of each box: of the metric that colours mean, or of the usual one. What it is of
    is shown, but for FLOPs and bytes where the colours mean something else: boxes have their costs."""
    metric = drawing.tree.metric if by is None else by
    measure, shown = _MEASURES[metric]
    value = {b.id: drawing.total(metric, b) for b in drawing.boxes}
    whole = drawing.total(metric, drawing.root) or 1.0
    shares = {box: part / whole for box, part in value.items()}
    said = by is not None or metric in (Metric.SECONDS, Metric.MEASURED)
    each = {b.id: shown(value[b.id] / b.times) for b in drawing.boxes if said and value[b.id] > 0}
    return Coloring(title, marks, legend, measure, shares, values=each)


def _categorical(
    drawing: Drawing, title: str, mark: Callable[[Box], Mark | None], known: list[Mark]
) -> Coloring:
    marks = {b.id: m for b in drawing.boxes if (m := mark(b)) is not None}
    used = {marks[b.id] for b in drawing.leaves if b.id in marks}
    legend = tuple(m for m in known if m in used)
    return _shared(drawing, title, marks, legend)


def _scaled(drawing: Drawing, metric: Metric) -> Coloring:
    """Five steps, each for boxes up to so much of the costliest: steps are wider the higher they are, since
    costs differ by orders of magnitude."""
    title, shown = _MEASURES[metric]
    value = {b.id: drawing.total(metric, b) for b in drawing.boxes}
    top = max((value[b.id] for b in drawing.leaves), default=0.0)
    bounds = [top * (step / STEPS) ** 2 for step in range(1, STEPS + 1)]
    legend = tuple(
        Mark(f"s{step}", str(step), f"up to {shown(bound)}")
        for step, bound in enumerate(bounds, start=1)
    )
    steps = list(zip(legend, bounds, strict=True))
    marks = {
        box: next((mark for mark, bound in steps if value[box] <= bound), legend[-1])
        for box in value
        if value[box] > 0
    }
    return _shared(drawing, title, marks, legend if top else (), metric)
