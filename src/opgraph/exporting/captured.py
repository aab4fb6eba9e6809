"""A captured graph with what its placeholders stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from opgraph.record.errors import TraceError, first_line
from opgraph.tracing.base import Stage, named
from opgraph.tracing.replay.dynamo import Watch, clean, entry
from opgraph.tracing.replay.export import exported, placeholders
from opgraph.tracing.replay.fx import symbolic_graph
from opgraph.tracing.replay.replay import plain_result


@dataclass(frozen=True, slots=True)
class Captured:
    """A graph; the module that its attributes and leaves are of; the values of its placeholders; the
    tensors of the call by name, in order; from what the graph returns to what the model returns, as plain
    containers; and from an entry of `nn_module_stack`, its key and name, to the path of the module."""

    graph: fx.Graph
    root: nn.Module
    values: dict[fx.Node, Any]
    inputs: dict[str, Tensor]
    result: Callable[[Any], Any] = lambda returned: returned
    path: Callable[[str, str], str] = lambda _key, name: name


def capture(module: nn.Module, stage: Stage, tracer: str) -> Captured:
    """Capture a staged model as one graph.

    Raises `TraceError` when the tracer cannot, or gives more than one graph.
    """
    inputs = dict(named(module, stage.args, stage.kwargs))
    try:
        return _CAPTURES[tracer](module, stage, inputs)
    except TraceError:
        raise
    except Exception as error:
        raise TraceError(f"{tracer} does not get through: {first_line(error)}") from error


def fragments(module: nn.Module, stage: Stage) -> list[fx.GraphModule]:
    """What Dynamo captures of a staged model: one graph for each fragment, as they run."""
    found: dict[int, fx.GraphModule] = {}

    def keep(gm: fx.GraphModule, _example: list[Any]) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            found.setdefault(id(gm), gm)
            return gm.forward(*values)

        return run

    with clean() as looked, stage.guard.listening():
        context = torch._dynamo.optimize(keep)
        context.callback = Watch(context.callback, looked)
        context(entry(module))(*stage.args, **stage.kwargs)
    return list(found.values())


def _by_export(module: nn.Module, stage: Stage, inputs: dict[str, Tensor]) -> Captured:
    with stage.guard.listening():
        program = exported(module, stage.args, stage.kwargs)
    spec = program.call_spec.out_spec
    return Captured(
        graph=program.graph,
        root=program.graph_module,
        values=placeholders(program, module, stage.args, stage.kwargs),
        inputs=inputs,
        result=lambda returned: tree_unflatten(list(returned), spec),
    )


def _by_fx(module: nn.Module, stage: Stage, inputs: dict[str, Tensor]) -> Captured:
    with stage.guard.listening():
        graph, values = symbolic_graph(module, stage.args, stage.kwargs)
    return Captured(graph, module, dict(values), inputs)


def _by_dynamo(module: nn.Module, stage: Stage, inputs: dict[str, Tensor]) -> Captured:
    runs: list[tuple[fx.GraphModule, tuple[Any, ...], tuple[Any, ...]]] = []

    def keep(gm: fx.GraphModule, _example: list[Any]) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            with stage.guard.listening():
                returned = gm.forward(*values)
            runs.append((gm, values, returned))
            return returned

        return run

    with clean() as looked:
        context = torch._dynamo.optimize(keep, nopython=True)
        context.callback = Watch(context.callback, looked)
        result = plain_result(context(entry(module))(*stage.args, **stage.kwargs))
    if len(runs) != 1:
        raise TraceError(f"dynamo gives {len(runs)} graphs, and a file holds one")
    gm, values, returned = runs[0]
    nodes = gm.graph.find_nodes(op="placeholder")
    leaves, spec = tree_flatten(result)
    position = {id(t): i for i, t in enumerate(returned)}
    if any(isinstance(leaf, Tensor) and id(leaf) not in position for leaf in leaves):
        raise TraceError("dynamo makes the result of the model outside of the graph")

    def result_of(out: Any) -> Any:
        return tree_unflatten(
            [out[position[id(t)]] if isinstance(t, Tensor) else t for t in leaves], spec
        )

    paths = {str(id(m)): path for path, m in module.named_modules()}
    return Captured(
        gm.graph, gm, dict(zip(nodes, values, strict=True)), inputs, result_of,
        lambda key, _name: paths.get(key.partition("@")[0], ""),
    )  # fmt: skip


_CAPTURES: dict[str, Callable[[nn.Module, Stage, dict[str, Tensor]], Captured]] = {
    "export": _by_export,
    "dynamo": _by_dynamo,
    "fx": _by_fx,
}
