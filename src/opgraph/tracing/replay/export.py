"""The `export` tracer: non-strict `torch.export`, which gives the graph of ATen operators that deployment
gets, run node by node like the others."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.export.graph_signature import InputKind
from torch.fx.experimental import symbolic_shapes
from torch.utils._pytree import tree_leaves

from opgraph.inputs.base import Example
from opgraph.record.turns import replaced
from opgraph.sources.base import Model
from opgraph.tracing.base import Outcome, Runner, TraceOptions, quiet
from opgraph.tracing.capture.recorder import Recorder
from opgraph.tracing.eager import trace_fake
from opgraph.tracing.replay.replay import Replay, plain_arguments, plain_forward


def trace(model: Model, example: Example, options: TraceOptions) -> list[Outcome]:
    """The tracer. Export never sees values, so there is nothing to be had from real tensors."""
    return [trace_fake(model, example, capture=capture, tracer="export", **options.run)]


def capture(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Runner:
    """A capture by `torch.export`, in the form before decomposition."""
    from torch.export import _trace

    # Torch prints its graph when it fails, and logs; the reason is in the error. What the model prints is
    # not torch's, nor is a stream that what it imports may keep.
    with (
        replaced(_trace, "print", lambda *_, **__: None),
        quiet(logging.getLogger(symbolic_shapes.__name__)),
    ):
        program = exported(module, args, kwargs)
    for node in program.graph.find_nodes(op="call_function", target=_COPIED):
        node.target = _NOT_COPIED
    values = placeholders(program, module, args, kwargs)

    def run(recorder: Recorder) -> Any:
        modules = dict(module.named_modules(remove_duplicate=False))
        replay = Replay(
            program.graph, program.graph_module, recorder, lambda _, name: modules.get(name)
        )
        return replay.replay(values)

    return run


_COPIED, _NOT_COPIED = torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift_fresh.default
"""What a program has for a constant in the forward's own text, so that it could run again; and what the
forward runs. A replay runs once."""


def exported(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> torch.export.ExportedProgram:
    """The program of a module's forward, with plain arguments and results. For use under a guard: the
    module's forward is replaced."""
    module.__dict__["forward"] = plain_forward(module.forward, args, kwargs)
    plain_args, plain_kwargs = plain_arguments(args, kwargs)
    with torch.no_grad():
        return torch.export.export(module, plain_args, plain_kwargs, strict=False)


def placeholders(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> dict[fx.Node, Any]:
    """Values for the placeholders of a program: weights, constants, and the arguments in order."""
    weights: dict[str, Tensor] = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    given = iter(tree_leaves(plain_arguments(args, kwargs)))
    values: dict[fx.Node, Any] = {}
    nodes = program.graph.find_nodes(op="placeholder")
    for node, spec in zip(nodes, program.graph_signature.input_specs, strict=True):
        if spec.kind is InputKind.USER_INPUT:
            values[node] = next(given)
        elif spec.target in weights:
            values[node] = weights[spec.target]
        else:
            values[node] = program.constants.get(spec.target)
    return values
