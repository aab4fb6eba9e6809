"""The `fx` tracer: `torch.fx` follows the forward with symbols in place of tensors, and the graph that it
finds is run node by node. The modules of torch.nn are leaves: one node each, with their kernels inside.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from opgraph.inputs.base import Example
from opgraph.record.errors import InputError, TraceError, first_line
from opgraph.record.turns import replaced
from opgraph.sources.base import Model
from opgraph.sources.locations import raised_location
from opgraph.tracing.base import Capture, Outcome, Runner, TraceOptions, named
from opgraph.tracing.capture.recorder import Recorder
from opgraph.tracing.eager import trace_either
from opgraph.tracing.fake.tensors import needs_values
from opgraph.tracing.replay.replay import Replay
from opgraph.tracing.state.reach import Reach


def trace(model: Model, example: Example, options: TraceOptions) -> list[Outcome]:
    """The tracer: on fake tensors, and on real ones where values are looked at."""
    how = capture(options.concrete_args)
    beside = *example.beside, *options.concrete_args.values()
    example = replace(example, beside=beside)  # which the forward may change, too
    return trace_either(model, example, capture=how, tracer="fx", **options.run)


def capture(concrete_args: Mapping[str, Any]) -> Capture:
    """A capture by symbolic tracing, with some arguments of forward taken as they are."""

    def find(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Runner:
        graph, values = symbolic_graph(module, *_with(module, args, kwargs, concrete_args))

        def run(recorder: Recorder) -> Any:
            modules = dict(module.named_modules())
            replay = _InPrecision(graph, module, recorder, lambda _, name: modules.get(name))
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
        with tracer.precision_followed():
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
        # What the forward has put into its modules are symbols. The guard of the run brings all back, too,
        # and says what could not be.
        before.restore()
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
        self._precision: list[Any] = []

    @contextmanager
    def precision_followed(self) -> Iterator[None]:
        """Within, nodes know in which contexts of autocast they are made, which are none themselves."""
        entered, enter, leave = self._precision, _autocast.__enter__, _autocast.__exit__

        def entering(context: Any) -> Any:
            entered.append(context)
            return enter(context)

        def leaving(context: Any, *reason: Any) -> Any:
            entered.remove(context)
            return leave(context, *reason)

        with (
            replaced(_autocast, "__enter__", entering),
            replaced(_autocast, "__exit__", leaving),
        ):
            yield

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """What fx has for each thing that is done."""
        node = super().create_node(*args, **kwargs)
        node.meta["autocast"] = tuple(self._precision)
        return node

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


class _InPrecision(Replay):
    """Runs each node within the contexts of autocast that it was made in."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._entered: list[Any] = []

    def replay(self, values: Mapping[fx.Node, Any], fragment: int = 1) -> Any:
        try:
            return super().replay(values, fragment)
        finally:
            self._enter_autocast(())

    def run_node(self, n: fx.Node) -> Any:
        self._enter_autocast(n.meta.get("autocast", ()))
        return super().run_node(n)

    def _enter_autocast(self, wanted: tuple[Any, ...]) -> None:
        """Leave the contexts that have ended since the last node, and enter those that have begun."""
        entered = self._entered
        while entered and entered != list(wanted[: len(entered)]):
            entered.pop().__exit__(None, None, None)
        for context in wanted[len(entered) :]:
            context.__enter__()
            entered.append(context)


_autocast: Any = torch.amp.autocast_mode.autocast


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
