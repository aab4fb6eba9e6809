"""The `fx` tracer: `torch.fx` follows the forward with symbols in place of tensors, and the graph that it
finds is run node by node. The modules of torch.nn are leaves: one node each, with their kernels inside.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from opgraph.inputs.base import Example
from opgraph.record.errors import InputError, TraceError, first_line
from opgraph.sources.base import Model
from opgraph.tracing.base import Capture, Outcome, Runner, TraceOptions, named
from opgraph.tracing.capture.recorder import Recorder
from opgraph.tracing.capture.scopes import raised_location
from opgraph.tracing.eager import trace_either
from opgraph.tracing.fake.tensors import needs_values
from opgraph.tracing.replay.replay import Replay
from opgraph.tracing.state.reach import Reach


def trace(model: Model, example: Example, options: TraceOptions) -> list[Outcome]:
    """The tracer: on fake tensors, and on real ones where values are looked at."""
    how = capture(options.concrete_args)
    return trace_either(model, example, capture=how, tracer="fx", **options.run)


def capture(concrete_args: Mapping[str, Any]) -> Capture:
    """A capture by symbolic tracing, with some arguments of forward taken as they are."""

    def find(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Runner:
        graph, values = symbolic_graph(module, *_with(module, args, kwargs, concrete_args))

        def run(recorder: Recorder) -> Any:
            modules = dict(module.named_modules())
            replay = Replay(graph, module, recorder, lambda _, name: modules.get(name))
            return replay.replay_whole(values)

        return run

    return find


def symbolic_graph(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[fx.Graph, dict[fx.Node, Tensor]]:
    """The graph of a module's forward, with the user's source lines, and the tensors that its
    placeholders stand for. Raises `TraceError`, in one line, where the forward does what only a tensor
    allows."""
    tracer = _Call(args, kwargs, {id(t): name for name, t in named(module, args, kwargs)})
    before = Reach.of([module])
    constants: dict[str, Any] = {}
    try:
        graph = tracer.trace(module)
        held = vars(module)
        constants = {
            n.target: held[n.target] for n in graph.find_nodes(op="get_attr") if n.target in held
        }
        return graph, tracer.values
    except Exception as error:
        if needs_values(error):
            raise
        raise TraceError(_reason(error)) from error
    finally:
        before.restore()  # what the forward has put into its modules are symbols
        vars(module).update(constants)


class _Call(fx.Tracer):
    """Follows one call: its tensors are symbols, and whatever else it is given is taken as it is. So
    forward may be decorated, and may take any number of arguments."""

    def __init__(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], names: Mapping[int, str]
    ) -> None:
        super().__init__()
        self.record_stack_traces = True
        self.proxy_buffer_attributes = True  # so that what is written into them is seen
        self.values: dict[fx.Node, Tensor] = {}
        self._given = args, dict(kwargs)
        self._names = names

    def create_args_for_root(
        self, root_fn: Callable[..., Any], *_: Any
    ) -> tuple[Callable[[], Any], list[Any]]:
        """What is called, and with what."""
        symbols: dict[int, fx.Proxy] = {}

        def symbol(item: Any) -> Any:
            if not isinstance(item, Tensor):
                return item
            if id(item) not in symbols:
                proxy = self.create_proxy("placeholder", self._names[id(item)], (), {})
                symbols[id(item)] = proxy
                self.values[proxy.node] = item
            return symbols[id(item)]

        args, kwargs = tree_map(symbol, self._given)

        def call() -> Any:
            return root_fn(self.root, *args, **kwargs)

        return call, []


def _with(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    concrete_args: Mapping[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, some of them replaced or added. Raises `InputError` for names that forward
    does not know."""
    if not concrete_args:
        return args, dict(kwargs)
    signature = inspect.signature(module.forward)
    call = signature.bind_partial(*args, **kwargs)
    known = [n for n, p in signature.parameters.items() if p.kind in _BY_NAME]
    for name, value in concrete_args.items():
        if name in known:
            call.arguments[name] = value
        else:
            raise InputError(
                f"forward has no argument {name!r}", hint=f"it has {', '.join(known) or 'none'}"
            )
    return call.args, call.kwargs


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_PLAIN = (
    ("inputs to control flow", "branches on a tensor or on its sizes"),
    ("cannot be iterated", "goes through a tensor or its sizes one by one"),
    ("does not support item assignment", "writes into a part of a tensor"),
    ("cannot be interpreted as an integer", "needs a size as a number"),
    ("slice indices must be integers", "needs a size as a number"),
    ("'len' is not supported", "asks for the length of a tensor or of its sizes"),
)


def _reason(error: Exception) -> str:
    """Why symbolic tracing ended, and at which line of the user's: in words where they are known."""
    text = next((words for sign, words in _PLAIN if sign in str(error)), None)
    file, line = raised_location(error.__traceback__)
    what = f"the forward {text}" if text else first_line(error)
    return f"{what} ({file}:{line})" if file else what
