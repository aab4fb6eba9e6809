"""Which module is running: a stack of module calls, kept by global module hooks or, where a captured graph
is run instead of the modules themselves, by whoever runs it. The recorder asks it for the scope of a node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils.checkpoint import _StopRecomputationError

from opgraph.record.identity import identity


@dataclass(slots=True)
class Call:
    """One call of a module, while it runs and after. `first` is the number of the record that was next
    when it began, `module` the id of the module object where there is one."""

    path: str
    nodes: int = 0
    children: int = 0
    first: int = 0
    module: int | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """An error, the innermost call of a module that it left, and the arguments of that call."""

    error: BaseException
    call: Call
    module: torch.nn.Module
    args: Any


class ModuleCalls:
    """The stack of module calls, and what is known of each module after the run.

    `tree` are the model's modules by path. `last` is the path of the call that ended last. `position`
    gives the number of the next record; `known` gives the values that some tensors are known as.
    """

    def __init__(
        self,
        tree: Mapping[str, torch.nn.Module],
        position: Callable[[], int],
        known: Callable[[Any], tuple[int, ...]],
    ) -> None:
        self.counts: dict[str, int] = {}
        self.classes: dict[str, str] = {}
        self.inputs: dict[str, tuple[int, ...]] = {}
        self.outputs: dict[str, tuple[int, ...]] = {}
        self.last = ""
        self.raised: Raised | None = None
        self._position = position
        self._known = known
        self._paths: dict[int, str] = {identity(m): p for p, m in tree.items()}
        self._tops = frozenset(p.partition(".")[0] for p in tree if p)
        self._owners = _owners(tree.values())
        self._fresh: list[torch.nn.Module] = []
        self._main = [Call("", module=identity(tree[""]))]
        self._thread = get_ident()
        self._others: dict[int, list[Call]] = {}
        self._hooks: list[Any] = []

    @property
    def current(self) -> Call:
        """The call that runs now; the first one is that of the root."""
        return (self._stack() if self._others else self._main)[-1]

    def _stack(self) -> list[Call]:
        """The calls that run now in this thread."""
        return self._others.get(get_ident(), self._main)

    @contextmanager
    def beside(self, call: Call) -> Iterator[None]:
        """Within, this thread is another than that of the run, and works for a call."""
        self._others[get_ident()] = [call]
        try:
            yield
        finally:
            del self._others[get_ident()]

    @contextmanager
    def calling(self, path: str) -> Iterator[Call]:
        """Within, what runs happens in something that is called like a module and is none."""
        stack = self._stack()
        stack.append(Call(path, first=self._position()))
        try:
            yield stack[-1]
        finally:
            call = stack.pop()
            self.counts[path] = self.counts.get(path, 0) + (call.nodes + call.children > 0)

    def free(self, name: str, cls: str) -> str:
        """The path for what is no module of the model, which is of a class: a name that none has."""
        path, taken, number = name, set(self._paths.values()), 1
        while path in taken or self.classes.get(path, cls) != cls:
            path, number = f"{name}_{number}", number + 1
        self.classes[path] = cls
        return path

    def move(self, calls: Iterable[Call], above: str) -> None:
        """Put modules that are not in the tree, with all that is in them, below another path."""
        tops = {call.path.partition(".")[0] for call in calls}
        for call in calls:
            call.path = f"{above}.{call.path}"
        tables: list[dict[str, Any]] = [self.counts, self.classes, self.inputs, self.outputs]
        for table in tables:
            for path in [p for p in table if p.partition(".")[0] in tops]:
                table[f"{above}.{path}"] = table.pop(path)
        for key, path in self._paths.items():
            if path.partition(".")[0] in tops:
                self._paths[key] = f"{above}.{path}"

    def is_model(self, call: Call) -> bool:
        """Whether a call is of a module in the model's tree below the root, or of one that it made."""
        return call.path.partition(".")[0] in self._tops

    def attach(self) -> None:
        """Follow the calls of all modules, until `detach`."""
        self._hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def detach(self) -> None:
        """Follow them no more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def enter(self, module: torch.nn.Module) -> None:
        """A module is called: what comes from here on happens in it."""
        stack = self._stack() if self._others else self._main
        current, key = stack[-1], identity(module)
        path = self._paths.get(key)
        if path is None:
            path = self._adopt(module)
        elif current.path and not path.startswith(f"{current.path}."):
            path = self._alias(module) or path
        current.children += 1
        self.counts[path] = self.counts.get(path, 0) + 1
        stack.append(Call(path, first=self._position(), module=key))

    def leave(self) -> Call:
        """The call that runs now has ended."""
        call = self._stack().pop()
        self.last = call.path
        return call

    def _enter(self, module: torch.nn.Module, _args: Any) -> None:
        thread = get_ident()
        if thread == self._thread or thread in self._others:
            self.enter(module)

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        thread = get_ident()
        if thread != self._thread and thread not in self._others:
            return
        stack = self._stack() if self._others else self._main
        if len(stack) < 2:
            return
        error = sys.exc_info()[1]
        call = stack.pop()
        self.last = call.path
        if error is not None and output is None:
            # What a checkpoint runs again ends by an error that is none, and that must keep nothing alive.
            if isinstance(error, _StopRecomputationError):
                return
            if self.raised is None or self.raised.error is not error:
                self.raised = Raised(error, call, module, args)
            return
        self.inputs[call.path] = self._known(args)
        self.outputs[call.path] = self._known(output)

    def _alias(self, module: torch.nn.Module) -> str | None:
        """The path under which the calling module owns a module that it shares with others, directly
        or through containers: one activation in all layers is `layer.3.act` in layer 3."""
        caller = self.current
        found: dict[int, tuple[tuple[str, str], ...]] = {identity(module): ()}
        level = [identity(module)]
        while level:
            above: list[int] = []
            for child in level:
                for owner, name, cls in self._owners.get(child, ()):
                    if owner not in found:
                        found[owner] = ((name, cls), *found[child])
                        above.append(owner)
            if caller.module in found:
                path = caller.path
                for name, cls in found[caller.module]:
                    path = f"{path}.{name}"
                    self.classes.setdefault(path, cls)
                return path
            level = above
        return None

    def forget(self) -> None:
        """Let go of the modules that were made during the run, and of what one that raised was given."""
        self.raised = None
        self._fresh.clear()

    def _adopt(self, module: torch.nn.Module) -> str:
        """A module that is not in the tree: made during the run, or kept outside of it."""
        parent = self.current.path
        cls = type(module).__name__
        base = f"{parent}.{cls}" if parent else cls
        path, taken, number = base, set(self._paths.values()), 1
        while path in taken:
            path, number = f"{base}_{number}", number + 1
        self._fresh.append(module)
        for name, child in module.named_modules(prefix=path):
            self._paths[identity(child)] = name
            self.classes[name] = type(child).__name__
        return path


def _owners(modules: Collection[torch.nn.Module]) -> dict[int, list[tuple[int, str, str]]]:
    """Who owns each module, by id: the owner's id, the name there, and the module's class."""
    found: dict[int, list[tuple[int, str, str]]] = {}
    for owner in modules:
        for name, child in owner._modules.items():
            if child is None:
                continue
            found.setdefault(identity(child), []).append(
                (identity(owner), name, type(child).__name__)
            )
    return found


# Why a module raised, where its sizes say so.

_FEATURES = ("in_features", "input_size", "embed_dim", "normalized_shape")
"""Attributes by which layers name the last sizes of their input."""
_CHANNELS = ("in_channels", "num_features", "num_channels")
"""Those by which they name its channels, which stand before what a window slides over."""


def misfit(raised: Raised) -> str | None:
    """The module, what it takes and what it got ("fc1: Linear takes 16 features, got 8x17"), where the
    first tensor of the call does not have the size that the module states; None otherwise."""
    args, module = raised.args, raised.module
    tensor = next((a for a in args if isinstance(a, torch.Tensor)), None)
    if tensor is None or tensor.is_nested:
        return None
    shape = tuple(map(int, tensor.shape))
    taken = _taken(module, shape) or _below(module, tensor)
    if taken is None:
        return None
    where = f"{raised.call.path}: " if raised.call.path else ""
    got = f"an id of {int(tensor.max())}" if taken.startswith("ids") else "x".join(map(str, shape))
    return f"{where}{type(module).__name__} takes {taken}, got {got or 'a number'}"


def _taken(module: torch.nn.Module, shape: tuple[int, ...]) -> str | None:
    """What a module takes that an input of this shape does not have."""
    window = getattr(module, "kernel_size", None)
    for name in filter(_stated(module).__contains__, (*_FEATURES, *_CHANNELS)):
        size = getattr(module, name, None)
        wanted = size if isinstance(size, tuple) else (size,)
        if not all(type(n) is int for n in wanted):
            continue
        if name in _FEATURES:
            found = shape[-len(wanted) :]
        else:
            axis = len(shape) - 1 - len(window) if isinstance(window, tuple) else 1
            if isinstance(window, tuple) and axis < 0:
                return f"{len(window) + 2} dimensions and not {len(shape)}"
            found = shape[max(axis, 0) : axis + 1]
        if found != wanted:
            what = "features" if name in _FEATURES else "channels"
            return f"{'x'.join(map(str, wanted))} {what if wanted != (1,) else what[:-1]}"
    return None


def _stated(module: torch.nn.Module) -> Collection[str]:
    """The attributes that a layer states of itself, as torch's and those made of them do; elsewhere one of
    the same name may be about something else than the input."""
    alone = ("embed_dim",) if isinstance(module, torch.nn.MultiheadAttention) else ()
    return (*getattr(type(module), "__constants__", ()), *alone)


def _below(module: torch.nn.Module, ids: torch.Tensor) -> str | None:
    """The ids that a table takes, where others were looked up and their values are known."""
    rows = module.num_embeddings if "num_embeddings" in _stated(module) else None
    known = type(ids) is torch.Tensor and not ids.is_floating_point() and ids.numel() > 0
    return f"ids below {rows}" if type(rows) is int and known and int(ids.max()) >= rows else None
