"""Ten facts that a person or a language model needs to reason about what a model costs, each with the
command that says more."""

from __future__ import annotations

from collections import Counter
from textwrap import fill
from typing import NamedTuple

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.tree import Metric
from opgraph.record import units
from opgraph.record.graph import Graph
from opgraph.views.headline import calls_of, headline, longest_wait, whole_of
from opgraph.views.terminal import readable
from opgraph.views.text.summary import inputs_of

__all__ = ["Fact", "explained", "facts_of"]

_SEVERAL = 3
"""Operators that are named."""


_ADVISED = {"cuda": "h100-sxm", "mps": "apple-m4-max", "cpu": "xeon-8480"}
"""A device that runs the kernels of a target, by what torch calls it."""


class Fact(NamedTuple):
    """What is known of one thing: a sentence, its figure in base units where it has one, and the command
    that says more."""

    fact: str
    value: float | str | None
    text: str
    command: str


SORTED_BY = {
    Metric.MEASURED: "measured",
    Metric.SECONDS: "time",
    Metric.FLOPS: "flops",
    Metric.BYTES: "bytes",
}
"""The order of the table in which the costliest stand first."""


def _kept_as(graph: Graph) -> str:
    """The dtype of most bytes of the weights, which are not always multiplied in it."""
    held: Counter[str] = Counter()
    for p in graph.parameters:
        held[p.dtype] += p.bytes * (p.kind == "parameter")
    return f", mostly as {held.most_common(1)[0][0]}" if any(held.values()) else ""


def facts_of(costed: CostedRecord, spec: str) -> list[Fact]:
    """The ten facts. `spec` is what was typed for the model, with its options: commands begin with it."""
    profile, t, graph = costed.profile, costed.totals, costed.graph
    on = "" if costed.device is None else f" --hardware {costed.device.id}"
    spots = costed.tree.hot_spots(1)
    spot = spots[0].label if spots else None
    bound, share = longest_wait(costed)
    most = sorted((o for o in costed.operators if o.share), key=lambda o: -o.share)[:_SEVERAL]
    shares = [f"{o.name} {units.percent(o.share)}" for o in most]
    waits = (
        f"{units.percent(share)} of the {'time is spent' if on else 'bytes move'} where {bound.value} "
        f"is the limit, at a ridge of {costed.ridge:.4g} FLOPs/byte"
    )
    timed = None if costed.prediction is None else costed.prediction.seconds
    if costed.prediction is not None and costed.hosted:
        waits = costed.prediction.limiting
    found: list[tuple[str, float | str | None, str, str]] = [
        ("model", profile.model.cls,
         f"{profile.model.name} is a {profile.model.cls or 'module'} from {profile.model.source}, "
         f"run as {profile.mode} on {', '.join(inputs_of(graph)) or 'no tensors'}", ""),
        ("parameters", t.parameters,
         f"{units.count(t.parameters)} parameters take {units.size(t.weight_bytes)}"
         f"{_kept_as(graph)}", " --sort parameters --top 10"),
        ("flops", t.flops,
         f"one run takes {units.flops(t.flops)} ({units.macs(t.macs)}) in matrix products and "
         f"convolutions, and {units.flops(t.other_flops)} in other work", " --depth 1"),
        ("operators", most[0].name if shares else None,
         f"by operator, of {whole_of(costed)}: {', '.join(shares)}" if shares else
         "no operator takes anything",
         " --by op"),
        ("hot_spot", spot,
         "nothing is computed" if spot is None else
         f"the costliest part is {spot}: {units.percent(spots[0].share)} of "
         f"{whole_of(costed)}{calls_of(spots[0], costed)}",
         f" --sort {SORTED_BY[costed.tree.metric]} --top 10"),
        ("bytes", t.bytes,
         f"{costed.traffic}, {units.size(t.bytes)} are moved, {units.intensity(t.arithmetic_intensity)} "
         "FLOPs/byte on average", " --sort bytes --top 10"),
        ("bound", bound.value, waits, "explore"),
        ("peak_memory", costed.peak_memory,
         f"{units.size(costed.peak_memory)} are alive at most: {units.size(costed.memory.peak)} beside the "
         f"weights{_room(costed)}", " --memory"),
        ("coverage", t.coverage,
         f"{units.percent(t.coverage)} of {units.plural(t.kernels, 'kernel')} in "
         f"{units.plural(t.nodes, 'node')} have a known cost"
         + "".join(f"; {r} ({r.code})" for r in costed.remarks), " -v"),
        ("time", timed,
         " ".join(filter(None, headline(costed))) if on else
         "how long that takes, and what it waits for, depends on the device",
         "" if on else f" --hardware {_ADVISED[profile.target.device]}"),
    ]  # fmt: skip

    def command(more: str) -> str:
        name, _, options = more.partition(" ")
        return f"opgraph {name or 'profile'} {spec}{on}{f' {options}' if options else ''}"

    def plain(value: float | str | None) -> float | str | None:
        return readable(value) if isinstance(value, str) else value

    return [Fact(name, plain(value), readable(text), command(m)) for name, value, text, m in found]


def _room(costed: CostedRecord) -> str:
    """Whether it fits into the memory of a device, with all that a process takes there."""
    if (need := costed.fit) is None:
        return ""
    what = "fits" if need.fits else "does not fit"
    return f"; with all else {units.size(need.needed)} of {units.size(need.capacity)}: it {what}"


def explained(facts: list[Fact], width: int = 120) -> str:
    """The facts as plain text, numbered, each with its command, which is one line."""
    return "".join(
        fill(f"{i:>2}. {f.text.removesuffix('.')}.", width, subsequent_indent=" " * 4,
             break_on_hyphens=False, break_long_words=False) + f"\n      $ {f.command}\n"
        for i, f in enumerate(facts, start=1)
    )  # fmt: skip
