"""From a model and example inputs to a `Graph`. A tracer is one function; the registry names them."""

from __future__ import annotations

from collections.abc import Callable

from opgraph.inputs.base import Example
from opgraph.record.errors import TraceError
from opgraph.sources.base import Model
from opgraph.tracing import eager
from opgraph.tracing.base import Outcome, TraceOptions
from opgraph.tracing.replay import dynamo, export, fx, hybrid

Tracer = Callable[[Model, Example, TraceOptions], list[Outcome]]
"""Takes a model and its example inputs; gives every attempt in order, the last one being what counts."""


def _auto(model: Model, example: Example, options: TraceOptions) -> list[Outcome]:
    """`eager` on fake tensors; where the values of the data decide the path, on real tensors."""
    return eager.trace_either(model, example, warm_up=options.warm_up, told=options.told)


def _eager(model: Model, example: Example, options: TraceOptions) -> list[Outcome]:
    return [eager.trace_fake(model, example, warm_up=options.warm_up, told=options.told)]


tracers: dict[str, Tracer] = {
    "auto": _auto,
    "eager": _eager,
    "fx": fx.trace,
    "dynamo": dynamo.trace,
    "export": export.trace,
    "hybrid": hybrid.trace,
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
