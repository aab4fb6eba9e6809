"""The `eager` tracer: it runs the model's own forward once and records what happens, on fake tensors, or
on real ones where the values of the data decide the path."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from opgraph.inputs.base import Example
from opgraph.record import units
from opgraph.record.errors import InputError, TraceError, first_line
from opgraph.record.remarks import Remark
from opgraph.record.turns import turn
from opgraph.sources.base import Model
from opgraph.sources.pipelines import Pipelined
from opgraph.sources.ranks import current
from opgraph.sources.weightless import give_back, one_request, resident
from opgraph.tracing.base import Outcome, arguments, record
from opgraph.tracing.fake.tensors import is_away, needs_values
from opgraph.tracing.fake.types import is_its_own, unasked
from opgraph.tracing.fake.weights import set_eval, stored_bytes
from opgraph.tracing.parts import parameters_of, parts_of, tensors_of
from opgraph.tracing.state.asking import asking
from opgraph.tracing.state.copies import copied, ending
from opgraph.tracing.state.guard import MEASURED, guarded
from opgraph.tracing.state.memory import free_bytes
from opgraph.tracing.state.process import put_back


@turn()
def trace_fake(model: Model, example: Example, **how: Any) -> Outcome:
    """One run on fake tensors: milliseconds, and no memory for weights or activations. `how` goes to
    `record`."""
    with ending():
        return record(sized(model.module, example), example, **how)


def trace_fakes(model: Model, example: Example, **how: Any) -> list[Outcome]:
    """One run on fake tensors, and where forward differentiates one with gradients on."""
    return _graded(trace_fake, model, example, how)


def _graded(
    run: Callable[..., Outcome], model: Model, example: Example, how: dict[str, Any]
) -> list[Outcome]:
    """A run, and another one with gradients on where forward was refused them, they are on around the call,
    and they lead to something else."""
    found = run(model, example, **how)
    on = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    if found.gradients or not (on and found.ungraded):
        return [found]
    again = run(model, example, **{**how, "gradients": True})
    ends = [o.error and first_line(o.error) for o in (found, again)]
    same = again.error is not None and ends[0] == ends[1]
    return [replace(found, ungraded=False)] if same else [found, again]


@turn()
def trace_real(model: Model, example: Example, **how: Any) -> Outcome:
    """One run on real tensors: for models whose path depends on values. `how` goes to `record`.

    Raises `TraceError` when the model has no weights and cannot be built with them in the memory that they
    may take.
    """
    limit = _limit(how.pop("memory_limit", None))
    with one_request() as began, _returned(resident()), ending():
        ceiling, weights = None, limit
        if began is not None and limit >= MEASURED:
            ceiling = began + int(limit * (1 - _BESIDE) * 2**30)
            give_back()
            weights = min(limit, (ceiling - (resident() or 0)) / 2**30)
        _refuse_too_large(sum(map(stored_bytes, _away(model.module))), limit)
        module = sized(materialized(model, weights), example)
        left = limit - (0 if module is model.module else _bytes(module) / 2**30)
        try:
            return record(module, example, real=True, memory_limit=left, ceiling=ceiling, **how)
        finally:
            del module


@contextmanager
def _returned(began: int | None) -> Iterator[None]:
    """Let the system have what a run on real tensors took, where that was much: the C library would keep
    it, and later runs in this process would be held to less. Where much is there still, it leads to itself,
    and is looked for among all objects that there are, which takes half a second."""
    try:
        yield
    finally:
        for more in (False, True):
            if began is not None and (resident() or 0) - began > _MUCH:
                if more:
                    gc.collect()
                give_back()


_MUCH = 2**28
"""Bytes by which a process has grown so much that looking through it pays."""

_BESIDE = 1 / 16
"""The part of a limit that is for what is there before and after a run on real tensors."""


def _limit(memory_limit: float | None) -> float:
    """The memory that a run on real tensors may take, in GiB: half of what is free, if nothing is said."""
    return free_bytes() / 2**31 if memory_limit is None else memory_limit


@unasked()
def _bytes(module: torch.nn.Module) -> int:
    """The bytes of all parameters and buffers of which the size is known."""
    return sum(stored_bytes(t) for t in tensors_of(module) if not torch.nn.parameter.is_lazy(t))


@one_request()
def trace_either(
    model: Model, example: Example, made_up: Callable[[], bool] = lambda: False, **how: Any
) -> list[Outcome]:
    """One run on fake tensors and, where it failed since none is on a GPU, one in which they say that they
    are; where the values of the data decide the path (or a plain run fails for whatever reason), one in
    which experts are chosen evenly, if there are any, one in which the inputs have values, if those may
    help, and at last one on real tensors altogether. The outcome that counts is the last. Where what a run
    chooses from is `made_up`, as labels are, it is chosen evenly, too."""
    plain = "tracer" not in how
    attempts = trace_fakes(model, example, **how)
    how["gradients"] = attempts[-1].gradients
    if attempts[-1].error is not None and attempts[-1].of_place:
        attempts.append(trace_fake(model, example, placed=True, **how))
        how["placed"] = attempts[-1].error is None or needs_values(attempts[-1].error)
    # Among ranks, what each is sent hangs on values that a run may take from memory nothing was written to.
    apart = current() is not None and attempts[-1].error is not None
    lacks = apart or _lacks_values(attempts[-1])
    if lacks and (made_up() or _chooses(attempts[-1])):
        attempts.append(trace_fake(model, example, spread=True, **how))
    hangs = _hangs_on_weights(attempts[-1], model)
    if _lacks_values(attempts[-1]) and _has_numbers(example) and not hangs:
        attempts.append(trace_fake(model, example, real_inputs=True, **how))
    sent = isinstance(model.module, Pipelined)  # what other stages send has no values
    real = None
    if not sent and (_lacks_values(attempts[-1]) or (plain and _failed_for_no_size(attempts[-1]))):
        lacking = attempts[-1]
        attempts += _graded(_tried_on_real, model, example, how)
        real = attempts[-1]
        # The best one of a few is a label as often as an expert: it is made up where nothing else is left.
        if real.graph is None and _chooses(lacking, "aten.argmax"):
            attempts.append(trace_fake(model, example, spread=True, **how))
    counting = _counting(attempts)
    return [*(o for o in attempts if o is not counting), said(counting, real)]


def _chooses(outcome: Outcome, by: str = "aten.topk") -> bool:
    """Whether a run that failed had chosen a few of up to 1,024 by their scores: experts, perhaps."""
    chosen = (
        k
        for n in (() if outcome.graph is None else outcome.graph.nodes)
        for k in n.kernels
        if k.op == by and len(k.shapes) == 1
    )
    sizes = ((k.shapes[0][-1], k.out_shapes[0]) for k in chosen if k.shapes[0])
    return any(
        isinstance(n, int) and n <= _EXPERTS and (few[-1] != n if by == "aten.topk" else few != ())
        for n, few in sizes
    )


_EXPERTS = 1_024
"""More experts than any mixture has; detectors choose from more boxes."""


def _lacks_values(outcome: Outcome) -> bool:
    """Whether a forward failed for want of values, or caught such a failure itself."""
    return outcome.caught is not None or needs_values(outcome.error)


@unasked()
def _hangs_on_weights(outcome: Outcome, model: Model) -> bool:
    """Whether all that a forward failed at was computed from weights, which have no values where the inputs
    have some, either: it would fail there again."""
    failed = None if outcome.graph is None else outcome.graph.failed
    if outcome.graph is None or failed is None or outcome.caught is not None:
        return False
    found = {v.id for v in outcome.graph.values if v.kind == "parameter"}
    for node in outcome.graph.nodes:
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    stand_ins = not any(map(is_its_own, parameters_of(model.module)))
    return stand_ins and bool(failed.inputs) and found.issuperset(failed.inputs)


def _failed_for_no_size(outcome: Outcome) -> bool:
    """Whether a forward failed, and not because a layer got other sizes than it states, or there is no
    memory for its graph, as it would with real tensors, too."""
    return outcome.error is not None and not outcome.misfit and not outcome.too_large


def _tried_on_real(model: Model, example: Example, **how: Any) -> Outcome:
    """The attempt on real tensors, or the reason why there is none."""
    start = time.perf_counter()
    try:
        return trace_real(model, example, **how)
    except TraceError as error:
        tracer = how.get("tracer", "eager")
        return Outcome(tracer, "real", None, error, time.perf_counter() - start)


def _counting(attempts: list[Outcome]) -> Outcome:
    """Of several attempts the one that counts: the last that got through, or else the last with a graph."""
    if attempts[-1].too_large:
        return attempts[-1]
    through = [o for o in attempts if o.graph is not None and o.error is None]
    partial = [o for o in attempts if o.graph is not None]
    return (through or partial or attempts)[-1]


def said(outcome: Outcome, real: Outcome | None = None) -> Outcome:
    """The same with a remark where the run went on without a value, and why none on real tensors counts."""
    refused = real is not None and real.tensors == "real" and real.error is not None
    why = f"on real tensors: {real.attempt.error}" if real is not None and refused else ""
    if outcome.ungraded and outcome.error is not None and not outcome.gradients:
        off = "was not traced with gradients on: they are off around the call (torch.no_grad or the like)"
        outcome = replace(outcome, notes=(*outcome.notes, Remark("gradients", off)))
    if outcome.caught is not None:
        text = f"went on without a value, perhaps not as with real data: {outcome.caught}"
        note = Remark("made-up-data", text + (why and f"; {why}"))
    elif outcome.error is not None and real is not outcome and why:
        note = Remark("real-tensors", f"was not traced {why}")
    else:
        return outcome
    return replace(outcome, notes=(*outcome.notes, note))


@unasked()
def _has_numbers(example: Example) -> bool:
    """Whether there are inputs that a fake run would fake."""
    with asking(*example.given):
        leaves = tree_leaves((tuple(example.args), dict(example.kwargs)))
    return any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in leaves)


@turn()
def materialized(model: Model, memory_limit: float | None = None) -> torch.nn.Module:
    """The model with real weights: its own, or random ones where it has none.

    Raises `TraceError` where they cannot be made, or take more than the `memory_limit` in GiB (half of what
    is free, if it is None).
    """
    module: torch.nn.Module = model.module
    if _has_values(module):
        return module
    if current() is not None:
        raise TraceError("among pretended ranks nothing is real to run on")
    _refuse_too_large(_bytes(module), max(0.0, _limit(memory_limit)))
    with put_back():  # random numbers among them
        try:
            if model.materialize is not None:
                module = model.materialize()
            return module if _has_values(module) else _with_random_weights(module)
        except (RuntimeError, TypeError, MemoryError) as error:
            raise TraceError(f"{model.info.name} has no weights to run on: {error}") from error


def _refuse_too_large(needed: int, limit: float) -> None:
    """Raise `TraceError` where weights take more than a limit in GiB."""
    if needed > limit * 2**30:
        raise TraceError(
            f"weights of {units.size(needed)} are more than the {units.size(limit * 2**30)} that a run on "
            "real tensors may take (--memory-limit)"
        )


@unasked()
def _away(module: torch.nn.Module) -> list[torch.Tensor]:
    """The weights that are on an accelerator, of which a run has copies."""
    return [t for t in tensors_of(module) if is_away(t)]


@unasked()
def _has_values(module: torch.nn.Module) -> bool:
    """Whether all weights are there to be computed with."""
    return all(map(_has_value, tensors_of(module)))


def _has_value(tensor: torch.Tensor) -> bool:
    return tensor.device.type != "meta" and type(tensor).__name__ != "FakeTensor"


@unasked()
def _with_random_weights(module: torch.nn.Module) -> torch.nn.Module:
    memo: dict[int, torch.Tensor] = {}
    for table in (t for m in parts_of(module) for t in (m._parameters, m._buffers)):
        for tensor in table.values():
            if tensor is None or id(tensor) in memo:
                continue
            if _has_value(tensor):
                continue
            real = torch.empty(tensor.shape, dtype=tensor.dtype)
            real = real.normal_(std=0.02) if real.is_floating_point() else real.zero_()
            if isinstance(tensor, torch.nn.Parameter):
                real = torch.nn.Parameter(real, requires_grad=tensor.requires_grad)
            memo[id(tensor)] = real
    return copied(module, memo)


_LAZY: Any = torch.nn.parameter.UninitializedTensorMixin
"""Parameters and buffers whose sizes a first run says."""


def sized(module: torch.nn.Module, example: Example) -> torch.nn.Module:
    """A module whose parameters have sizes: lazy ones learn theirs from a run of a copy."""
    tables = (t for m in parts_of(module) for t in (m._parameters, m._buffers))
    lazy = [t for table in tables for t in table.values() if isinstance(t, _LAZY)]
    if not lazy:
        return module
    # Torch copies no buffer without a size.
    memo = {id(t): type(t)(t.requires_grad, device=t.device, dtype=t.dtype) for t in lazy}
    try:
        warm = copied(module, memo)
    except Exception as error:
        raise InputError(
            f"its lazy layers cannot be copied to be run: {first_line(error)}"
        ) from error
    with guarded([module, *example.given]) as guard:
        args, kwargs = arguments(example, None)
        try:
            modes = [(m, m.training) for m in warm.modules()]
            set_eval([m for m, _ in modes])
            warm(*args, **kwargs)
        except BaseException as error:  # a model may raise anything, SystemExit too
            if guard.interrupted(error):
                raise
            raise InputError(
                "its lazy layers learn their sizes from a first run of a copy, which failed: "
                f"{first_line(error)}"
            ) from error
    for each, training in modes:
        each.training = training
    return warm
