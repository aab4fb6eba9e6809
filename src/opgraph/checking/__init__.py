"""Every tracer on the same model and inputs, and the other counters beside them: what `opgraph check`
shows. What can be explained by running the model once more is found out here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from opgraph.analysis.check.agreement import Trial
from opgraph.api.pipeline import as_it_was, prepared, profile_model
from opgraph.options import CAPTURED, OPTIONS, Options, checked, named_options, names, targeted
from opgraph.record.errors import InputError, TraceError
from opgraph.results import CheckedTracers, Profile

if TYPE_CHECKING:
    from torch import nn

    from opgraph.inputs.base import Example
    from opgraph.sources.base import Model

__all__ = ["ALL", "check"]

ALL = ("auto", "fx", "dynamo", "export")
"""The tracers that are compared; the first is what the others are measured by."""


@named_options(names(*CAPTURED))
@as_it_was
def check(
    model: str | nn.Module,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tracers: Sequence[str] = ALL,
    counters: bool = True,
    **options: Any,
) -> CheckedTracers:
    """Trace a model with every tracer and compare what they found; with `counters`, beside the figures of
    the other counters that are installed. `options` are those of `profile`.

    An option for some of the tracers goes to these; without a target the kernels are those of a CPU, on
    which the other counters run. Raises `SourceError` or `InputError`; a tracer that
    cannot is part of the result.
    """
    options = targeted(checked(options, names(*CAPTURED), "check"), "cpu")
    each = {tracer: _asked(tracer, options) for tracer in tracers}
    for name in options:
        if all(name not in own for own in each.values()):
            raise InputError(f"{name} has no effect on the tracers {', '.join(tracers)}")
    asked = Options(**each[tracers[0]])
    built, example = prepared(model, inputs, kwargs, asked)
    found = CheckedTracers(
        built.info.name,
        tuple(_trial(built, example, Options(**own)) for own in each.values()),
    )
    told = tuple(
        trial if found.matches(trial) else replace(trial, told=_told(built, example, asked, trial))
        for trial in found.trials
    )
    if not counters:
        return replace(found, trials=told)
    from opgraph.checking.counters import readings

    kernels = (
        k for t in told if t.profile is not None for n in t.profile.graph.nodes for k in n.kernels
    )
    exchanged = any(k.collective is not None for k in kernels)
    return replace(found, trials=told, readings=readings(built, example, exchanged=exchanged))


def _asked(tracer: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that mean something to a tracer."""
    needs = {name: OPTIONS[name].needs.get("tracer") for name in options}
    found = {name: options[name] for name, of in needs.items() if of is None or tracer in of}
    return {**found, "tracer": OPTIONS["tracer"].check(tracer)}


def _trial(model: Model, example: Example, options: Options) -> Trial:
    start = time.perf_counter()
    try:
        found = Profile.of(profile_model(model, example, options))
    except TraceError as error:
        text = str(error)
        spent = time.perf_counter() - start
        return Trial(options.tracer, None, text.partition("traced: ")[2] or text, spent)
    failed = found.graph.failed
    reason = None if failed is None else failed.error
    return Trial(found.tracing.tracer, found, reason, found.tracing.seconds)


def _told(model: Model, example: Example, options: Options, trial: Trial) -> Profile | None:
    """A plain run in which the model hears what it heard from that tracer."""
    from opgraph.tracing.base import COMPILE_FLAGS

    if not trial.whole or trial.tracer not in COMPILE_FLAGS:
        return None
    try:
        flags = COMPILE_FLAGS[trial.tracer]
        found = profile_model(model, example, replace(options, tracer="auto"), flags)
    except TraceError:
        return None
    return Profile.of(found) if found.graph.failed is None else None
