"""The `hybrid` tracer, the classic ladder: after a warm-up, symbolic tracing, then Dynamo, then a plain
run. The first that gets through wins, and every attempt before it is kept with its reason."""

from __future__ import annotations

from dataclasses import replace

from opgraph.inputs.base import Example
from opgraph.sources.base import Model
from opgraph.tracing import eager
from opgraph.tracing.base import Outcome, TraceOptions
from opgraph.tracing.replay import dynamo, fx


def trace(model: Model, example: Example, options: TraceOptions) -> list[Outcome]:
    """The tracer: all attempts, the last being the one that got through, or the plain run."""
    warm = replace(options, warm_up=True)
    attempts: list[Outcome] = []
    for tracer in (fx.trace, dynamo.trace):
        attempts += tracer(model, example, warm)
        if attempts[-1].graph is not None and attempts[-1].error is None:
            return attempts
    return attempts + eager.trace_either(model, example, warm_up=True)
