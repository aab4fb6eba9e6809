"""Running a captured `torch.fx` graph under a recorder, node by node, so that whoever captured it (symbolic
tracing, Dynamo, export), the kernels, costs and names come from the same place as those of a plain run."""

from __future__ import annotations

import copy
import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch.hub import tqdm
from torch.utils.checkpoint import checkpoint

from opgraph.record.errors import TraceError
from opgraph.record.names import canonical
from opgraph.sources.locations import traced_location
from opgraph.tracing.capture.names import cut, short, spelled, target
from opgraph.tracing.capture.recorder import Recorder
from opgraph.tracing.capture.scopes import Call
from opgraph.tracing.capture.values import Record, tensors_in
from opgraph.tracing.fake.types import has_values

ModuleOf = Callable[[str, str], torch.nn.Module | None]
"""From an entry of `nn_module_stack`, its key and its name, to the module; None where it is none of the
model's."""

_DATA = (Tensor, int, float, complex, bool, str, tuple, list, dict, torch.dtype, torch.device, slice,
         torch.SymInt, torch.SymFloat, torch.SymBool, torch.memory_format, torch.layout)  # fmt: skip


class Replay(fx.Interpreter):
    """Runs a graph on given tensors; every node of it that computes becomes one node of the recorder,
    in the scope and at the source line that the capture noted."""

    def __init__(
        self, graph: fx.Graph, root: torch.nn.Module, recorder: Recorder, module_of: ModuleOf
    ) -> None:
        super().__init__(root, graph=graph)
        self.extra_traceback = False
        self._recorder = recorder
        self._module_of = module_of
        self._open: list[str] = []
        self.made: dict[str, int] = {}
        """The position of the record that each node of the graph became, by its name."""
        self.again: dict[str, int] = {}
        """The same of those that a backward ran again, filled when it does."""

    def replay(self, values: Mapping[fx.Node, Any], fragment: int = 1) -> Any:
        """Run with values for the placeholders, as the fragment of that number, and give what the graph
        returns."""
        recorder = self._recorder
        before = recorder.location, recorder.fragment
        recorder.fragment = fragment
        try:
            # The interpreter's progress bar, which is off, would start a thread that looks after bars.
            with mock.patch.object(tqdm, "monitor_interval", 0, create=True):
                result = self.run(initial_env=dict(values), enable_io_processing=False)
            self._enter([])
            return result
        finally:
            for _ in self._open:
                recorder.modules.leave()
            self._open.clear()
            recorder.location, recorder.fragment = before

    def replay_whole(self, values: Mapping[fx.Node, Any]) -> Any:
        """Run the graph of a whole forward: it is a call of the model itself."""
        modules = self._recorder.modules
        modules.enter(self.module)
        result = self.replay(values)
        call = modules.leave()
        modules.inputs[call.path] = self._recorder.table.known(list(values.values()))
        modules.outputs[call.path] = self._recorder.table.known(result)
        return result

    def run_node(self, n: fx.Node) -> Any:
        """Run one node, and see that it is one node in the record too."""
        recorder = self._recorder
        if n.op not in ("call_function", "call_method", "call_module"):
            return super().run_node(n)
        if n.target is tag_activation_checkpoint:
            return self._checkpointed(n)
        stack = list(n.meta.get("nn_module_stack", {}).items())
        if n.op == "call_module" and stack and stack[-1][1][0] == n.target:
            stack.pop()  # the leaf itself: it is really called, and its hooks say so
        self._enter([(key, self._module_of(key, name)) for key, (name, *_) in stack])
        recorder.location = traced_location(n.meta.get("stack_trace"))
        first = len(recorder.records)
        result = super().run_node(n)
        if isinstance(result, fx.Proxy):
            raise TraceError("the forward kept a symbol of the tracing outside of its modules")
        made = len(recorder.records) - first
        if made:
            self.made[n.name] = first
        if made > 1:
            self._fold(first, *self._called(n), leaf=n.op == "call_module")
        elif made == 0 and not isinstance(result, _DATA) and n.target is not operator.getitem:
            self._control(*self._called(n), (*n.args, *n.kwargs.values()))
        return result

    def _checkpointed(self, n: fx.Node) -> Any:
        """Run what was captured of a checkpointed function, a graph of its own, as torch does without a
        compiler: in the forward without keeping anything, and again when its gradients are computed. What
        Dynamo gives to it from outside, as a buffer of a batch norm, may be written to, as in a module."""
        (body, *given), _ = self.fetch_args_kwargs_from_env(n)
        recorder, fragment = self._recorder, self._recorder.fragment

        def run() -> Any:
            inner = Replay(body.graph, body, recorder, self._module_of)
            inner.made = inner.again = self.again
            placed = dict(zip(body.graph.find_nodes(op="placeholder"), given, strict=True))
            if recorder.phase == "backward":
                recorder.phase = "recompute"
                try:
                    return inner.replay(placed, fragment)
                finally:
                    recorder.phase = "backward"
            inner.made, inner._open = self.made, self._open
            return inner.run(initial_env=placed, enable_io_processing=False)

        context = body.meta.get("_checkpoint_context_fn")
        how = {} if context is None else {"context_fn": context}
        return checkpoint(run, use_reentrant=False, preserve_rng_state=has_values(), **how)

    def _control(self, op: str, spelling: str, arguments: Iterable[Any]) -> None:
        """A node for what computes nothing but steers what does: grad mode, autocast, assertions."""
        recorder = self._recorder
        last = len(recorder.capture.kernels)
        recorder.records.append(
            Record("control", op, spelling, recorder.modules.current, cut(", ".join(map(short, arguments))),
                   first=last, last=last, location=recorder.location or (None, None),
                   fragment=recorder.fragment)
        )  # fmt: skip

    def _fold(self, start: int, op: str, spelling: str, *, leaf: bool) -> None:
        """Make one node of all that was recorded from `start` on: the call of a leaf module as a whole,
        or of a function. Where only one of them moves any data, it is that operator still. What was made
        inside and let go is not among the outputs."""
        recorder = self._recorder
        parts = recorder.records[start:]
        working = [
            r for r in parts if any(k.bytes for k in recorder.capture.kernels[r.first : r.last])
        ]
        if len(working) == 1:
            op = working[0].op
        made = [v for r in parts for v in r.outputs]
        read = dict.fromkeys(v for r in parts for v in r.inputs)
        alive = recorder.table.alive()
        call = recorder.modules.current
        if leaf:
            call = Call(recorder.modules.last, nodes=1)
        else:
            call.nodes -= sum(r.call is call for r in parts) - 1
        whole = Record(
            "call", op, spelling, call,
            inputs=[v for v in read if v not in set(made)],
            outputs=[v for v in made if v in alive],
            first=parts[0].first, last=parts[-1].last,
            location=parts[0].location, fragment=parts[0].fragment,
        )  # fmt: skip
        recorder.fold(start, whole)
        owner = recorder.capture.memory.owner
        owner[:] = [None if o is None else min(o, start) for o in owner]

    def _leave(self) -> None:
        """End the call of a module that is not really called, only known from the captured graph. What
        it read and made is known from its nodes, and from which of its results are still needed."""
        recorder = self._recorder
        modules = recorder.modules
        call = modules.leave()
        parts = recorder.records[call.first :]
        made = {v for r in parts for v in r.outputs}
        read = dict.fromkeys(v for r in parts for v in r.inputs)
        modules.inputs[call.path] = tuple(
            v for v in read
            if v not in made and recorder.table.values[v].kind in ("input", "activation")
        )  # fmt: skip
        modules.outputs[call.path] = tuple(
            v for v in recorder.table.known(list(self.env.values())) if v in made
        )

    def _called(self, n: fx.Node) -> tuple[str, str]:
        """The operator of a node, and how it is spelled."""
        if n.op == "call_module":
            cls = type(self.fetch_attr(str(n.target)))
            return _snake(cls.__name__), f"{cls.__module__}.{cls.__qualname__}"
        if n.op == "call_method":
            return canonical(str(n.target)), f"Tensor.{n.target}"
        return canonical(spelled(n.target)), target(n.target)

    def _enter(self, stack: list[tuple[str, torch.nn.Module | None]]) -> None:
        """Leave the module calls that have ended since the last node and enter those that have begun."""
        modules = self._recorder.modules
        wanted = [(key, module) for key, module in stack if module is not None]
        same = 0
        while same < min(len(self._open), len(wanted)) and self._open[same] == wanted[same][0]:
            same += 1
        while len(self._open) > same:
            self._open.pop()
            self._leave()
        for key, module in wanted[same:]:
            self._open.append(key)
            modules.enter(module)


def _snake(name: str) -> str:
    """TransformerEncoderLayer -> transformer_encoder_layer"""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


# A forward whose arguments and results are plain containers of tensors, for tools that take nothing else
# (`torch.export`, ONNX): caches, model outputs and other objects are taken apart at the boundary and put
# together again behind it. Nothing is registered anywhere, so nothing has to be taken back.


def plain_arguments(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with every object that holds tensors replaced by the list of its tensors."""
    return tuple(_apart(a) for a in args), {k: _apart(a) for k, a in kwargs.items()}


def plain_forward(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Callable[..., Any]:
    """`forward` as a function of what `plain_arguments` gives for these arguments, with a plain result:
    tensors, numbers, tuples and dicts with texts as keys."""

    @functools.wraps(forward)
    def plain(*given: Any, **named: Any) -> Any:
        whole = [_together(a, model) for a, model in zip(given, args, strict=True)]
        rest = {k: _together(a, kwargs[k]) for k, a in named.items()}
        return plain_result(forward(*whole, **rest))

    plain.__dict__.pop(
        "__signature__", None
    )  # of the function, which has `self`; the method says its own
    return plain


def plain_result(result: Any) -> Any:
    """A result as plain containers; an object that is none becomes the tuple of its tensors."""
    if result is None or isinstance(result, (Tensor, int, float, bool, str)):
        return result
    if isinstance(result, Mapping):
        return {str(k): plain_result(v) for k, v in result.items() if v is not None}
    if isinstance(result, (list, tuple)):
        return tuple(plain_result(v) for v in result)
    return tuple(tensors_in(result))


def _is_plain(item: Any) -> bool:
    if isinstance(item, (list, tuple)):
        return type(item) in (list, tuple) and all(map(_is_plain, item))
    if isinstance(item, dict):
        return type(item) is dict and all(map(_is_plain, item.values()))
    return item is None or isinstance(item, (Tensor, int, float, bool, str))


def _apart(item: Any) -> Any:
    return item if _is_plain(item) else tensors_in(item)


def _together(parts: Any, model: Any) -> Any:
    """The object that `parts` came from, with these tensors in the place of its own."""
    if _is_plain(model):
        return parts
    return copy.deepcopy(model, {id(t): p for t, p in zip(tensors_in(model), parts, strict=True)})
