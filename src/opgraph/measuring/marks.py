"""Marks: names in a profiler's trace that say which node runs. The torch functions of a real run are heard
as those of the traced one were; the nth call of a function in a module is the nth node of that function
there, so what a mark says is exact, and nothing has to be guessed from names and shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C._profiler import _RecordFunctionFast
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode

from opgraph.record.graph import Graph, Node
from opgraph.tracing.base import compiling
from opgraph.tracing.capture.names import names
from opgraph.tracing.capture.scopes import ModuleCalls
from opgraph.tracing.parts import named_parts
from opgraph.tracing.state.process import set_function_modes

NODE, STEP = "opgraph:node:", "opgraph:step:"
"""What the marks of a node and of a step begin with, before its number."""

Key = tuple[str, str]


class Marks:
    """Marks the nodes of a graph while its model runs."""

    def __init__(self, graph: Graph, module: torch.nn.Module) -> None:
        self._tree = dict(named_parts(module))
        self._nodes: dict[Key, list[str]] = {}
        loss = next((f"{s.path}." for s in graph.scopes if s.is_loss), " ")
        for node in graph.nodes:
            if node.kind in ("call", "constant", "control"):
                self._nodes.setdefault(_key(node, loss), []).append(f"{NODE}{node.id}")
        divided = [n for n in graph.nodes if any(k.share < 1 for k in n.kernels)]
        for kernel in divided[0].kernels if divided else ():
            name = kernel.op.partition(".")[2]
            parts = ",".join(str(n.id) for n in divided)
            self._nodes.setdefault(("optimizer", f"torch.{name}"), []).append(f"{NODE}{parts}")
        self._next: dict[Key, int] = {}
        self.phase = "forward"
        self.modules = ModuleCalls(self._tree, lambda: 0, lambda _: ())
        self.inside = False  # a call that is marked: what it calls is its own

    @contextmanager
    def step(self) -> Iterator[None]:
        """Within, one run of the model is marked, from its beginning."""
        self._next, self.phase = {}, "forward"
        self.modules = ModuleCalls(self._tree, lambda: 0, lambda _: ())
        with ExitStack() as stack:
            stack.enter_context(
                compiling("force_eager", in_a_loop=True)
            )  # nothing is heard of what is compiled
            stack.enter_context(_on(_Functions(self)))
            self.modules.attach()
            stack.callback(self.modules.detach)
            yield

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Within, gradients are computed: what autograd runs is marked operator by operator."""
        self.phase = "backward"
        try:
            with _Operators(self):
                yield
        finally:
            self.phase = "forward"

    def call(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function, with the mark of the node that this call is, where it is one."""
        if func in _BACKWARD and self.phase == "forward" and not self.inside:
            with self.backward():
                return func(*args, **kwargs or {})
        where = self.modules.current.path
        if not where and self.phase != "forward":
            where = self.phase
        key = (where, names(func)[2])
        marks = self._nodes.get(key)
        if marks is None or self.inside:
            return func(*args, **kwargs or {})
        at = self._next.get(key, 0)
        self._next[key] = at + 1
        if at >= len(marks):
            return func(*args, **kwargs or {})
        self.inside = True
        try:
            with _RecordFunctionFast(marks[at]):
                return func(*args, **kwargs or {})
        finally:
            self.inside = False


@contextmanager
def _on(mode: TorchFunctionMode) -> Iterator[None]:
    """Within, a mode is on. Somebody may enter others within, and leave them later, or have left this one
    in the place of another, which is still on."""
    mode.__enter__()
    try:
        yield
    finally:
        now = _get_current_function_mode_stack()
        if now:
            now.pop(now.index(mode) if mode in now else -1)
        set_function_modes(now)


def _key(node: Node, loss: str) -> Key:
    """What tells nodes apart, beside their order: the module and the function. In the backward and in the
    optimizer the order alone does: modules are not called there. Nor is the loss one that is called."""
    if node.phase not in ("forward", "recompute"):
        return node.phase, node.target
    return f"{node.scope}.".removeprefix(loss)[:-1], node.target


_BACKWARD = frozenset({Tensor.backward, torch.autograd.backward})


class _Functions(TorchFunctionMode):
    """Marks the outermost calls of torch functions."""

    def __init__(self, marks: Marks) -> None:
        super().__init__()
        self._call = marks.call

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self._call(func, args, kwargs)


class _Operators(TorchDispatchMode):
    """Marks the operators that autograd runs, each of which is a node of the backward."""

    def __init__(self, marks: Marks) -> None:
        super().__init__()
        self._call = marks.call

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self._call(func, args, kwargs)
