"""The `eager` tracer: it runs the model's own forward once and records what happens, on fake tensors, or
on real ones where the values of the data decide the path."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._pytree import tree_leaves

from opgraph.inputs.base import Example
from opgraph.record.errors import TraceError
from opgraph.sources.base import Model
from opgraph.tracing.base import Outcome, arguments, record

_NEEDS_VALUES = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    GuardOnDataDependentSymNode,
)
_SIGNS_OF_FAKE = (
    "fake", "meta tensor", "meta device", "data_ptr", "numpy() is not supported", "tensor subclass",
    "no data", "storage", "data dependent", "data-dependent", "couldn't swap",
    "quantized::",
)  # fmt: skip


def trace_fake(model: Model, example: Example, **how: Any) -> Outcome:
    """One run on fake tensors: milliseconds, and no memory for weights or activations. `how` goes to
    `record`."""
    return record(_ready(model.module, example), example, **how)


def trace_real(model: Model, example: Example, **how: Any) -> Outcome:
    """One run on real tensors: for models whose path depends on values. `how` goes to `record`.

    Raises `TraceError` when the model has no weights and cannot be built with them.
    """
    return record(materialized(model), example, real=True, **how)


def trace_either(model: Model, example: Example, **how: Any) -> list[Outcome]:
    """One run on fake tensors and, where the values of the data decide the path, one in which the inputs
    have values, and at last one on real tensors altogether."""
    attempts = [trace_fake(model, example, **how)]
    if needs_values(attempts[-1].error) and _has_numbers(example):
        attempts.append(trace_fake(model, example, real_inputs=True, **how))
    if needs_values(attempts[-1].error):
        attempts.append(trace_real(model, example, **how))
    return attempts


def _has_numbers(example: Example) -> bool:
    """Whether there are inputs that a fake run would fake."""
    leaves = tree_leaves((tuple(example.args), dict(example.kwargs)))
    return any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in leaves)


def needs_values(error: BaseException | None) -> bool:
    """Whether a forward failed only because fake tensors have no values."""
    if error is None:
        return False
    text = str(error).lower()
    return isinstance(error, _NEEDS_VALUES) or any(sign in text for sign in _SIGNS_OF_FAKE)


def materialized(model: Model) -> torch.nn.Module:
    """The model with real weights: its own, or random ones where it has none."""
    module: torch.nn.Module = model.module
    tensors = [*module.parameters(), *module.buffers()]
    if all(t.device.type == "cpu" and type(t).__name__ != "FakeTensor" for t in tensors):
        return module
    if model.materialize is not None:
        built: torch.nn.Module = model.materialize()
        return built
    try:
        return _with_random_weights(module)
    except (RuntimeError, TypeError, MemoryError) as error:
        raise TraceError(f"{model.info.name} has no weights to run on: {error}") from error


def _with_random_weights(module: torch.nn.Module) -> torch.nn.Module:
    memo: dict[int, torch.Tensor] = {}
    for table in (t for m in module.modules() for t in (m._parameters, m._buffers)):
        for tensor in table.values():
            if tensor is None or id(tensor) in memo:
                continue
            if tensor.device.type == "cpu" and type(tensor).__name__ != "FakeTensor":
                continue
            real = torch.empty(tensor.shape, dtype=tensor.dtype)
            real = real.normal_(std=0.02) if real.is_floating_point() else real.zero_()
            if isinstance(tensor, torch.nn.Parameter):
                real = torch.nn.Parameter(real, requires_grad=tensor.requires_grad)
            memo[id(tensor)] = real
    return copy.deepcopy(module, memo)


def _ready(module: torch.nn.Module, example: Example) -> torch.nn.Module:
    """A module whose parameters have sizes: lazy ones learn theirs from a run of a copy."""
    if not any(torch.nn.parameter.is_lazy(p) for p in module.parameters()):
        return module
    warm = copy.deepcopy(module)
    args, kwargs = arguments(example, None)
    with torch.no_grad():
        warm(*args, **kwargs)
    return warm
