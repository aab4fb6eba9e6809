"""The summary and the bottleneck analysis, below the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from opgraph.analysis.check.agreement import Agreement
from opgraph.analysis.cost.conventions import causal_operators
from opgraph.analysis.cost.experts import mixtures
from opgraph.analysis.costed import CostedRecord
from opgraph.record import units
from opgraph.record.graph import Graph, GraphBreak, Value
from opgraph.record.kinds import TRANSFERS
from opgraph.record.profile import CachePart, KVCache, ProfileRecord
from opgraph.record.quantization import kept_in
from opgraph.record.remarks import Remark
from opgraph.record.targets import AS_ON_A_CPU
from opgraph.views.headline import timed
from opgraph.views.terminal import bar, bound, columns, labelled, safe

# The fragments of a broken graph and the breaks between them, as lines of the summary.

_SHOWN = 4


def seams(costed: CostedRecord, *, verbose: bool = False) -> list[tuple[str, str]]:
    """How many fragments there are, which one dominates, what ran between them, and where and why each
    ended: the first few, or all with `verbose`. Nothing where there is one fragment or none."""
    graph = costed.graph
    if len({n.fragment for n in graph.nodes} - {0}) < 2:
        return []
    from opgraph.analysis.cost.fragments import dominant, fragments, outside

    largest = dominant(graph)
    if largest is None:
        return []
    total = costed.totals.flops
    share = f", {units.percent(largest.cost.flops / total)} of FLOPs" if total else ""
    between = outside(graph).nodes
    size = units.plural(largest.nodes, "node") + share
    first = f"{len(fragments(graph))}, the largest is number {largest.number} ({size})"
    if between:
        first += f"; {units.plural(between, 'node')} ran in Python between them"
    lines = list(_breaks(graph.breaks))
    shown = lines if verbose else lines[:_SHOWN]
    hidden = len(lines) - len(shown)
    more = [f"… and {units.plural(hidden, 'more place')}, with -v"] if hidden else []
    return [("Fragments", first), *(("", line) for line in (*shown, *more))]


def _breaks(breaks: tuple[GraphBreak, ...]) -> Iterator[str]:
    """One line for neighbouring breaks of one reason at one place."""
    for (reason, file, line), same in groupby(breaks, key=lambda b: (b.reason, b.file, b.line)):
        numbers = [b.fragment for b in same]
        span = f"{numbers[0]}" if len(numbers) == 1 else f"each of {numbers[0]} to {numbers[-1]}"
        where = f" at {file}:{line}" if file else ""
        yield f"break after {span}{where}: {reason}"


# What there is to say of models that generate: their cache, and a step on a device against the batch.

_LENGTHS = (1024, 8192, 32768, 131072)


def generation_facts(profile: ProfileRecord) -> list[tuple[str, str]]:
    """Rows of the summary: which step this is, and the cache, if there is one."""
    cache = profile.cache
    if cache is None:
        return []
    rows: list[tuple[str, str]] = []
    many = units.plural(cache.sequences, "sequence")
    logits = profile.convention.get("logits")
    logits = f"; logits of {'the last token' if logits == 'last token' else logits}"
    if profile.mode == "prefill":
        prompt = f" of {units.plural(cache.tokens, 'token')}" if cache.tokens else ""
        rows.append(("Mode", f"prefill: {many}, a prompt{prompt} into an empty cache{logits}"))
    elif profile.mode == "decode":
        from opgraph.analysis.serving.batches import shared_reads

        before = f" after {units.integer(cache.tokens - 1)} in the cache" if cache.tokens else ""
        rows.append(("Mode", f"decode: one token for {many}{before}{logits}"))
        rows.append(("Reads", f"{units.size(shared_reads(profile))} of weights for the whole batch, "
                              f"{units.size(cache.bytes)} of cache"))  # fmt: skip
    return [*rows, *_cache(cache)]


def _cache(cache: KVCache) -> list[tuple[str, str]]:
    rate = cache.bytes_per_token
    here = f"{units.size(cache.bytes)} here"
    head = (
        f"{units.size(rate)}  ({units.integer(rate)} bytes) a token of a sequence; " if rate else ""
    )
    rows = [("KV cache", f"{head}{here}"), ("", ", ".join(map(_part, cache.parts)))]
    if rate:
        most = _LENGTHS[-1] if cache.most is None else cache.most
        lengths = [*(n for n in _LENGTHS if n < most), most]
        grown = (f"{units.size(cache.at(n))} at {_tokens(n)}" for n in lengths)
        rows.append(("", f"grows to {', '.join(grown)} tokens"))
    return rows


def _tokens(number: int) -> str:
    return units.integer(number) if number % 1024 else f"{number // 1024}Ki"


def _part(part: CachePart) -> str:
    layers = units.plural(part.layers, "layer")
    if part.kind == "growing":
        return f"{layers} keep{_s(part)} every token"
    if part.kind == "window":
        return f"{layers} keep{_s(part)} the last {units.integer(part.limit or 0)}"
    fixed = units.size(part.layers * part.fixed)
    if part.kind == "cross":
        return f"{layers} keep{_s(part)} {fixed} of the encoder's output"
    return f"{layers} keep{_s(part)} {fixed} of state"


def _s(part: CachePart) -> str:
    return "s" if part.layers == 1 else ""


def serving(costed: CostedRecord) -> Group:
    """A step on the device against the batch, up to the first batch that does not fit."""
    device = costed.named_device()
    prefill = costed.profile.mode == "prefill"
    title = "Time to the first token" if prefill else "Time per output token"
    rate = "prompt tokens/s" if prefill else "tokens/s"
    result = columns("batch", "time", rate, "cache", "memory", "", words=("",))
    for step in costed.steps:
        result.add_row(
            f"{step.batch:,}", units.seconds(step.seconds), units.count(step.tokens_per_second),
            units.size(step.cache), units.size(step.needed),
            "" if step.fits else f"more than {units.size(device.capacity)}",
        )  # fmt: skip
    return Group(Text(f"{title} on {device.name}, predicted", style="bold"), result)


def summary(costed: CostedRecord, *, verbose: bool = False) -> Table:
    """Parameters, FLOPs, memory, nodes, the tracer and the coverage of the cost formulas."""
    return labelled(facts(costed, verbose=verbose), 400)


def remarks(costed: CostedRecord | Agreement) -> list[RenderableType]:
    """What must be known of how the figures came about, under a title; nothing where there is nothing."""
    if not costed.remarks:
        return []
    found = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    found.add_column(no_wrap=True, style="yellow")
    found.add_column(overflow="fold")
    for remark in costed.remarks:
        found.add_row(remark.code, safe(remark, 400))
    return ["", Text("Remarks", style="bold"), found]


def facts(costed: CostedRecord, *, verbose: bool = False) -> list[tuple[str, str]]:
    """What the summary says, as labels and texts; a text without a label goes on with the one before."""
    profile, t, graph = costed.profile, costed.totals, costed.graph
    model = profile.model
    found = [
        ("Model", f"{model.name}  ({model.cls.rpartition('.')[2] or 'module'}, from {model.source})"),
        *(("", note) for note in model.notes if not isinstance(note, Remark)),
        ("Inputs", ", ".join(inputs_of(graph)) or "none"),
        ("Parameters", f"{units.count(t.parameters)}  ({units.integer(t.parameters)})"
         + ("" if t.trainable_parameters == t.parameters
            else f", {units.integer(t.trainable_parameters)} of them trainable")),
        *_experts(costed),
        ("FLOPs", f"{units.flops(t.flops)}  ({units.integer(t.flops)}) "
                  "in matrix products and convolutions, "
                  f"{units.flops(t.other_flops)} in other work"),
        ("MACs", f"{units.macs(t.macs)}  ({units.integer(t.macs)})"),
        *_counted(profile),
        *([("Kept", f"{kept}, on paper")] if (kept := kept_in(profile.convention)) else []),
        ("Memory", f"{units.size(t.weight_bytes)} of weights"
         + (f" and {units.size(t.buffer_bytes)} of buffers" if t.buffer_bytes else "")
         + f", {units.size(t.input_bytes)} of inputs, {units.size(t.output_bytes)} of outputs"),
        ("Bytes", f"{units.size(t.cost.read)} read, {units.size(t.cost.written)} written, "
                  f"{costed.traffic}"),
        ("Intensity", f"{units.intensity(t.arithmetic_intensity)} FLOPs/byte on average "
                      "(all FLOPs over bytes)"),
        ("Graph", f"{units.plural(t.nodes, 'node')}, {units.plural(t.kernels, 'kernel')}"
         + (f", {units.plural(len(graph.breaks), 'graph break')}" if graph.breaks else "")),
        *seams(costed, verbose=verbose),
        *_world(costed),
        *_training(profile),
        *generation_facts(profile),
        *_target(profile),
        ("Coverage", _coverage(costed)),
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
        found.append(("Failed", f"node {failed.id}{where}: {failed.failure}"))
        found.append(("", "the figures are those of the part that ran"))
    return found


def _world(costed: CostedRecord) -> list[tuple[str, str]]:
    """Which rank it is, and what it exchanges with others; nothing of a model that is alone."""
    world = costed.profile.world
    rows = []
    if world is not None:
        rows = [("Rank", f"{world.rank:,} of {world.size:,}; all figures are those of this rank")]
    if costed.profile.pipeline is not None:
        rows.append(("", str(costed.profile.pipeline)))
    for each in costed.exchanged:
        group = f" ({each.group})" if each.group else ""
        between = f" between {each.ranks:,} ranks{group}, {units.size(each.sent)} sent"
        if each.kind in TRANSFERS:
            between = f" over the link to the host{group}"
        rows.append(("" if rows else "Host", f"{each.phase}: {units.plural(each.times, each.kind)} of "
                                             f"{units.size(each.bytes)}{between}"))  # fmt: skip
    prediction = costed.prediction if costed.exchanged else None
    if prediction is not None and prediction.communication is not None:
        taken = prediction.communication
        whole = units.between(taken.seconds, *(taken.seconds * ratio for ratio in taken.ratios))
        rows.append(("", f"{whole} of exchange on the device, "
                         f"{units.seconds(taken.exposed)} of it exposed"))  # fmt: skip
        if taken.bubble:
            rows.append(("", f"{units.seconds(taken.bubble)} of waiting for other stages"))
    return rows


def _counted(profile: ProfileRecord) -> list[tuple[str, str]]:
    """By which conventions the FLOPs are counted."""
    attention = "all pairs of attention"
    some, every = causal_operators(profile)
    if profile.convention.get("attention") == "causal":
        attention = f"no pairs that a mask hides in {some} of {units.plural(every, 'attention')}"
    tables = "look-ups as products" if profile.convention.get("embedding") == "matmul" else ""
    said = ("2 FLOPs a MAC", attention if every else "", tables)
    return [("Counted", ", ".join(filter(None, said)))]


def inputs_of(graph: Graph) -> list[str]:
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


def _experts(costed: CostedRecord) -> list[tuple[str, str]]:
    """What one token uses of a mixture of experts, and what the experts compute."""
    t = costed.totals
    if t.active_parameters is None:
        return []
    found = mixtures(costed.graph)
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


def _training(profile: ProfileRecord) -> list[tuple[str, str]]:
    """FLOPs by phase and what the memory goes to, for a step of training."""
    if profile.mode != "train":
        return []
    from opgraph.analysis.cost.training import training

    t = training(profile.graph)
    flops = ", ".join(f"{units.flops(c.flops)} {name}" for name, c in t.phases.items() if c.flops)
    return [
        ("Training", f"{flops}; optimizer {profile.convention.get('optimizer', '')}"
         + (", loss scaled" if "loss scaling" in profile.convention else "")
         + (f", {again} checkpointed" if (again := profile.convention.get("checkpointing")) else "")
         + (f"; loss: {loss}" if (loss := profile.convention.get("loss")) else "")),
        ("", f"{units.size(t.saved_activations)} alive after the forward, "
             f"{units.size(t.gradients)} of gradients, "
             f"{units.size(t.optimizer_state)} of optimizer state, "
             f"peak {units.size(t.peak)} with the weights"
             + (f" on the device, {units.size(t.on_host)} in the host's memory" if t.on_host else "")),
    ]  # fmt: skip


def _target(profile: ProfileRecord) -> list[tuple[str, str]]:
    """Whose kernels these are, and what runs instead of the CPU's."""
    target = profile.target
    if target.name == "cpu":
        return [("Target", "cpu")]
    ran = ", ".join(
        f"{s.op} {s.chosen if s.chosen == AS_ON_A_CPU else f'by {s.chosen}'} × {s.count}"
        for s in target.substitutions
    )
    return [("Target", f"{target.label}: {ran or 'nothing that a CPU runs otherwise'}")]


def _coverage(costed: CostedRecord) -> str:
    cost, unknown = costed.totals.cost, costed.totals.unknown
    if not costed.totals.kernels:
        return "no kernel is run"
    known = (
        f"{units.percent(cost.coverage)} of kernels have a known cost: {cost.formula:,} by formula"
    )
    known += f", {cost.zero:,} no work (views)"
    if not cost.unknown:
        return known
    named = ", ".join(f"{op} × {n}" for op, n in unknown[:5])
    more = len(unknown) - 5
    return f"{known}, {cost.unknown:,} unknown ({named}{f' and {more} more' if more > 0 else ''})"


def _tracer(profile: ProfileRecord) -> str:
    tracing = profile.tracing
    tries = len(tracing.attempts)
    return (
        f"{tracing.tracer} on {tracing.tensors} tensors in {units.seconds(tracing.seconds)}"
        + (f", {units.plural(tries, 'attempt')}" if tries > 1 else "")
    )  # fmt: skip


def bottleneck_analysis(costed: CostedRecord) -> Group:
    """How many nodes, and what share of the time on the device, of FLOPs and of bytes, wait for what."""
    shares = costed.bounds
    flops = sum(s.flops for s in shares) or 1
    traffic = sum(s.bytes for s in shares) or 1
    result = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    result.add_column("", no_wrap=True, min_width=10)
    result.add_column("nodes", justify="right")
    timed = ("time",) if costed.device else ()
    for head in (*timed, "FLOPs", "bytes"):
        result.add_column(head, justify="right")
        result.add_column("", no_wrap=True)
    for s in shares:
        cells = [*([s.share] if timed else []), s.flops / flops, s.bytes / traffic]
        figures = [part for c in cells for part in (units.percent(c), bar(c))]
        result.add_row(bound(s.bound), f"{s.nodes:,}", *figures)
    return Group(Text(bottleneck_title(costed), style="bold"), result)


def bottleneck_title(costed: CostedRecord) -> str:
    """By what the bounds were found: the predicted time on the device, or the generic ridge point."""
    if costed.device is None:
        return f"Bottlenecks at a ridge of {costed.ridge:g} FLOPs/byte"
    return (
        f"Bottlenecks on {safe(costed.device.name)}, by {timed(costed)} "
        f"(ridge {costed.ridge:.4g} FLOPs/byte at {costed.main_dtype})"
    )
