"""Every tracer on the same model and inputs, and the other counters beside them: what `opgraph check`
shows. What can be explained by running the model once more is found out here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from opgraph.analysis.check.agreement import Agreement, Trial
from opgraph.api.pipeline import prepared, profile_model
from opgraph.options import Options
from opgraph.record.errors import InputError, TraceError
from opgraph.record.profile import ProfileRecord

if TYPE_CHECKING:
    from torch import nn

    from opgraph.inputs.base import Example
    from opgraph.sources.base import Model

__all__ = ["ALL", "check"]

ALL = ("auto", "fx", "dynamo", "export")
"""The tracers that are compared; the first is what the others are measured by."""


def check(
    model: str | nn.Module,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tracers: Sequence[str] = ALL,
    peers: bool = True,
    **options: Any,
) -> Agreement:
    """Trace a model with every tracer and compare what they found; with `peers`, beside the figures of
    the other counters that are installed. `options` are those of `profile`.

    Raises `SourceError` or `InputError`, and `TraceError` for a tracer that there is none of. A tracer that
    cannot is part of the result.
    """
    asked = Options(**options)
    if asked.mode != "infer":
        raise InputError(f"tracers are compared on one forward, not on {asked.mode}")
    from opgraph.tracing import tracer_named

    for tracer in tracers:
        tracer_named(tracer)
    built, example = prepared(model, inputs, kwargs, asked)
    found = Agreement(
        built.info.name,
        tuple(_trial(built, example, replace(asked, tracer=tracer)) for tracer in tracers),
    )
    told = tuple(
        trial if found.matches(trial) else replace(trial, told=_told(built, example, asked, trial))
        for trial in found.trials
    )
    if not peers:
        return replace(found, trials=told)
    from opgraph.checking.counters import readings

    return replace(found, trials=told, readings=readings(built, example))


def _trial(model: Model, example: Example, options: Options) -> Trial:
    start = time.perf_counter()
    try:
        found = profile_model(model, example, options)
    except TraceError as error:
        text = str(error)
        spent = time.perf_counter() - start
        return Trial(options.tracer, None, text.partition("traced: ")[2] or text, spent)
    failed = found.graph.failed
    reason = None if failed is None else failed.error
    return Trial(found.tracing.tracer, found, reason, found.tracing.seconds)


def _told(model: Model, example: Example, options: Options, trial: Trial) -> ProfileRecord | None:
    """A plain run in which the model hears what it heard from that tracer."""
    from opgraph.tracing.base import COMPILE_FLAGS

    if not trial.whole or trial.tracer not in COMPILE_FLAGS:
        return None
    try:
        found = profile_model(
            model, example, replace(options, tracer="auto"), COMPILE_FLAGS[trial.tracer]
        )
    except TraceError:
        return None
    return found if found.graph.failed is None else None
