"""Where is the cost? One sentence, and what it means for someone who would have the model faster: the last
lines of the summary, and the first of the page. The page fills in the same words for the device that is
chosen there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opgraph.analysis.costed import CostedRecord
from opgraph.analysis.tree import HotSpot, Metric
from opgraph.record import units
from opgraph.record.kinds import Bound, Run
from opgraph.record.quantization import kept_in
from opgraph.views.terminal import safe

_TIMED = "{model} on {device}, {inputs}: {total}; {share} of the time is {what}; costliest {spot}, {part}."
_HOSTED = "{model} on {device}, {inputs}: {total}; {limit}; costliest {spot}, {part}."
_PLAIN = (
    "{model}, {inputs}: {total}; {share} of the bytes move where {what}; costliest {spot}, {part}."
)
_IDLE = "{model}, {inputs}: its forward does no work: nothing is computed, and no data is moved."
_UNMATCHED = "{model}, {inputs}: nothing of the time that was recorded is on a node of this graph."
_FAILED = "{model}, {inputs}: its {failing} failed; the figures are those of the part that ran."

_WORDS: Mapping[Bound, tuple[str, str, str]] = {
    Bound.COMPUTE: (
        "arithmetic",
        "arithmetic is the limit",
        "The arithmetic units are the limit: a lower precision, fewer FLOPs or a device with a higher "
        "peak would help; fusing operators would not.",
    ),
    Bound.BALANCED: ("both alike", "neither is the limit", ""),
    Bound.MEMORY: (
        "moving data",
        "memory is the limit",
        "Memory bandwidth is the limit: a lower precision, or fewer trips to memory by fused operators "
        "(torch.compile), would help; fewer FLOPs would not.",
    ),
    Bound.LAUNCH: (
        "launching kernels",
        "launches are the limit",
        "Its kernels are too short for this device, which waits for the next one to be started: larger "
        "batches, or fewer and cheaper starts (torch.compile, CUDA graphs), would help.",
    ),
    Bound.EXPOSED: (
        "exposed communication",
        "",
        "It waits for what ranks exchange: a faster link or network, fewer ranks in a group, or an "
        "exchange beside the arithmetic would help.",
    ),
    Bound.BUBBLE: (
        "waiting for other stages",
        "",
        "It waits for other stages of the pipeline: more micro-batches, or an interleaved schedule, would "
        "help.",
    ),
}
"""By bound: what most of the time goes to, where most of the bytes are moved, and what that means."""

_NO_DEVICE = (
    "Judged by FLOPs per byte alone: a device (--hardware h100-sxm) says how long it takes there, and "
    "what it waits for."
)
_OF = {
    Metric.MEASURED: "the measured time",
    Metric.SECONDS: "the time",
    Metric.FLOPS: "the FLOPs",
    Metric.BYTES: "the bytes",
}
_IT = ("it", "its work")
"""The same of a time, in the sentence that names it: of the run, or of a device that waits for the host."""


def headline(costed: CostedRecord) -> tuple[str, str]:
    """The sentence and what it means; of what does no work there is nothing to be meant."""
    found = costed.prediction
    spots = costed.tree.hot_spots(1)
    if not spots:
        return _idle(costed), ""
    bound, share = longest_wait(costed)
    known = "plain" if found is None else "hosted" if costed.hosted else "timed"
    of = _IT[costed.hosted] if costed.tree.metric is Metric.SECONDS else whole_of(costed)
    said = _sentences(costed)[known].format(
        model=safe(costed.profile.model.name),
        device="" if costed.device is None else safe(costed.device.name),
        inputs=_inputs(costed),
        total=units.flops(costed.totals.flops) if found is None else total_of(costed),
        share=units.percent(share),
        what=_WORDS[bound][found is None],
        limit="" if found is None else found.limiting,
        spot=safe(spots[0].label),
        part=f"{units.percent(spots[0].share)} of {of}{calls_of(spots[0], costed)}",
    )
    if found is None and costed.graph.failed is None:
        return said, _NO_DEVICE
    return said, _advice(bound, costed)


def longest_wait(costed: CostedRecord) -> tuple[Bound, float]:
    """What the run waits for longest, and its share of the time, or of the bytes without a device."""
    return max(costed.waits.items(), key=lambda w: w[1], default=(Bound.COMPUTE, 0.0))


def _sentences(costed: CostedRecord) -> dict[str, str]:
    """The sentence where there is a time, where it is the host's, and where there is none."""
    ways = {"timed": _TIMED, "hosted": _HOSTED, "plain": _PLAIN}
    failed = costed.graph.failed
    if failed is None:
        return ways
    return dict.fromkeys(ways, _FAILED.replace("{failing}", failed.part))


def _idle(costed: CostedRecord) -> str:
    """What is said of a forward in which nothing takes anything, or of which no time is known."""
    works = costed.totals.flops or costed.totals.bytes
    failed = costed.graph.failed
    said = _FAILED if failed is not None else _UNMATCHED if works else _IDLE
    return said.format(model=safe(costed.profile.model.name), inputs=_inputs(costed),
                       failing="" if failed is None else failed.part)  # fmt: skip


def _advice(bound: Bound, costed: CostedRecord) -> str:
    """What a bound means; what is compiled is not told to be, and what failed is told nothing."""
    said = _WORDS[bound][2] if costed.graph.failed is None else ""
    if costed.run is Run.ENGINE:
        said = said.replace(", or fewer and cheaper starts (torch.compile, CUDA graphs),", "")
    if costed.run is Run.ENGINE or costed.run.compiled:
        said = said.replace(" (torch.compile),", "").replace("torch.compile, ", "")
    return said


_CALLS = ", in {calls}"


def calls_of(spot: HotSpot, costed: CostedRecord) -> str:
    """How often a module calls an operator itself, behind its share: where that is of launches (host and
    device are one), and not of what it computes."""
    calls = units.plural(spot.nodes, "operator call")
    launched = not costed.hosted and longest_wait(costed)[0] is Bound.LAUNCH
    return _CALLS.format(calls=calls) if launched else ""


_STEPS = {"train": "a training step", "prefill": "a prefill", "decode": "a decoding step"}

_MOST = 0.95
"""The share of a measured time that stands for all of it."""


def whole_of(costed: CostedRecord, metric: Metric | None = None) -> str:
    """What the shares are of; of a measured time of which a part is on no node, which part."""
    metric, run = metric or costed.tree.metric, costed.profile.measured
    said = _OF[metric]
    if metric is Metric.SECONDS and costed.hosted:
        return "the device's work"
    if metric is not Metric.MEASURED or run is None or run.attributed >= _MOST:
        return said
    return f"{said} that is on its nodes ({units.percent(run.attributed)} of all)"


def timed(costed: CostedRecord) -> str:
    """What the time of nodes is called: the run's, or where the host is the limit, the device's alone."""
    return "the device's predicted time" if costed.hosted else "predicted time"


def total_of(costed: CostedRecord) -> str:
    """The time on the device as the sentence has it; with the energy and the price where that was asked."""
    said = "" if costed.prediction is None else costed.prediction.said + way(costed.run)
    if (gain := costed.speed_up) is not None:
        said += f", {gain.factor:.2f} times as fast as eager"
    if costed.price is None:
        return said
    energy = "" if costed.energy is None else f", {costed.energy.written}"
    return f"{said}{energy}, price {costed.price.written}"


def way(run: Run) -> str:
    """How it was run, behind its time; nothing of an eager run."""
    if run is Run.ENGINE:
        return " through an engine"
    said = ["compiled"] * run.compiled + ["as graphs"] * run.recorded
    return f" {', '.join(said)}" if said else ""


def headline_data(costed: CostedRecord) -> dict[str, Any]:
    """The words of the sentence, for a page that knows the figures of every device."""
    return {
        **_sentences(costed),
        "idle": _idle(costed),
        "inputs": _inputs(costed),
        "of": {"measured": whole_of(costed), "time": _IT[0], "hosted": _IT[1], "flops": _OF[Metric.FLOPS],
               "bytes": _OF[Metric.BYTES]},
        "calls": _CALLS,
        "words": {b.value: (*words[:2], _advice(b, costed)) for b, words in _WORDS.items()},
        "meaning": _NO_DEVICE if costed.graph.failed is None else "",
    }  # fmt: skip


def _inputs(costed: CostedRecord) -> str:
    """The distinct shapes of the first inputs, what is in fewer bits, and of what it is a step: 1x128 with
    weights in int4, a decoding step."""
    graph, kept = costed.graph, safe(kept_in(costed.profile.convention))
    shapes = list(dict.fromkeys(units.shape(graph.value[v].shape) for v in graph.inputs))
    said = " and ".join(shapes) or "without inputs"
    if len(shapes) > 2:
        said = f"{shapes[0]}, {shapes[1]} and {len(shapes) - 2} more"
    said += f" with {kept}" if kept else ""
    step = _STEPS.get(costed.profile.mode)
    return f"{said}, {step}" if step else said
