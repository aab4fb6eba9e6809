"""The summary and the bottleneck analysis, below the table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from opgraph import units
from opgraph.analysis import bottlenecks
from opgraph.analysis.conventions import causal_operators
from opgraph.analysis.experts import mixtures
from opgraph.document import Profile
from opgraph.graph import Graph, Value
from opgraph.views.generation import generation_facts
from opgraph.views.seams import seams
from opgraph.views.terminal import bar, bound, safe

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table


def summary(profile: Profile, *, verbose: bool = False) -> Table:
    """Parameters, FLOPs, memory, nodes, the tracer and the coverage of the cost formulas."""
    from rich.table import Table

    result = Table.grid(padding=(0, 2))
    result.add_column(style="bold", no_wrap=True)
    result.add_column(overflow="fold")
    for label, text in facts(profile, verbose=verbose):
        result.add_row(label, safe(text, 400))
    return result


def facts(profile: Profile, *, verbose: bool = False) -> list[tuple[str, str]]:
    """What the summary says, as labels and texts; a text without a label goes on with the one before."""
    t = profile.totals
    graph = profile.graph
    model = profile.model
    found = [
        ("Model", f"{model.name}  ({model.cls.rpartition('.')[2] or 'module'}, from {model.source})"),
        *(("", note) for note in model.notes),
        ("Inputs", ", ".join(_inputs(graph)) or "none"),
        ("Parameters", f"{units.count(t.parameters)}  ({units.integer(t.parameters)})"
         + ("" if t.trainable_parameters == t.parameters
            else f", {units.integer(t.trainable_parameters)} of them trainable")),
        *_experts(profile),
        ("FLOPs", f"{units.flops(t.flops)}  ({units.integer(t.flops)}) in contractions, "
                  f"{units.flops(t.other_flops)} in other work"),
        ("MACs", f"{units.macs(t.macs)}  ({units.integer(t.macs)})"),
        *_counted(profile),
        ("Memory", f"{units.size(t.weight_bytes)} of weights"
         + (f" and {units.size(t.buffer_bytes)} of buffers" if t.buffer_bytes else "")
         + f", {units.size(t.input_bytes)} of inputs, {units.size(t.output_bytes)} of outputs"),
        ("Traffic", f"{units.size(t.cost.read)} read, {units.size(t.cost.written)} written, unfused"),
        ("Intensity", f"{units.intensity(t.arithmetic_intensity)} FLOPs/byte on average "
                      "(all FLOPs over traffic)"),
        ("Graph", f"{units.plural(t.nodes, 'node')}, {units.plural(t.kernels, 'kernel')}"
         + (f", {units.plural(len(graph.breaks), 'graph break')}" if graph.breaks else "")),
        *seams(profile, verbose=verbose),
        *_training(profile),
        *generation_facts(profile),
        ("Coverage", _coverage(profile)),
        ("Tracer", _tracer(profile)),
    ]  # fmt: skip
    if verbose or len(profile.tracing.attempts) > 1:
        found += [
            (
                "",
                f"{a.tracer} on {a.tensors} tensors: {a.error or 'done'} ({units.seconds(a.seconds)})",
            )
            for a in profile.tracing.attempts
        ]
    if verbose:
        found.append(("Versions", ", ".join(f"{k} {v}" for k, v in profile.versions.items())))
    failed = graph.failed
    if failed is not None:
        where = f" at {failed.file}:{failed.line}" if failed.file else ""
        found.append(("Failed", f"node {failed.id} ({failed.name}){where}: {failed.error}"))
        found.append(("", "the figures are those of the part that ran"))
    return found


def _counted(profile: Profile) -> list[tuple[str, str]]:
    """By which conventions the FLOPs are counted."""
    attention = "all pairs of attention"
    some, every = causal_operators(profile)
    if profile.convention.get("attention") == "causal":
        attention = f"no pairs that a mask hides in {some} of {units.plural(every, 'attention')}"
    tables = "look-ups as products" if profile.convention.get("embedding") == "matmul" else ""
    said = ("2 FLOPs a MAC", attention if every else "", tables)
    return [("Counted", ", ".join(filter(None, said)))]


def _inputs(graph: Graph) -> list[str]:
    """Names, shapes and dtypes; of an argument with many tensors (a cache) only how many they are."""
    groups: dict[str, list[Value]] = {}
    for value in (graph.value[v] for v in graph.inputs):
        groups.setdefault((value.name or "").partition(".")[0], []).append(value)
    found = []
    for name, values in groups.items():
        if len(values) > _MANY:
            held = units.size(sum(v.bytes for v in values))
            found.append(f"{name} {units.plural(len(values), 'tensor')}, {held}")
        else:
            found += [f"{v.name} {units.shape(v.shape)} {v.dtype}" for v in values]
    return found


_MANY = 8
"""Tensors in one argument from which on they are not listed."""


def _experts(profile: Profile) -> list[tuple[str, str]]:
    """What one token uses of a mixture of experts, and what the experts compute."""
    t = profile.totals
    if t.active_parameters is None:
        return []
    found = mixtures(profile.graph)
    kinds = Counter((m.chosen, m.experts, m.flops) for m in found)
    tables = t.looked_up_parameters or 0
    blocks = "; ".join(
        f"{chosen} of {experts} in {units.plural(count, 'block')}, {units.flops(flops)} each"
        for (chosen, experts, flops), count in kinds.most_common(3)
    )
    more = f"; and {len(kinds) - 3} other kinds" if len(kinds) > 3 else ""
    rows = [
        ("Active", f"{units.count(t.active_parameters)}  ({units.integer(t.active_parameters)}) a token"
         + (f", {units.count(t.active_parameters - tables)} without embeddings"
            if tables else "")),
        ("Experts", blocks + more),
    ]  # fmt: skip
    if any(m.flops > m.active_flops for m in found):
        needed = units.flops(sum(m.active_flops for m in found))
        rows.append(("", f"as they run here, more experts are computed than chosen ({needed} are)"))
    return rows


def _training(profile: Profile) -> list[tuple[str, str]]:
    """FLOPs by phase and what the memory goes to, for a step of training."""
    if profile.mode != "train":
        return []
    from opgraph.analysis.training import training

    t = training(profile.graph)
    flops = ", ".join(f"{units.flops(c.flops)} {name}" for name, c in t.phases.items() if c.flops)
    return [
        ("Training", f"{flops}; optimizer {profile.convention.get('optimizer', '')}"
         + (", repeated blocks checkpointed" if "checkpointing" in profile.convention else "")),
        ("", f"{units.size(t.saved_activations)} alive after the forward, "
             f"{units.size(t.gradients)} of gradients, "
             f"{units.size(t.optimizer_state)} of optimizer state, "
             f"peak {units.size(t.peak)} with the weights"),
    ]  # fmt: skip


def _coverage(profile: Profile) -> str:
    cost = profile.totals.cost
    known = f"{units.percent(cost.coverage)} of kernels: {cost.formula:,} by formula"
    known += f", {cost.zero:,} free (views)"
    if not cost.unknown:
        return known
    named = ", ".join(f"{op} × {n}" for op, n in profile.totals.unknown[:5])
    more = len(profile.totals.unknown) - 5
    return f"{known}, {cost.unknown:,} unknown ({named}{f' and {more} more' if more > 0 else ''})"


def _tracer(profile: Profile) -> str:
    tracing = profile.tracing
    tries = len(tracing.attempts)
    return (
        f"{tracing.tracer} on {tracing.tensors} tensors in {units.seconds(tracing.seconds)}"
        + (f", {units.plural(tries, 'attempt')}" if tries > 1 else "")
    )  # fmt: skip


def bottleneck_analysis(profile: Profile, ridge: float) -> Group:
    """How many nodes, and what share of FLOPs and of bytes, are bound by what."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shares = bottlenecks(profile.nodes, ridge)
    flops = sum(s.flops for s in shares) or 1
    traffic = sum(s.bytes for s in shares) or 1
    result = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    result.add_column("", no_wrap=True, min_width=10)
    result.add_column("nodes", justify="right")
    result.add_column("FLOPs", justify="right")
    result.add_column("", no_wrap=True)
    result.add_column("bytes", justify="right")
    result.add_column("", no_wrap=True)
    for s in shares:
        result.add_row(
            bound(s.bottleneck),
            f"{s.nodes:,}",
            units.percent(s.flops / flops), bar(s.flops / flops),
            units.percent(s.bytes / traffic), bar(s.bytes / traffic),
        )  # fmt: skip
    title = Text(f"Bottlenecks at a ridge of {ridge:g} FLOPs/byte", style="bold")
    return Group(title, result)
