"""From a model and example inputs to a `Graph`. A tracer is one function and one entry in `tracers`.

`trace` runs a tracer by its name, and `plain_difference` says where a captured graph does other work than a
plain run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opgraph.inputs.base import Example
from opgraph.record.errors import TraceError
from opgraph.record.graph import Graph
from opgraph.record.remarks import Remark
from opgraph.sources.base import Model
from opgraph.tracing import eager
from opgraph.tracing.base import COMPILE_FLAGS, Outcome, TraceOptions
from opgraph.tracing.replay import dynamo, export, fx

__all__ = ["Tracer", "plain_difference", "trace", "tracer_named", "tracers"]

Tracer = Callable[[Model, Example, TraceOptions], list[Outcome]]
"""Takes a model and its example inputs; gives every attempt in order, the last one being what counts."""


def _auto(model: Model, example: Example, options: TraceOptions) -> list[Outcome]:
    """`eager` on fake tensors; where the values of the data decide the path, on real tensors."""
    return eager.trace_either(model, example, **options.run, compile_flags=options.compile_flags)


def _eager(model: Model, example: Example, options: TraceOptions) -> list[Outcome]:
    flags = options.compile_flags
    *before, last = eager.trace_fakes(model, example, **options.run, compile_flags=flags)
    return [*before, eager.said(last)]


def _hybrid(model: Model, example: Example, options: TraceOptions) -> list[Outcome]:
    """The classic ladder: after a warm-up, symbolic tracing, then Dynamo, then a plain run. The first
    that gets through wins, and every attempt before it is kept with its reason."""
    warm = replace(options, warm_up=True)
    attempts: list[Outcome] = []
    for tracer in (fx.trace, dynamo.trace):
        attempts += tracer(model, example, warm)
        if attempts[-1].graph is not None and attempts[-1].error is None:
            return attempts
    return attempts + eager.trace_either(model, example, **warm.run)


tracers: dict[str, Tracer] = {
    "auto": _auto,
    "eager": _eager,
    "fx": fx.trace,
    "dynamo": dynamo.trace,
    "export": export.trace,
    "hybrid": _hybrid,
}


def trace(
    model: Model,
    example: Example,
    tracer: str = "auto",
    options: TraceOptions = TraceOptions(),  # noqa: B008  (it is frozen)
) -> list[Outcome]:
    """Trace a model; the last outcome has the graph.

    Raises `TraceError` when there is no such tracer.
    """
    return tracer_named(tracer)(model, example, options)


def tracer_named(name: str) -> Tracer:
    """The tracer of that name. Raises `TraceError` when there is none."""
    if name not in tracers:
        raise TraceError(f"there is no tracer {name!r}", hint=f"one of {', '.join(tracers)}")
    return tracers[name]


# What is to be said of a graph that a compiler captured when a plain run does something else: models ask
# whether they are being compiled, and the totals of such a profile are not those of the plain one.


def plain_difference(
    model: Model, example: Example, outcome: Outcome, *, warm_up: bool
) -> Remark | None:
    """How the totals of a whole graph by Dynamo or export differ from those of a plain run, and why; None
    where they do not, or where nothing on fake tensors can say."""
    flags = COMPILE_FLAGS.get(outcome.tracer)
    if flags is None or outcome.graph is None or outcome.error or outcome.tensors != "fake":
        return None
    how = {"warm_up": warm_up, "target": outcome.target.name, "gradients": outcome.gradients}
    plain = eager.trace_fake(model, example, **how)
    if plain.graph is None or plain.error or _work(plain.graph) == _work(outcome.graph):
        return None
    flagged = eager.trace_fake(model, example, compile_flags=flags, **how)
    same = flagged.graph is not None and _work(flagged.graph) == _work(outcome.graph)
    asked = "being compiled" if flags == "compiling" else "being exported"
    why = f"the model asks whether it is {asked}, and then has" if same else "this graph has"
    where = "" if same else "; opgraph check says where"
    text = f"{why} {_differences(plain.graph, outcome.graph)} than a plain run{where}"
    return Remark("compiled-differs", text)


def _work(graph: Graph) -> tuple[int, int]:
    return sum(n.flops for n in graph.nodes), sum(n.bytes for n in graph.nodes)


def _differences(plain: Graph, other: Graph) -> str:
    """The differences of FLOPs and of bytes, such as "0.33 % more bytes"."""
    pairs = zip(("FLOPs", "bytes of traffic"), _work(plain), _work(other), strict=True)
    return " and ".join(
        f"{abs(b / a - 1) * 100:.2g} % {'more' if b > a else 'fewer'} {what}"
        if a
        else f"{b:,} more {what}"
        for what, a, b in pairs
        if a != b
    )
