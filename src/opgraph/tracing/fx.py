"""The `fx` tracer: `torch.fx` follows the forward with symbols in place of tensors, and the graph that it
finds is run node by node. The modules of torch.nn are leaves: one node each, with their kernels inside.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from opgraph.inputs.base import Example
from opgraph.sources.base import Model
from opgraph.tracing.base import Capture, Outcome, Runner, TraceOptions, bound
from opgraph.tracing.eager import trace_either
from opgraph.tracing.recorder import Recorder
from opgraph.tracing.replay import Replay


def trace(model: Model, example: Example, options: TraceOptions) -> list[Outcome]:
    """The tracer: on fake tensors, and on real ones where values are looked at."""
    how = capture(options.concrete_args)
    return trace_either(model, example, capture=how, tracer="fx", warm_up=options.warm_up)


def capture(concrete_args: Mapping[str, Any]) -> Capture:
    """A capture by symbolic tracing, with some arguments of forward taken as they are."""

    def find(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Runner:
        given = bound(module, args, kwargs)
        fixed = concrete(module, given) | dict(concrete_args)
        graph = symbolic_graph(module, fixed)
        values = placeholders(graph, given, fixed)

        def run(recorder: Recorder) -> Any:
            modules = dict(module.named_modules())
            replay = Replay(graph, module, recorder, lambda _, name: modules.get(name))
            return replay.replay_whole(values)

        return run

    return find


def symbolic_graph(module: torch.nn.Module, concrete_args: Mapping[str, Any]) -> fx.Graph:
    """The graph of a module's forward, with the user's source lines. Raises what the forward raises when
    it looks at a symbol as only a tensor can be looked at."""
    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    return tracer.trace(module, dict(concrete_args) or None)


def concrete(module: torch.nn.Module, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are taken as they are: those that hold no tensor, and those left out of the
    call, whose defaults hold."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(module.forward).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = given.get(name, parameter.default)
        if not any(isinstance(leaf, Tensor) for leaf in tree_leaves(value)):
            found[name] = value
    return found


def placeholders(
    graph: fx.Graph, given: Mapping[str, Any], fixed: Mapping[str, Any]
) -> dict[fx.Node, Any]:
    """Values for the placeholders of a symbolic graph: an argument that was taken as it is has one for
    each of its leaves, with a number behind its name."""
    leaves = {name: iter(tree_leaves(value)) for name, value in fixed.items()}
    values: dict[fx.Node, Any] = {}
    for node in graph.find_nodes(op="placeholder"):
        target = str(node.target)
        name = target.lstrip("*")
        parts = leaves.get(name.rpartition("_")[0])
        if parts is not None:
            values[node] = next(parts)
        else:
            values[node] = given.get(name, {} if target.startswith("**") else ())
    return values
